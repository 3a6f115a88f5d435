"""What the report says first: sentences from hand-made results, with their numbers, floors, verdicts and oracles."""

import polars as pl
import pytest

from pipelines import report
from pipelines.pages.findings import findings
from pipelines.pages.findings.translation import judgement
from pipelines.pages.page import slug
from pipelines.pages.tables.leakage import inversion_table
from pipelines.runtime import intact, store
from pipelines.study import params

ROWS = {
    "study": "t",
    "about": "a_b, small",
    "corpora": {
        "mails": {"source": "path", "path": "x", "kind": "emails", "private": False},
        "tweets": {"source": "synthetic", "path": "x"},
        "sts": {"source": "synthetic", "path": "x"},
        "scenes": {"source": "synthetic", "path": "x"},
    },
    "encoders": {n: {"source": "wheel", "path": "x"} for n in ("one", "two")}
    | {"small": {"source": "path", "path": "data/trained/small"}},
    "finetune": {"small": {"corpus": "mails", "dev": "sts", "start": "pipelines/contrastive/scratch.py", "steps": 9}},
    "similarity": {n: {"encoder": n, "corpus": "sts"} for n in ("small", "one")},
    "embed": {f"{c}-{e}": {"corpus": c, "encoder": e} for c in ("mails", "tweets") for e in ("one", "two")},
    "geometry": {"mails": {"corpus": "mails"}},
    "align": {
        "blind": {"source": "mails-one", "target": "mails-two", "aligner": "wasserstein_procrustes", "seeds": [0, 1]},
        "sighted": {"source": "mails-one", "target": "mails-two", "aligner": "procrustes"},
        "nothing": {"source": "mails-one", "target": "mails-two", "aligner": "identity"},
        "rival": {"source": "tweets-one", "target": "tweets-two", "aligner": "mini_vec2vec"},
    },
    "evaluate": {
        **{n: {"translator": n, "source": "mails-one", "target": "mails-two"} for n in ("blind", "sighted", "nothing")},
        "rival": {"translator": "rival", "source": "tweets-one", "target": "tweets-two"},
    },
    "attributes": {
        "topics": {
            "translator": "blind", "corpus": "tweets", "source": "tweets-one", "target": "tweets-two",
            "source_encoder": "one", "target_encoder": "two",
        },
    },
    "inverters": {"i": {"space": "tweets-two", "corpus": "tweets", "encoder": "two"}},
    "invert": {
        "mails": {
            "translator": "blind", "corpus": "mails", "source": "mails-one", "target": "mails-two", "encoder": "two",
            "inverter": "i",
        },
    },
    "train_image_text": {n: {"corpus": "scenes", "head": {"kind": n, "dim": 16}} for n in ("points", "vector")},
    "evaluate_image_text": {n: {"encoders": n, "corpus": "scenes"} for n in ("points", "vector")},
}  # fmt: skip


