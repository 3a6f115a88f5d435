"""The table of translators: a verdict beside measures of another corpus names the corpus of its fit."""

import polars as pl

from pipelines.measures import shown
from pipelines.measures.translation import MEASURES
from pipelines.pages.tables.translation import translation_table
from pipelines.runtime import store
from tests.small import study_of

FIT = {"source": "prose-one", "target": "prose-two"}
FITS = {
    "mapped": FIT | {"aligner": "wasserstein_procrustes", "seeds": [0, 1]},
    "naive": FIT | {"aligner": "identity"},
}
MEASURED = {
    f"{name}-{corpus}": {"translator": name, "corpus": corpus, "pictures": False}
    for name in FITS
    for corpus in ("prose", "notes")
}
STUDY = study_of("prose notes", "one two", align=FITS, evaluate=MEASURED)


def test_a_verdict_names_the_corpus_of_its_fit_unless_it_is_the_measured_one(own_folder):
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
