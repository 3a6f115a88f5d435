"""The table of translators: a verdict beside measures of another corpus names the corpus of its fit."""

import polars as pl
import pytest

from pipelines.measures import shown
from pipelines.measures.translation import MEASURES
from pipelines.pages.tables.translation import translation_table
from pipelines.runtime import store
from pipelines.study import params

FIT = {"source": "prose-one", "target": "prose-two"}
STUDY = params.Study.model_validate(
    {
        "study": "s",
        "corpora": {name: {"source": "synthetic"} for name in ("prose", "notes")},
        "encoders": {name: {"source": "wheel"} for name in ("one", "two")},
        "align": {
            "mapped": FIT | {"aligner": "wasserstein_procrustes", "seeds": [0, 1]},
            "naive": FIT | {"aligner": "identity"},
        },
        "evaluate": {
            f"{name}-{corpus}": {"translator": name, "corpus": corpus, "pictures": False}
            for name in ("mapped", "naive")
            for corpus in ("prose", "notes")
        },
    }
)


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """The table's verdict cells by (measured corpus, aligner), of a translator that is aligned on the corpus
    of its fit.
    """
    monkeypatch.chdir(tmp_path)
    store.write_metrics("align", "mapped", {"seeds": 2, "verdict": 0.999, "aligned": 1.0})
    store.write_metrics("align", "naive", {"seeds": 1})
    for name in STUDY.evaluate:
        scores = {m.name: [0.5, 0.5] for m in shown(MEASURES)}
        store.write_csv(store.seeds_path(name), pl.DataFrame({"seed": [0, 1], **scores}))
        store.write_metrics("evaluate", name, {"pairs": 2048})
    cells, corpus = {}, ""
    for line in translation_table(STUDY):
        if line.startswith("### "):
            corpus = line.split()[1].split("-")[0]
        elif line.startswith(("| mapped", "| naive")):
            aligner, _trained_on, verdict, *_ = (cell.strip() for cell in line.strip("|").split("|"))
            cells[corpus, aligner.split()[0]] = verdict
    return cells


def test_a_verdict_stands_where_it_was_made(cells):
    assert cells["prose", "mapped"] == "2/2 aligned, 1.00"


def test_elsewhere_a_verdict_says_on_what_the_fit_was(cells):
    assert cells["notes", "mapped"] == "fit on prose: 2/2 aligned"


def test_what_makes_no_claim_has_no_verdict_anywhere(cells):
    assert cells["prose", "naive"] == cells["notes", "naive"] == ""