@pytest.fixture
def study(tmp_path, monkeypatch):
    """No results yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(intact, "took", lambda _: {})
    return params.Study.model_validate(ROWS)


def translated(shares, words):
    """Results of evaluate and align: rank-1 shares of the seeds of `blind`, its verdicts, an oracle and a naive row."""
    for name, top1 in {"blind": shares, "sighted": [0.973], "nothing": [0.0002]}.items():
        seeds = pl.DataFrame({"seed": range(len(top1)), "top1": top1, "top1_error": 0.0}, strict=False)
        measures = {"centred_cosine": 0.5, "mean_rank": 1.5, "foscttm": 0.1}
        errors = dict.fromkeys([f"{m}_error" for m in measures], 0.0)
        store.write_csv(
            store.seeds_path(name),
            seeds.with_columns(**{k: pl.lit(v) for k, v in (measures | errors).items()}),
        )
        metrics = measures | {"top1": sum(top1) / len(top1), "pairs": 4096, "seeds": len(top1)}
        store.write_metrics("evaluate", name, metrics)
        store.write_metrics("align", name, {"seeds": len(top1)})
    by_seed = {str(seed): {"label": word, "score": 0.5} for seed, word in enumerate(words)}
    verdict = {"verdict": 0.5, "aligned": words.count("aligned") / len(words), "by seed": by_seed}
    store.write_metrics("align", "blind", {"seeds": len(words)} | verdict)


def inverted(read, floor, ceiling, of=272):
    def scores(count):
        facts = {kind: {"recovered": count, "recoverable": of} for kind in ("names", "all")}
        means = dict.fromkeys(("token_f1", "set_f1", "bleu", "rouge_l", "cosine"), 0.2)
        return {"corrected": means | {"facts": facts, "stated": 1.0, "queries": 9.0}}

    attacks = {"translated": scores(read), "ceiling": scores(ceiling), "mismatched": scores(floor)}
    store.write_metrics("invert", "mails", {"texts": 60, "known": 100} | attacks)
    store.write_csv(
        store.examples_path("mails"),
        pl.DataFrame(
            {
                "text": ["Ann Lee paid"],
                "guess": ["ann lee came"],
                "facts": ["names: Ann Lee"],
                "token_f1": [0.6],
            }
        ),
    )


def labelled(read, floor):
    methods = {
        "translated": read,
        "naive": 0.1,
        "ideal source": 0.8,
        "ideal target": 0.724,
        "majority": floor,
        "chance": 0.05,
    }
    measures = ("top1", "top5", "precision5", "recall5", "mean_rank", "mean_rank_all")
    scores = {method: dict.fromkeys(measures, share) for method, share in methods.items()}
    store.write_metrics("attributes", "topics", {"name": scores, "examples": 2000, "labels": 19, "seeds": 2})


def sentence(study):
    (finding,) = findings(study)
    return finding.sentence


def test_a_study_without_results_has_no_findings_and_its_page_is_there_all_the_same(study):
    assert findings(study) == []
    report.report("report", None, study, Quiet())  # pyright: ignore[reportArgumentType]
    assert store.REPORT.joinpath("findings.md").read_text().splitlines()[0] == "# t: what was found"


class Quiet:
    def artifact(self, *_): ...


def test_the_best_unpaired_translator_stands_beside_its_oracle_and_the_untranslated_vectors(study):
    translated([0.9, 0.92], ["aligned", "aligned"])
    said = sentence(study)
    assert (
        "Of 4,096 texts of mails (the user's own), never seen by the aligner, 91 % are found again at rank 1 among all"
        in said
    )
    assert "their one vectors are translated to two without a single pair (blind, mean of 2 seeds)" in said
    assert "With pairs, sighted reaches 97 % (ORACLE); untranslated vectors reach 0.0 %." in said
    assert said.endswith("The verdict, which sees no pair, says: 2 of 2 seeds aligned.")


def test_a_failed_verdict_is_said_first(study):
    translated([0.01, 0.02], ["failed", "failed"])
    said = sentence(study)
    assert said.startswith("No unpaired translator is judged aligned. Of 4,096 texts")
    assert said.endswith("0 of 2 seeds aligned, 2 failed.")


def test_a_judged_translator_comes_before_a_better_one_that_failed_and_texts_of_people_before_generated_ones(
    study,
):
    translated([0.5, 0.5], ["aligned", "aligned"])
    store.write_metrics("evaluate", "rival", {"top1": 0.8, "pairs": 4096, "seeds": 1})
    store.write_csv(store.seeds_path("rival"), pl.DataFrame({"seed": [0], "top1": [0.8]}))
    for word, all_seeds in (
        ("failed", "2 of 3 seeds aligned, 1 failed"),
        ("aligned", "3 of 3 seeds aligned"),
    ):
        store.write_metrics("align", "rival", {"seeds": 1, "verdict": 0.1, "by seed": {"0": {"label": word}}})
        said = sentence(study)
        assert "(blind, mean of 2 seeds)" in said
        assert f"All 2 unpaired translators of the study: {all_seeds}" in said
    assert "those aligned find 50 % to 80 % at rank 1" in said


def test_of_vectors_without_texts_the_verdict_is_said_and_how_many_would_be_enough(study):
    study = study.model_copy(update={"evaluate": {}})
    store.write_metrics("collect", "mails", {"rows": 1500, "test": 0, "words": 0, "labels": 0})
    seed = {"score": 0.5, "agreement": 0.25}
    for word, words, more in (("failed", "0 of 2 seeds aligned, 2 failed.", "1,500 of mails; a fit that sees 10,000 on either"),
                              ("aligned", "2 of 2 seeds aligned.", "can read them: an audit says how much")):  # fmt: skip
        by_seed = {str(n): seed | {"label": word} for n in range(2)}
        aligned = float(word == "aligned")
        store.write_metrics(
            "align", "blind", {"seeds": 2, "verdict": 0.5, "aligned": aligned, "by seed": by_seed}
        )
        said = sentence(study)
        assert said.startswith(
            "Vectors of mails (the user's own) were translated to two without a single pair (blind)"
        )
        assert f"says: {words}" in said
        assert more in said
    report.report("report", None, study, Quiet())  # pyright: ignore[reportArgumentType]
    assert (
        "| blind (unpaired) | mails-one | mails-two | 1500" in store.REPORT.joinpath("report.md").read_text()
    )


def test_where_a_map_of_the_vectors_is_measured_no_verdict_stands_for_it(study):
    by_seed = {"0": {"score": 1.0, "agreement": 0.9, "label": "aligned"}}
    store.write_metrics("align", "blind", {"seeds": 1, "verdict": 1.0, "aligned": 1.0, "by seed": by_seed})
    assert judgement(study.model_copy(update={"evaluate": {"rival": study.evaluate["rival"]}}))
    assert not judgement(study.model_copy(update={"evaluate": {"sighted": study.evaluate["sighted"]}}))


def test_vectors_that_the_aligner_saw_are_not_called_unseen(study):
    translated([0.9, 0.92], ["aligned", "aligned"])
    row = study.evaluate["blind"].model_copy(update={"split": "train"})
    seen = study.model_copy(update={"evaluate": study.evaluate | {"blind": row}})
    assert "never seen" not in sentence(seen)


def test_facts_that_vectors_of_other_texts_leak_too_are_no_leak_and_none_is_named(study):
    inverted(9, 9, 38)
    said = sentence(study)
    assert "Of 272 private facts in 60 texts of mails (the user's own), 9 come back" in said
    assert (
        "9 from the vectors of other texts (the floor): at floor level, +0.0 points (95 % interval -3.3 to +3.3)"
        in said
    )
    assert "From true two vectors 38 come back (ORACLE)" in said
    page = "\n".join(inversion_table(study))
    assert "names: Ann Lee" not in page
    assert "of the ceiling" not in page


def test_facts_above_the_floor_are_a_leak_and_are_named(study):
    inverted(38, 9, 60)
    assert "(the floor): +10.7 points (95 % interval +6.0 to +15.5)" in sentence(study)
    assert "names: Ann Lee" in "\n".join(inversion_table(study))


def test_a_row_without_facts_says_nothing_of_them(study):
    inverted(0, 0, 0, of=0)
    assert findings(study) == []
    assert "9" in "\n".join(inversion_table(study))


def test_labels_stand_above_what_the_commonest_reach(study):
    labelled(0.29925, 0.208)
    said = sentence(study)
    assert "Of 2,000 texts of tweets (GENERATED)" in said
    assert "(blind, unpaired, fitted on mails) name a right one of 19 labels first for 30 %" in said
    assert (
        "right for 21 % (the floor): +9.1 points (95 % interval +6.4 to +11.8). True two vectors reach 72 % (ORACLE)"
        in said
    )
    labelled(0.07, 0.067)
    assert "(the floor): at floor level, +0.3 points" in sentence(study)


def test_a_leak_by_a_translator_that_failed_says_so(study):
    labelled(0.3, 0.2)
    verdict = {"seeds": 1, "by seed": {"0": {"label": "failed"}}}
    store.write_metrics("align", "blind", verdict)
    assert "judged 0 of 1 seed aligned, 1 failed" in sentence(study)


def test_encoders_that_share_neighbours_stand_beside_chance(study):
    store.write_metrics(
        "geometry", "mails", {"texts": 4096, "chance": 0.0024, "one:two": {"cka": 0.5, "overlap": 0.271}}
    )
    assert "Of the 10 nearest texts of a text, one and two share 27 %" in sentence(study)
    assert "chance 0.2 %" in sentence(study)


def test_a_trained_encoder_stands_beside_its_untrained_self(study):
    points = {"before": {"spearman": 80.49}, "dev": {"spearman": 87.5}}
    store.write_metrics("finetune", "small", points)
    assert "takes small from 80.5 (untrained) to 87.5" in sentence(study)
    for name, spearman in (("small", 84.84), ("one", 96.52)):
        store.write_metrics("similarity", name, {"pairs": 1000, "spearman": spearman})
    assert "On 1,000 other pairs it reaches 84.8, one (not trained here) 96.5." in sentence(study)


def test_point_sets_stand_beside_single_vectors(study):
    for name, share in (("points", 0.53), ("vector", 0.62)):
        store.write_metrics(
            "evaluate_image_text",
            name,
            {"zero_shot": share, "zero_shot_error": 0.04, "test": 500, "seeds": 1},
        )
    said = sentence(study)
    assert "53 % ± 4 by weighted point sets (points, 16-d, 1 seed)" in said
    assert "62 % ± 4 by single vectors, as in CLIP (vector, 16-d, 1 seed)" in said
    assert "scenes (GENERATED)" in said


def test_the_page_begins_with_the_findings_and_every_one_leads_to_its_table(study):
    translated([0.9, 0.92], ["aligned", "aligned"])
    inverted(9, 9, 38)
    labelled(0.3, 0.2)
    report.report("report", None, study, Quiet())  # pyright: ignore[reportArgumentType]
    html, markdown, said = (
        store.REPORT.joinpath(f).read_text() for f in ("report.html", "report.md", "findings.md")
    )
    assert html.index("are found again at rank 1") < html.index("<h2") < html.index("<table")
    found = findings(study)
    headings = {slug(line.lstrip("# ")) for line in markdown.splitlines() if line.startswith("#")}
    assert len(found) == 3
    for n, (words, picture, anchor) in enumerate(found, 1):
        assert f"{n}. {words}" in " ".join(said.split())
        assert anchor in headings
        assert f'<h3 id="{anchor}">' in html
        assert f'href="#{anchor}"' in html
        assert picture is None or picture.is_file()
    assert [bool(finding.picture) for finding in found] == [
        False,
        True,
        True,
    ]  # no table of points was left to draw spaces from
    assert said.endswith("The page: report/report.html and report.md\n")


def test_the_same_results_give_the_same_bytes_and_what_a_run_took_stands_apart(study, monkeypatch):
    translated([0.9, 0.92], ["aligned", "aligned"])
    labelled(0.3, 0.2)

    def written():
        report.report("report", None, study, Quiet())  # pyright: ignore[reportArgumentType]
        return {path: path.read_bytes() for path in store.REPORT.rglob("*") if path.is_file()}

    before = written()
    monkeypatch.setattr(intact, "took", lambda _: {"align@t": (12.5, "cuda:1")})
    after = written()
    assert [path.name for path in after if after[path] != before[path]] == ["stages.md"]
    assert b"| `dvc repro -s align@t` | 12.5    | cuda:1 |" in after[store.REPORT / "stages.md"]
