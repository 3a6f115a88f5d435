"""The table of translators: a verdict beside measures of another corpus names the corpus of its fit."""

import polars as pl

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


def test_a_verdict_names_the_corpus_of_its_fit_unless_it_is_the_measured_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store.write_metrics("align", "mapped", {"seeds": 2, "verdict": 0.999, "aligned": 1.0})
    store.write_metrics("align", "naive", {"seeds": 1})
    for name in STUDY.evaluate:
        scores = {m.name: [0.5, 0.5] for m in shown(MEASURES)}
        store.write_csv(store.seeds_path(name), pl.DataFrame({"seed": [0, 1], **scores}))
        store.write_metrics("evaluate", name, {"pairs": 2048})
    lines = [line for line in translation_table(STUDY) if line.startswith(("###", "| mapped", "| naive"))]
    verdicts = [line if line.startswith("#") else line.split("|")[3].strip() for line in lines]
    assert verdicts == [
        "### prose-one -> prose-two (GENERATED)",
        "2/2 aligned, 1.00",
        "",  # what makes no claim has no verdict
        "### notes-one -> notes-two (GENERATED)",
        "fit on prose: 2/2 aligned",
        "",
    ]
