"""What the report says first: sentences from hand-made results, with their numbers, floors, verdicts and
oracles.
"""

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from pipelines.measures import Measure, geometry, image_text
from pipelines.measures.intervals import difference
from pipelines.pages.findings import findings
from pipelines.pages.findings.translation import judgement, what_to_try
from pipelines.pages.tables import images
from pipelines.pages.tables.encoders import geometry_table
from pipelines.pages.tables.leakage import inversion_table
from pipelines.runtime import store
from pipelines.study import params
from tests.small import completed, put, write_report

SYNTHETIC, WHEEL = {"source": "synthetic"}, {"source": "wheel", "model": "minilm"}
FIT = {"source": "mails-one", "target": "mails-two"}
ROWS = {
    "study": "t",
    "about": "a_b, small",
    "corpora": {"mails": {"source": "path", "path": "x", "kind": "emails", "private": False}}
    | dict.fromkeys(("tweets", "sts", "scenes"), SYNTHETIC),
    "encoders": {"one": WHEEL, "two": WHEEL, "small": {"source": "path", "path": "data/trained/small"}},
    "finetune": {"small": {"corpus": "mails", "dev": "sts", "network": {}, "steps": 9}},
    "similarity": {name: {"encoder": name, "corpus": "sts"} for name in ("small", "one")},
    "geometry": {"mails": {}},
    "align": {
        "blind": FIT | {"aligner": "wasserstein_procrustes", "seeds": [0, 1]},
        "sighted": FIT | {"aligner": "procrustes"},
        "nothing": FIT | {"aligner": "identity"},
        "rival": {"source": "tweets-one", "target": "tweets-two", "aligner": "mini_vec2vec"},
    },
    "evaluate": {"{align}": {}},
    "attributes": {"topics": {"translator": "blind", "corpus": "tweets"}},
    "inverters": {"i": {"space": "tweets-two"}},
    "invert": {"mails": {"translator": "blind", "inverter": "i", "corpus": "mails"}},
    "train_image_text": {
        kind: {"corpus": "scenes", "head": {"kind": kind, "dim": 16}} for kind in ("points", "vector")
    },
    "evaluate_image_text": {"points": {}, "vector": {}},
}


@pytest.fixture
def study(own_folder):
    """No results yet."""
    return params.Study.model_validate(ROWS)


def changed(row, **keys):
    return row.model_copy(update=keys)


def verdict(label, seeds=2, score=0.5):
    """Return the metrics of a fit: `label` for every seed."""
    by_seed = {str(seed): {"label": label, "score": score, "agreement": 0.25} for seed in range(seeds)}
    aligned = float(label == "aligned")
    return {"seeds": seeds, "verdict": score, "aligned": aligned, "by seed": by_seed}


def judged(name, label, seeds=2, **counts):
    store.write_metrics("align", name, verdict(label, seeds) | counts)


def translated(shares=(0.9, 0.92), label="aligned"):
    """Write top-1 of both seeds of `blind`, its verdict, and top-1 of an oracle and of a naive row."""
    for name, top1 in {"blind": shares, "sighted": [0.973], "nothing": [0.0002]}.items():
        measures = {"centred_cosine": 0.5, "mean_rank": 1.5, "foscttm": 0.1}
        errors = {f"{m}_error": 0.0 for m in ("top1", *measures)}
        seeds = [{"seed": seed, "top1": value} | measures | errors for seed, value in enumerate(top1)]
        store.write_csv(store.seeds_path(name), pl.DataFrame(seeds))
        metrics = measures | {"top1": sum(top1) / len(top1), "pairs": 4096, "seeds": len(top1)}
        store.write_metrics("evaluate", name, metrics)
        store.write_metrics("align", name, {"seeds": len(top1)})
    judged("blind", label)


def inverted(read, floor, ceiling, of=272):
    def scores(count):
        counted = {"recovered": count, "recoverable": of}
        if of:
            counted |= zip(("above_floor", "low", "high"), difference(count, of, floor, of), strict=True)
        facts = dict.fromkeys(("names", "all"), counted)
        means = dict.fromkeys(("token_f1", "set_f1", "bleu", "rouge_l", "cosine"), 0.2)
        return {"corrected": means | {"facts": facts, "stated": 1.0, "queries": 9.0}}

    attacks = {"translated": scores(read), "ceiling": scores(ceiling), "mismatched": scores(floor)}
    store.write_metrics("invert", "mails", {"texts": 60, "known": 100} | attacks)
    example = {"text": "Ann Lee paid", "guess": "ann lee came", "facts": "names: Ann Lee", "token_f1": 0.6}
    store.write_csv(store.examples_path("mails"), pl.DataFrame([example]))


