"""docs/paper.md gives each table a state and rows that exist; its study has every pair by every method."""

import re
from collections import Counter
from fnmatch import fnmatch
from functools import cache

from pipelines.study import params
from pipelines.study.expand import expand
from pipelines.study.reading import read
from tests.small import ROOT


@cache
def rows(study):
    """Return `<table>.<row>` of all rows of a study."""
    tables = expand(read(ROOT / f"studies/{study}.yaml"))
    return [f"{table}.{row}" for table, rows in tables.items() if isinstance(rows, dict) for row in rows]


def test_every_table_has_a_state_and_its_rows():
    page = (ROOT / "docs/paper.md").read_text("utf-8")
    assert page.count("| ran here |") > 20
    table = page.partition("| table or figure | state | rows |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        what, state, named, result = [cell.strip() for cell in line.split("|")[1:-1]]
        assert state in ("ran here", "GPU", "not possible"), what
        assert named or state != "GPU", what
        assert result, what  # a result, a cost or a reason
        for study, pattern in re.findall(r"`(\S+): (\S+)`", named):
            assert any(fnmatch(row, pattern) for row in rows(study)), f"{what}: {study}: {pattern}"


def test_hours_of_vec2vec_are_its_steps_times_the_measured_step():
    page, log = ((ROOT / f"docs/{name}.md").read_text("utf-8") for name in ("paper", "experiments/vec2vec"))
    milliseconds = float(re.findall(r"\| bf16 \| ([\d.]+)", log)[0])
    costs = re.findall(r"(\d+) rows of (\d+) seeds .* ([\d,]+) a seed \| \|.* (\d+)(?: in all)? \|", page)
    assert len(costs) == 3
    for cost in costs:
        rows, seeds, steps, hours = (int(n.replace(",", "")) for n in cost)
        assert round(rows * seeds * steps * milliseconds / 3.6e6) == hours


def test_the_study_of_the_paper_has_every_pair_by_every_method():
    study = params.load(ROOT / "studies/paper.yaml")
    methods = Counter(row.aligner for row in study.align.values())
    fits = dict.fromkeys(("wasserstein_procrustes", "mini_vec2vec", "identity", "transport"), 32)
    assert methods == fits | {"procrustes": 64, "rosetta": 10, "vec2vec": 32 + 5 + 4 + 2}
    same = {"gte", "stella", "e5"}  # encoders of one backbone
    for name, fit in study.align.items():
        pair = {fit.source.removeprefix("nq-"), fit.target.removeprefix("nq-")}
        assert len(pair) == 2
        assert set(name.split("-")) >= pair
        if fit.aligner == "transport":
            assert fit.settings.method == ("sinkhorn" if pair <= same else "gromov_wasserstein")
