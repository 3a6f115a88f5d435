"""Encoders: on pairs with scores, trained here, and compared with each other."""

from __future__ import annotations

from pipelines.pages.pictures import plane
from pipelines.pages.tables import origin, pictures, table
from pipelines.runtime import store
from pipelines.study import Finetune, Geometry, Similarity, params


def similarity_table(study: params.Study) -> list[str]:
    """One block per set of pairs: every encoder measured on it, best first."""
    results, lines = store.read_metrics("similarity"), []
    rows = {name: row for name, row in study.similarity.items() if name in results}
    for corpus, split in dict.fromkeys((r.corpus, r.split) for r in rows.values()):
        names = [n for n, r in rows.items() if (r.corpus, r.split) == (corpus, split)]
        names.sort(key=lambda n: -results[n]["spearman"])
        pairs = f"{results[names[0]]['pairs']} pairs" + (f", {split}" if split else "")
        lines += ["", f"### {corpus} ({origin(study.corpora[corpus])}; {pairs})", ""]
        measured = [
            [rows[n].encoder, pooled(study, rows[n]), *numbers(results[n], SIMILARITY)] for n in names
        ]
        header, gained = ["encoder", "pooling", *SIMILARITY], [training(study, rows[n]) for n in names]
        if any(gained):
            header, measured = (
                [*header, "its training, dev"],
                [[*m, g] for m, g in zip(measured, gained, strict=True)],
            )
        lines += table(header, measured)
        if all("alignment" in results[n] for n in names):
            path = store.REPORT / "pictures" / f"{corpus}-plane.png"
            plane(
                path,
                {
                    n: (results[n]["uniformity"], results[n]["alignment"], results[n]["spearman"])
                    for n in names
                },
            )
            lines += ["", f"![{corpus}: alignment and uniformity of every encoder](pictures/{path.name})"]
    legend = [
        "Cosines of raw vectors against human scores, or those of the generator: Spearman and Pearson x 100, all pairs together,",
        "no regressor. *Alignment*: mean squared distance of pairs with a score above 4; *uniformity* (lower is more even),",
        "*mean cosine* and *effective rank* of all sentences: anisotropy. *Its training*, of what was trained here: Spearman",
        "before and after, on the dev pairs that chose the step.",
    ]
    return ["## Similarity", "", *legend, *lines] if lines else []


SIMILARITY = {
    "Spearman": 2,
    "Pearson": 2,
    "alignment": 3,
    "uniformity": 3,
    "mean cosine": 3,
    "effective rank": 1,
}
SHARED = {"cka": 3, "cka_chance": 3, "cka_calibrated": 3, "overlap": 3, "overlap_calibrated": 3}


def numbers(metrics: dict[str, float], digits: dict[str, int]) -> list[str]:
    return [f"{metrics[name.lower().replace(' ', '_')]:.{n}f}" for name, n in digits.items()]


def training(study: params.Study, row: Similarity) -> str:
    """`80.50 -> 87.50`: Spearman on dev, before and after, of an encoder that was trained here on the same corpus of pairs."""
    name = trained_as(study, row.encoder)
    point = store.read_metrics("finetune").get(name or "")
    if not name or not point or study.finetune[name].dev != row.corpus:
        return ""
    return f"{point['before']['spearman']:.2f} -> {point['dev']['spearman']:.2f}"


def trained_as(study: params.Study, encoder: str) -> str | None:
    """The row of `finetune` that makes an encoder's weights, or None."""
    return next(
        (
            name
            for name in study.finetune
            if study.encoders[encoder].path.rstrip("/") == f"data/trained/{name}"
        ),
        None,
    )


def start(row: Finetune) -> str:
    """What a training began with: `untrained`, or `before`, which is another training's end."""
    return "untrained" if row.start.endswith("scratch.py") else "before"


def pooled(study: params.Study, row: Similarity) -> str:
    return row.pooling or study.encoders[row.encoder].pooling or "its own"


def trained_table(study: params.Study) -> list[str]:
    """Every encoder trained here, as it was before and at the chosen step."""
    results = store.read_metrics("finetune")
    rows = []
    for name, row in study.finetune.items():
        for when in ("before", "dev") if name in results else ():
            point = results[name][when]
            cells = [f"{point[k]:.{n}f}" for k, n in (("spearman", 2), ("alignment", 3), ("uniformity", 3))]
            of = f"{row.corpus} ({origin(study.corpora[row.corpus])})"
            rows.append(
                [name, of, row.dev, start(row) if when == "before" else f"step {point['step']}", *cells]
            )
    legend = [
        "SimCSE. The step is chosen on the dev split of the pairs named, so these numbers flatter it: see Similarity.",
        "",
    ]
    header = ["encoder", "texts", "chosen on", "", "Spearman", "alignment", "uniformity"]
    shown = [
        line for name in results if name in study.finetune for line in pictures("finetune", name, "curve.png")
    ]
    return ["## Trained here", "", *legend, *table(header, rows), *shown] if rows else []


def geometry_table(study: params.Study) -> list[str]:
    """One block per row: every two encoders, beside how well one could be translated into the other."""
    results, evaluated, lines = store.read_metrics("geometry"), store.read_metrics("evaluate"), []
    for name, row in study.geometry.items():
        if name not in results:
            continue
        pairs = dict(results[name])
        texts, chance = pairs.pop("texts"), pairs.pop("chance")
        rows = [
            [
                pair.replace(":", " and "),
                *numbers(m, SHARED),
                *translated(study, evaluated, row.corpus, pair.split(":")),
            ]
            for pair, m in sorted(pairs.items(), key=lambda p: -p[1]["overlap"])
        ]
        lines += ["", f"### {geometry_title(study, row, texts)}", ""]
        measures = ["linear CKA", "chance", "calibrated", f"shared (chance {chance:.4f})", "calibrated"]
        lines += table(["encoders", *measures, "top-1, unpaired", "top-1, oracle"], rows)
        lines += pictures("geometry", name, "cka.png")
    legend = [
        "Who shares geometry with whom. *Shared*: the part of a text's nearest texts that are so in both spaces. *Chance*: the",
        "mean over random pairings of the texts. *Calibrated*: how far a measure goes from what 95 % of random pairings stay",
        "below (0) to 1; above 0 where it is chance with p of at most .05. Beside them, where there is one, the best top-1 of a",
        "translation between the two, in either direction, unpaired and by an oracle.",
    ]
    return ["## Geometry", "", *legend, *lines] if lines else []


def geometry_title(study: params.Study, row: Geometry, texts: int) -> str:
    return f"{row.corpus} ({origin(study.corpora[row.corpus])}; {texts} texts)"


def translated(study: params.Study, evaluated: dict[str, dict], corpus: str, pair: list[str]) -> list[str]:
    """Best top-1 on a corpus between two encoders: unpaired, oracle."""
    best, spaces = {"unpaired": "", "oracle": ""}, study.spaces()
    for name, row in study.evaluate.items():
        sides = [spaces[s] for s in (row.source, row.target)]
        if name in evaluated and {s.encoder for s in sides} == set(pair) and sides[0].corpus == corpus:
            supervision = study.translators()[row.translator].supervision
            best[supervision] = max(best.get(supervision, ""), f"{evaluated[name]['top1']:.3f}")
    return [best["unpaired"], best["oracle"]]