def labelled(read, floor, name="topics", error=0.0, documents=900):
    methods = {"translated": read, "majority": floor, "ideal target": 0.724}
    methods |= {"ideal source": 0.8, "naive": 0.1, "chance": 0.05}
    measures = ("top1", "top5", "precision5", "recall5", "mean_rank", "mean_rank_all")
    errors = dict.fromkeys((f"{m}{of}_error" for m in measures for of in ("", "_above_floor")), error)
    scores = {method: dict.fromkeys(measures, share) | errors for method, share in methods.items()}
    sizes = {"examples": 2000, "documents": documents, "labels": 19, "seeds": 2}
    store.write_metrics("attributes", name, {"name": scores} | sizes)


def trained(name, before, dev):
    store.write_metrics("finetune", name, {"before": {"spearman": before}, "dev": {"spearman": dev}})


def sentence(study):
    (finding,) = findings(study)
    return finding.sentence


def written(study):
    """Run the stage `report`. -> the files it wrote"""
    write_report(study)
    return {path.name: path.read_bytes() for path in store.REPORT.rglob("*") if path.is_file()}


def test_a_study_without_results_has_a_page_and_no_findings(study):
    assert findings(study) == []
    files = written(study)
    assert files["findings.md"].startswith(b"# t: what was found\n\nNo findings. Rows of `evaluate`, ")
    assert b"\n\nNo findings. Rows of " in files["report.md"]
    inverted(0, 0, 0, of=0)  # an attack on texts without facts
    assert findings(study) == []


def test_the_best_unpaired_translator_stands_beside_its_oracle(study):
    translated()
    assert sentence(study) == (
        "one -> two on mails (the user's own): 91 % of 4,096 held-out texts are found at rank 1 without a "
        "pair. Each translated vector ranks all target vectors (blind, mean of 2 seeds). "
        "With pairs, sighted reaches 97 % (ORACLE). Untranslated vectors reach 0.0 %. "
        "The verdict, which needs no pairs, says: 2 of 2 seeds aligned."
    )


def test_an_oracle_ranked_among_fewer_texts_is_no_rival(study):
    translated()
    study.evaluate["sighted"] = changed(study.evaluate["sighted"], batch=50)
    assert "sighted" not in sentence(study)


def test_a_failed_verdict_is_said_first(study):
    store.write_metrics("collect", "mails", {"rows": 1900, "test": 400})
    translated([0.01, 0.02], "failed")
    said = sentence(study)
    assert said.startswith("No unpaired translator is judged aligned. one -> two on mails")
    assert said.endswith(
        "0 of 2 seeds aligned, 2 failed. To try, in this order: more texts (1,500 of mails; a side sees half "
        "at most, and a fit mostly works with 10,000 on either), more "
        "`restarts`, `match_in: smaller`, known `pairs`."
    )
    rival = what_to_try(study, "rival")  # of another aligner
    assert "match_in" not in rival
    assert "pairs" not in rival
    study.align["split"] = changed(study.align["blind"], splits=("test", "train"))
    assert "half at most" not in what_to_try(study, "split")
    judged("rival", "aligned")
    first = "No measured unpaired translator is judged aligned for most of its seeds. one -> two on mails"
    assert sentence(study).startswith(first)


@pytest.mark.parametrize("changes", [{"splits": ("test", "train")}, {"target": "tweets-two"}])
def test_pairs_are_advised_only_where_a_row_may_have_them(study, changes):
    study.align["other"] = changed(study.align["blind"], **changes)
    assert "`pairs`" in what_to_try(study, "blind")
    assert "`pairs`" not in what_to_try(study, "other")


def test_an_aligned_translator_measured_elsewhere_comes_before_a_failed_one(study):
    translated([0.01, 0.02], "failed")
    judged("rival", "aligned")  # fitted on tweets
    study.evaluate["cross"] = changed(study.evaluate["blind"], translator="rival")
    store.write_metrics("evaluate", "cross", {"top1": 0.8, "pairs": 4096, "seeds": 2})
    assert sentence(study).startswith("one -> two on mails (the user's own): 80 % of 4,096 held-out texts")
    assert "The verdict on tweets, the corpus of the fit, says: 2 of 2 seeds aligned." in sentence(study)


