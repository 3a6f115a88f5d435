"""Texts, or known pairs, against success: rows that differ in that number alone make one curve."""

import re

import polars as pl
import pytest

from pipelines.pages.tables.sizes import PAIRS, VECTORS, sizes, sizes_table
from pipelines.runtime import store
from tests.small import study_of

ROWS = {f"turn-{n}": {"limit": n} for n in (100, 300, 1000)}
ROWS |= {f"small-{n}": {"limit": n, "clusters": 7} for n in (100, 300)}  # two sizes are no curve
ROWS |= {f"ten-{n}": {"limit": n, "clusters": 9} for n in (10, 100, 1000)}
ROWS |= {"whole": {}}
ROWS |= {f"known-{k}": {"limit": 500, "pairs": k, "repeats": [29]} for k in (0, 10, 100)}
ROWS |= {f"dump-{n}": {"limit": [n, 5000]} for n in (100, 300, 1000)}  # beside 5,000 of the attacker's own
ROWS |= {
    f"oracle-{k}": {"aligner": "procrustes", "limit": k} for k in (10, 100, 300)
}  # fitted on that many pairs
TOP1 = {"turn-100": [0.0, 0.1], "turn-300": [0.4, 0.6], "turn-1000": [0.9, 1.0]}


@pytest.fixture
def study(own_folder):
    for name in ROWS:
        top1 = TOP1.get(name, [0.3, 0.3])
        store.write_csv(store.seeds_path(name), pl.DataFrame({"seed": range(len(top1)), "top1": top1}))
    fit = {"source": "passages-one", "target": "passages-two"}
    fit |= {"aligner": "wasserstein_procrustes", "seeds": [0, 1]}
    fits = {name: fit | keys for name, keys in ROWS.items()}
    return study_of("passages", "one two", align=fits, evaluate={"{align}": {}})


def test_rows_that_differ_in_size_alone_are_one_curve(study):
    assert sizes(study, VECTORS) == {
        "turn: wasserstein_procrustes, one -> two": {int(n[5:]): top1 for n, top1 in TOP1.items()},
        "ten: wasserstein_procrustes, one -> two": {n: [0.3, 0.3] for n in (10, 100, 1000)},
        "dump: wasserstein_procrustes, one -> two": {n: [0.3, 0.3] for n in (100, 300, 1000)},
    }
    assert sizes(study, PAIRS) == {
        "known: wasserstein_procrustes, one -> two": {key: [0.3, 0.3] for key in (0, 10, 100)},
        "oracle: procrustes (oracle), one -> two": {key: [0.3, 0.3] for key in (10, 100, 300)},
    }


@pytest.mark.parametrize("keys", [{"halves": "rows"}, {"restarts": 2}])
def test_rows_that_differ_in_more_are_not_on_the_curve(study, keys):
    fit = study.align["turn-300"].model_copy(update=keys)
    other = study.model_copy(update={"align": study.align | {"turn-300": fit}})
    assert not [curve for curve in sizes(other, VECTORS) if curve.startswith("turn")]


def test_the_table_counts_the_seeds_that_are_right(study):
    text = "\n".join(sizes_table(study))
    assert re.search(r"\| turn: .* \| 0/2, 0.050 +\| 1/2, 0.500 +\| 2/2, 0.950 +\|\n", text)
    assert "| known: wasserstein_procrustes, one -> two | 0/2, 0.300 | 0/2, 0.300" in text
    assert {path.name for path in (store.REPORT / "pictures").iterdir()} == {"sizes.png", "pairs.png"}
    assert sizes_table(study.model_copy(update={"evaluate": {"whole": study.evaluate["whole"]}})) == []
