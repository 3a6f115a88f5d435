"""What Dagster warns of, read from a study's files."""

import json
from pathlib import Path

import dagster as dg
import pytest

from assets.checks import CHECKS
from assets.study import StudyComponent
from dagster_dvc.checks import checks
from dagster_dvc.graph import Stage
from pipelines.runtime import store
from tests.small import put

pytestmark = pytest.mark.usefixtures("own_folder")


def stage(name):
    several = dict.fromkeys(("upstream", "outs", "metrics", "plots", "read", "sources"), ())
    return Stage(name=name, code_version="", op="x", cmd="", desc="", pool=None, **several)


def said(name, check):
    """One check as Dagster runs it."""
    definition = checks(Path(), stage(name), StudyComponent(project=Path()).checks_of(stage(name)))
    key = dg.AssetCheckKey(dg.AssetKey(name.split("@")), check)
    found = dg.materialize([definition], selection=dg.AssetSelection.checks(key))
    (evaluation,) = found.get_asset_check_evaluations()
    assert evaluation.severity is dg.AssetCheckSeverity.WARN
    return evaluation


def numbers(evaluation):
    return {name: value.value for name, value in evaluation.metadata.items()}


def test_lost_verdicts_and_shared_texts_are_counted():
    store.write_metrics("align", "x", {"by seed": {"0": {"label": "aligned"}, "1": {"label": "doubtful"}}})
    evaluation = said("align@x", "aligned")
    assert not evaluation.passed
    assert numbers(evaluation) == {"verdicts": 2, "not aligned": 1}
    store.write_metrics("align_jointly", "y", {"a/b": {"by seed": {"0": {"label": "aligned"}}}})
    assert said("align_jointly@y", "aligned").passed
    store.write_metrics("align", "x", {"shared": 6, "near_duplicates": 2})
    assert numbers(said("align@x", "aligned"))["verdicts"] == "none: oracles and naive rows get none"
    assert numbers(said("align@x", "disjoint_halves")) == {"on both sides": 6, "near-duplicates": 2}
    store.write_metrics("align_jointly", "y", {"a/b": {"shared": 0}, "b/a": {"shared": 3}})
    assert numbers(said("align_jointly@y", "disjoint_halves")) == {"on both sides": 3, "near-duplicates": 0}


def test_a_check_is_described_in_whole_sentences():
    [*_, spec] = checks(Path(), stage("report"), CHECKS["report"]).check_specs
    assert spec.description == "Warn of audits in report/audit that missed a target of `--gate`."


def test_targets_that_an_audit_missed_are_named():
    assert said("report", "audit_targets").passed
    folder = Path("report/audit")
    running = ["The audit has not finished: it was in the step topics."]  # a later one of the same dump has
    for name, missed in (("a", []), ("a-unfinished", running), ("b", ["facts: 3 of 10; at most 0.2"])):
        put(folder / f"{name}.json", json.dumps({"missed": missed}))
    evaluation = said("report", "audit_targets")
    assert not evaluation.passed
    assert evaluation.description == "b: facts: 3 of 10; at most 0.2"
    assert numbers(evaluation) == {"audits": 2, "targets missed": 1}