def test_random_halves_are_named(study):
    translated()
    study.align["blind"] = changed(study.align["blind"], halves="rows")
    assert "The fit is of random halves" in sentence(study)
    assert b"| blind (unpaired, random halves) | mails " in written(study)["report.md"]
    study.align["apart"] = changed(study.align["blind"], halves="documents")
    study.evaluate["apart"] = changed(study.evaluate["blind"], translator="apart")
    store.write_metrics("evaluate", "apart", {"top1": 0.02, "pairs": 4096, "seeds": 2})
    judged("apart", "failed")
    assert "documents. With no document on both sides, apart reaches 2.0 %." in sentence(study)
    judged("apart", "failed", shared_documents=7)  # its splits share documents
    assert "With no document on both sides" not in sentence(study)
    judged("blind", "failed")
    judged("apart", "aligned", shared_documents=7)
    assert (
        "without a pair. Each translated vector ranks all target vectors (apart, mean of 2 seeds). Both "
        "sides have texts of the same documents." in sentence(study)
    )


@pytest.mark.parametrize("label", ["failed", "aligned"])
def test_an_aligned_fit_on_real_texts_comes_first(study, label):
    translated([0.5, 0.5])
    store.write_metrics("evaluate", "rival", {"top1": 0.8, "pairs": 4096, "seeds": 2})
    judged("rival", label)
    assert "(blind, mean of 2 seeds)" in sentence(study)


@pytest.mark.parametrize(
    ("label", "counted", "more"),
    [
        ("failed", "0 of 2 seeds aligned, 2 failed.", "more texts (1,500 of mails"),
        ("aligned", "2 of 2 seeds aligned.", "can read them; an audit measures how much"),
    ],
)
def test_the_verdict_alone_judges_vectors_without_texts(study, label, counted, more):
    study = changed(study, evaluate={})
    store.write_metrics(
        "collect", "mails", {"rows": 1500, "test": 0, "documents": 90, "words": 0, "labels": 0}
    )
    judged("blind", label)
    said = sentence(study)
    assert said.startswith("Vectors of mails (the user's own) were translated to two without a pair (blind)")
    assert f"says: {counted}" in said
    assert more in said
    assert b"| blind (unpaired) | mails-one | mails-two | 1500" in written(study)["report.md"]


def test_a_verdict_is_no_finding_beside_a_measured_map(study):
    judged("blind", "aligned")
    assert judgement(changed(study, evaluate={"rival": study.evaluate["rival"]}))
    assert not judgement(changed(study, evaluate={"sighted": study.evaluate["sighted"]}))


@pytest.mark.parametrize(
    ("dump", "said"),
    [("dump-theirs", "dump (vectors without text)"), ("mails-small", "mails (the user's own)")],
)
def test_a_finding_is_of_vectors_translated_to_the_attacker(own_folder, dump, said):
    """The other direction of a joint fit is judged, too, and even better."""
    own, aligner = ["mails-one", "mails-two"], {"aligner": "wasserstein_procrustes"}
    used = ("study", "corpora", "encoders", "finetune", "train_image_text")
    rows = {key: ROWS[key] for key in used}
    rows["corpora"] = rows["corpora"] | {"dump": {"source": "vectors", "path": "x"}}
    rows["encoders"] = rows["encoders"] | {"theirs": {"source": "given", "path": "x"}}
    rows["align"] = {"back": aligner | {"source": "mails-one", "target": "dump-theirs"}}
    rows["align_jointly"] = {"all": aligner | {"spaces": [dump, *own], "paired": own}}
    study = params.Study.model_validate(rows)
    judged("back", "aligned")
    assert findings(study) == []
    pairs = study.align_jointly["all"].ordered_pairs()
    verdicts = {f"{a}/{b}": verdict("aligned", score=0.5 if a == dump else 0.9) for a, b in pairs}
    store.write_metrics("align_jointly", "all", verdicts)
    assert sentence(study).startswith(f"Vectors of {said} were translated to one")
    assert "`pairs`" not in what_to_try(study, f"all/{dump}/mails-one")


@pytest.mark.parametrize(
    ("split", "fit", "said"),
    [
        ("train", {}, "4,096 texts of the fit are found"),
        ("train", {"limit": 1000}, "4,096 texts, some of them of the fit, are found"),
        (None, {}, "4,096 texts, some of them of the fit, are found"),
        ("test", {"limit": 1000}, "4,096 held-out texts are found"),
        ("train", {"source": "tweets-one"}, "4,096 texts, some of them of the fit, are found"),
    ],
)
def test_vectors_of_the_fit_are_not_called_held_out(study, split, fit, said):
    translated()
    study.evaluate["blind"] = changed(study.evaluate["blind"], split=split)
    study.align["blind"] = changed(study.align["blind"], **fit)
    assert said in sentence(study)


