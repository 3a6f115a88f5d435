"""Headline numbers: one or two for each row that measured something; DVC's tables of them fit a screen."""

import base64
import json
import zlib
from pathlib import Path

import polars as pl
import pytest
import torch

from pipelines.measures import Measure, retrieval, shown, summary, translation
from pipelines.pages import headlines
from pipelines.pages.tables.translation import seed_cells, translation_table
from pipelines.runtime import store
from pipelines.study import params
from scripts import views
from tests.small import ROOT, WITHOUT_GIT, completed, copied, put, study_of

SAMPLE = params.load(ROOT / "studies/sample.yaml")
FACTS = {"recoverable": 171, "recovered": 57, "above_floor": 38 / 171, "low": 0.1, "high": 0.3}
ERROR = {"top1_above_floor_error": 0.01}
RESULTS = {  # of every row of a verb, with more in it than a headline
    "align": {"seeds": 2, "verdict": 0.999998, "aligned": 1.0},
    "evaluate": {"top1": 0.78, "top10": 0.9, "pairs": 2048},
    "attributes": {
        "name": {"translated": {"top1": 0.25} | ERROR, "majority": {"top1": 0.05}},
        "examples": 1900,
        "documents": 900,
    },
    "invert": {"translated": {"corrected": {"token_f1": 0.1, "facts": {"all": FACTS}}}},
    "finetune": {"before": {"spearman": 84.6}, "dev": {"spearman": 87.468508, "step": 40}},
    "similarity": {"spearman": 96.827217, "pearson": 96.6},
    "geometry": {"texts": 2048, "a:b": {"overlap": 0.3, "cka": 0.5}, "a:c": {"overlap": 0.1, "cka": 0.5}},
    "evaluate_image_text": {"zero_shot": 0.423077, "linear": 0.6},
}


def files_of(study):
    """Write the headlines of a study. -> the numbers of each file"""
    headlines.write(study)
    files = headlines.FOLDER.rglob("*.json")
    return {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in files}


@pytest.fixture
def written(own_folder):
    """Study `sample`, every row of it measured, in a repository of its own. -> the numbers of each file"""
    copied(own_folder, ".dvcignore dvc.yaml params.yaml")
    put(".dvc/config", WITHOUT_GIT)
    for verb, metrics in RESULTS.items():
        for name, row in getattr(SAMPLE, verb).items():
            unjudged = verb == "align" and row.supervision != "unpaired"
            store.write_metrics(verb, name, {"seeds": 1} if unjudged else metrics)
    return files_of(SAMPLE)


def test_headlines_are_numbers_of_the_results(written):
    expected = {
        "evaluate/wasserstein": {"top1": 0.78, "verdict": 1.0},
        "evaluate/identity": {"floor": 0.78},
        "evaluate/oracle-orthogonal": {"ceiling": 0.78},
        "similarity/sts-minilm": {"spearman": 96.8272},
        "finetune/simcse": {"spearman": 87.4685},
        "geometry/docstrings": {"overlap": 0.2},
        "evaluate_image_text/scenes-clip": {"zero_shot": 0.4231},
        "attributes/docstrings": {"label_leak": 0.2},
        "invert/synthetic-emails": {"fact_leak": round((57 - 19) / 171, 4)},
    }
    assert {name: written[name] for name in expected} == expected


def test_every_row_has_a_headline_and_all_fit_one_screen(written, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = {f"{verb}/{name}" for verb in headlines.HEADLINES for name in getattr(SAMPLE, verb)}
    assert set(written) == rows
    lines = completed("python", "-m", "dvc", "metrics", "show").stdout.splitlines()
    assert {Path(line.split()[0]).stem for line in lines[1:]} == {name.partition("/")[2] for name in rows}
    assert max(map(len, lines)) <= 160
    assert len(lines) <= 60


def test_verdicts_on_other_corpora_name_that_of_the_fit(own_folder):
    fit = {"source": "prose-one", "target": "prose-two"}
    fits = {
        "mapped": fit | {"aligner": "wasserstein_procrustes", "seeds": [0, 1]},
        "naive": fit | {"aligner": "identity"},
    }
    measured = {"translator": "{align}", "corpus": "{corpora}"}
    study = study_of("prose notes", "one two", align=fits, evaluate={"{align}-{corpora}": measured})
    store.write_metrics("align", "mapped", {"seeds": 2, "verdict": 0.999, "aligned": 1.0})
    store.write_metrics("align", "naive", {"seeds": 1})
    for name in study.evaluate:
        scores = {m.name: [0.5, 0.5] for m in shown(translation.MEASURES)}
        store.write_csv(store.seeds_path(name), pl.DataFrame({"seed": [0, 1], **scores}))
        store.write_metrics("evaluate", name, RESULTS["evaluate"])
    found = files_of(study)
    assert "verdict" in found["evaluate/mapped-prose"]
    assert found["evaluate/mapped-notes"] == {"top1": 0.78}
    lines = [line for line in translation_table(study) if line.startswith(("###", "| mapped", "| naive"))]
    verdicts = [line if line.startswith("#") else line.split("|")[3].strip() for line in lines]
    assert verdicts == [
        "### prose-one -> prose-two (GENERATED)",
        "2/2 aligned, 1.00",
        "",  # what makes no claim has no verdict
        "### notes-one -> notes-two (GENERATED)",
        "fit on prose: 2/2 aligned",
        "",
    ]


def test_a_measure_of_translation_is_declared_once(tmp_path, monkeypatch):
    """One line of MEASURES, and `evaluate` computes it; report, headlines and MLflow's view show it."""
    monkeypatch.setattr(store, "seeds_path", lambda name: tmp_path / name)
    scores_of = translation.paired_scores
    monkeypatch.setattr(
        translation, "paired_scores", lambda x, y: scores_of(x, y) | {"doubled": 2 * (x * y).sum(1)}
    )
    translation.MEASURES.append(Measure("doubled", "twice the cosine", digits=2, headline=True))

    try:
        scores = translation.paired_scores(torch.eye(4), torch.eye(4))
        pl.DataFrame([summary(scores)]).write_csv(tmp_path / "r")
        assert seed_cells("r")[-1] == "2.00 ± 0.00"
        numbers = {"top1": 0.5, "doubled": 2.0}
        assert headlines.headlines(translation.MEASURES, numbers) == numbers
        state = views.state([]).removeprefix("deflate;")
        assert b"translation/doubled" in zlib.decompress(base64.b64decode(state))
    finally:
        translation.MEASURES.pop()


def test_every_listed_measure_is_computed_and_no_other():
    one, judgements = torch.eye(4), [{name: 1.0} for name in "abcd"]
    listed = {module: [m.name for m in module.MEASURES] for module in (translation, retrieval)}
    assert list(translation.paired_scores(one, one)) == listed[translation]
    assert list(retrieval.judged_scores(one, one, "abcd", judgements)) == listed[retrieval]


def test_no_measure_of_evaluate_has_the_name_of_another_number():
    names = [m.name for m in (*translation.MEASURES, *retrieval.MEASURES)]
    others = ["seed", "seeds", "pairs", "documents", "supervision", "retrieval", "retention"]
    written = [*names, *(f"{name}_error" for name in names), *others]
    assert len({*written}) == len(written)