@pytest.mark.parametrize(
    ("read", "said", "named"),
    [
        (9, "at floor level, +0.0 points (95 % interval -3.3 to +3.3)", False),
        (0, "below the floor, -3.3 points (95 % interval -6.2 to -1.2)", False),
        (38, "+10.7 points (95 % interval +6.0 to +15.5)", True),
    ],
)
def test_facts_above_the_floor_are_a_leak_and_are_named(study, read, said, named):
    inverted(read, 9, 60)
    found = sentence(study)
    assert f"mails (the user's own): {read} of 272 private facts in 60 texts come back" in found
    assert ("come back, no clear gain over vectors of other texts. " in found) == (not named)
    assert f"Vectors of other texts recover 9 (the floor); the difference is {said}" in found
    assert "True two vectors recover 60 (ORACLE)" in found
    assert ("names: Ann Lee" in "\n".join(inversion_table(study))) == named


def test_texts_of_digits_are_shown_as_they_are(study):
    inverted(9, 9, 60)
    example = {"text": "05", "guess": "007", "facts": "", "token_f1": 0.6}
    store.write_csv(store.examples_path("mails"), pl.DataFrame([example]))
    page = "\n".join(inversion_table(study))
    assert "| 05   | 007 " in page
    assert "Of the 1 texts with the most recovered facts, the 5 whose guesses share most words" in page
    inverted(0, 0, 0, of=0)
    assert "The texts have no facts. These are the 5 whose guesses" in "\n".join(inversion_table(study))


def test_guesses_spliced_from_private_texts_are_private(study):
    inverted(38, 9, 60)
    private = {"tweets": {"source": "path", "path": "y", "kind": "tweets"}}
    spliced = params.Study.model_validate(ROWS | {"corpora": ROWS["corpora"] | private})
    assert "ann lee came" in "\n".join(inversion_table(study))
    assert "ann lee came" not in "\n".join(inversion_table(spliced))


def test_labels_stand_above_the_commonest_ones(study):
    labelled(0.29925, 0.208)
    assert sentence(study) == (
        "one -> two on tweets (GENERATED): 29.9 % of 2,000 texts get a right label. "
        "The label is the nearest of 19 to the translated vector (blind, unpaired, fitted on mails). "
        "The commonest labels are right for 20.8 % (the floor); the difference is "
        "+9.1 points (95 % interval +6.4 to +11.8). True two vectors reach 72.4 % (ORACLE)."
    )
    labelled(0.29925, 0.208, error=0.07)  # the texts are of few documents
    assert "get a right label, no clear gain over the commonest labels. " in sentence(study)
    assert "the difference is at floor level, +9.1 points (95 % interval -4.6 to +22.9)" in sentence(study)
    labelled(0.29925, 0.208, error=math.nan, documents=1)
    assert "at floor level, +9.1 points (95 % interval -100.0 to +100.0)" in sentence(study)
    judged("blind", "failed", seeds=1)
    assert "judged 0 of 1 seed aligned, 1 failed" in sentence(study)


def test_encoders_that_share_neighbours_stand_beside_chance(study):
    found = {"texts": 4096, "repeated": 9, "chance": 0.0024, "one:two": {"overlap": 0.271}}
    store.write_metrics("geometry", "mails", found)
    assert "one and two share 27 % of a text's 10 nearest texts." in sentence(study)
    assert "chance is 0.2 %" in sentence(study)
    few = {"texts": 12, "repeated": 0, "chance": 0.909, "one:two": {"overlap": 0.92}}
    store.write_metrics("geometry", "few", few)
    both = changed(
        study, geometry=study.geometry | {"few": changed(study.geometry["mails"], corpus="tweets")}
    )
    said = "most above chance of 2 comparisons; the least is 92 %, one and two on tweets (GENERATED)."
    assert said in sentence(both)
    store.write_metrics("geometry", "mails", found | {"repeated": 4000})
    assert findings(study) == []


def test_a_table_follows_the_titles_of_measures(study, monkeypatch):
    measures = [replace(m, title=m.title.upper()) for m in geometry.MEASURES]
    monkeypatch.setattr(geometry, "MEASURES", measures)
    store.write_metrics("geometry", "mails", {"texts": 9, "chance": 0.5, "one:two": {"overlap": 0.7}})
    assert "| SHARED (chance 0.5000) |" in "\n".join(geometry_table(study))
    monkeypatch.setattr(image_text, "MEASURES", [*image_text.MEASURES, Measure("x", better="lower")])
    legend = importlib.reload(images).LEGEND
    monkeypatch.undo()
    importlib.reload(images)
    assert ", ." not in legend


def test_a_trained_encoder_stands_beside_its_untrained_self(study):
    trained("small", 80.49, 87.5)
    assert "the Spearman correlation of small from 80.5 (untrained) to 87.5" in sentence(study)
    for name, spearman in (("small", 84.84), ("one", 96.52)):
        store.write_metrics("similarity", name, {"pairs": 1000, "spearman": spearman})
    assert "On 1,000 other pairs it is 84.8." in sentence(study)
    store.write_metrics("similarity", "small", {"pairs": 1000, "spearman": math.nan})
    assert "other pairs" not in sentence(study)


@pytest.mark.parametrize(
    ("before", "chosen", "by"),
    [
        (50.0, "other from 50.0", "the step, and this encoder as the best of 2 (1 seed)."),
        (math.nan, "small from 80.5", "the step (1 seed)."),
    ],
)
def test_an_encoder_is_chosen_by_one_corpus_of_dev_pairs(study, before, chosen, by):
    study.finetune["other"] = study.finetune["small"]
    study.finetune["easy"] = changed(study.finetune["small"], dev="tweets")
    for row in (("small", 80.49, 87.5), ("other", before, 88.0), ("easy", 80.0, 99.0)):
        trained(*row)
    store.write_metrics("similarity", "small", {"pairs": 1000, "spearman": 99.0})
    assert chosen in sentence(study)
    assert f"which also chose {by}" in sentence(study)


def test_point_sets_stand_beside_single_vectors(study):
    for name, accuracy in (("points", 0.53), ("vector", 0.62)):
        metrics = {"zero_shot": accuracy, "zero_shot_error": 0.04, "seeds": 1}
        metrics |= {"test": 500, "classified": 62}
        store.write_metrics("evaluate_image_text", name, metrics)
    said = sentence(study)
    assert "accuracy on the 62 images of scenes (GENERATED) with exactly one label is 53 % ± 8 with" in said
    assert "53 % ± 8 with weighted point sets (points, 16-d, 1 seed)" in said
    assert "62 % ± 8 with single vectors, as in CLIP (vector, 16-d, 1 seed)" in said
    assert "62 images have exactly one label." in images.image_text_table(study)


def test_findings_come_first_and_link_to_their_tables(study):
    translated()
    inverted(9, 9, 38)
    labelled(0.3, 0.2)
    files = {name: content.decode() for name, content in written(study).items() if not name.endswith("png")}
    html, said = files["report.html"], files["findings.md"]
    assert html.index("are found at rank 1") < html.index("<h2") < html.index("<table")
    found = findings(study)
    for n, (words, _, anchor) in enumerate(found, 1):
        assert f"{n}. {words}" in " ".join(said.split())
        assert f'<h3 id="{anchor}">' in html
        assert f'href="#{anchor}"' in html
    assert [picture and picture.is_file() for _, picture, _ in found] == [None, True, True]


def test_two_attacks_of_one_name_have_a_table_each(study):
    inverted(9, 9, 38)
    labelled(0.3, 0.2, "mails")
    rows = {"attributes": {"mails": {"translator": "blind", "corpus": "mails"}}}
    found = findings(params.Study.model_validate(ROWS | rows))
    assert len({anchor for _, _, anchor in found}) == 2


def test_attacks_are_counted_among_their_kind(study):
    for name, translator in (("low", "blind"), ("sighted", "sighted"), ("known", "sighted")):
        study.attributes[name] = changed(study.attributes["topics"], translator=translator)
    for name, read in {"topics": 0.3, "low": 0.1, "sighted": 0.6, "known": 0.2}.items():
        labelled(read, 0.208, name)
    said = "This is the strongest of 2 such attacks; 1 at or below the floor by this measure."
    assert said in sentence(study)


def test_the_same_results_give_the_same_bytes(study):
    translated()
    labelled(0.3, 0.2)
    assert written(study) == written(study)


def test_a_locale_without_unicode_does_not_stop_the_report(study):
    translated()
    put("params.yaml", json.dumps(ROWS | {"about": "Wörter ±"}, ensure_ascii=False))
    code = """
from pipelines import report, study
from pipelines.runtime.track import Run
report.report("report", None, study.params.load(), Run())
"""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    completed("python", "-c", code, env=locale)
    assert "Wörter ±" in Path("report/report.html").read_text(encoding="utf-8").replace("\u00a0", " ")
