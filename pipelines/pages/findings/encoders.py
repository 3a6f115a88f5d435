"""The findings about encoders: what two share, what training did, point sets beside single vectors."""

from __future__ import annotations

from pipelines.measures.geometry import NEIGHBOURS
from pipelines.pages.findings.finding import Finding, of_corpus, picture, several
from pipelines.pages.page import slug
from pipelines.pages.tables import percent
from pipelines.pages.tables.encoders import geometry_title, start, trained_as
from pipelines.pages.tables.images import image_text_title
from pipelines.runtime import store
from pipelines.study import params


def geometry(study: params.Study) -> Finding | None:
    """How many of a text's nearest texts two encoders share: the pair that shares most, and where there are more, that least."""
    results = store.read_metrics("geometry")
    pairs = [
        (numbers["overlap"], pair, name)
        for name in study.geometry
        for pair, numbers in results.get(name, {}).items()
        if isinstance(numbers, dict)
    ]
    if not pairs:
        return None
    share, pair, name = max(pairs)
    row, metrics = study.geometry[name], results[name]
    sentence = (
        f"Of the {NEIGHBOURS} nearest texts of a text, {pair.replace(':', ' and ')} share {percent(share)} (mean over "
        f"{metrics['texts']:,} texts of {of_corpus(study, row.corpus)}; chance {percent(metrics['chance'])})."
    )
    if len(pairs) > 1:
        least, other, where = min(pairs)
        sentence += f" Of {len(pairs)} pairs of encoders that is the most; the least is {percent(least)}, of "
        sentence += f"{other.replace(':', ' and ')} on {of_corpus(study, study.geometry[where].corpus)}."
    return Finding(
        sentence, picture("geometry", name, "shared"), slug(geometry_title(study, row, metrics["texts"]))
    )


def training(study: params.Study) -> Finding | None:
    """An encoder trained here, beside the same network before: the one best on test pairs, or where none was tested on dev."""
    results, tests = store.read_metrics("finetune"), test_scores(study)
    trained = [name for name, row in study.finetune.items() if name in results and row.steps]
    if not trained:
        return None
    name = max(
        trained, key=lambda n: (n in tests, tests[n][1] if n in tests else results[n]["dev"]["spearman"])
    )
    row, point = study.finetune[name], results[name]
    sentence = (
        f"SimCSE on {of_corpus(study, row.corpus)} takes {name} from {point['before']['spearman']:.1f} ({start(row)}) to "
        f"{point['dev']['spearman']:.1f} in agreement with the scores of sentence pairs (Spearman x 100, dev of "
        f"{of_corpus(study, row.dev)}, which chose the step; 1 seed)."
    )
    if name in tests:
        pairs, score, rivals = tests[name]
        sentence += f" On {pairs:,} other pairs it reaches {score:.1f}"
        sentence += f", {rivals[0][1]} (not trained here) {rivals[0][0]:.1f}." if rivals else "."
    return Finding(sentence, picture("finetune", name, "curve"), slug("Trained here"))


def test_scores(study: params.Study) -> dict[str, tuple[int, float, list[tuple[float, str]]]]:
    """Of encoders trained here: the number of test pairs of the corpus that chose the step, Spearman on them, and that of
    encoders not trained here on the same pairs, best first."""
    results, out = store.read_metrics("similarity"), {}
    rows = {n: row for n, row in study.similarity.items() if n in results}
    for name, row in rows.items():
        encoder = study.encoders[row.encoder]
        own_pooling = (row.pooling, encoder.pooling, encoder.layer) == (None, None, None)
        trained = trained_as(study, row.encoder)
        if trained and own_pooling and row.split != "dev" and study.finetune[trained].dev == row.corpus:
            rivals = [
                (results[n]["spearman"], r.encoder)
                for n, r in rows.items()
                if (r.corpus, r.split) == (row.corpus, row.split) and not trained_as(study, r.encoder)
            ]
            out[trained] = results[name]["pairs"], results[name]["spearman"], sorted(rivals, reverse=True)
    return out


def image_text(study: params.Study) -> Finding | None:
    """Point sets beside single vectors, of the largest dimension that both have; the first of each where they share none."""
    results = store.read_metrics("evaluate_image_text")
    rows = {n: row for n, row in study.evaluate_image_text.items() if "zero_shot" in results.get(n, {})}
    if not rows:
        return None
    corpus = next(iter(rows.values())).corpus
    rows = {n: study.train_image_text[row.encoders].head for n, row in rows.items() if row.corpus == corpus}
    first = {
        kind: {head.dim: n for n, head in reversed(rows.items()) if head.kind == kind}
        for kind in ("points", "vector")
    }
    both = first["points"].keys() & first["vector"].keys()
    chosen = [dims[max(both)] if both else next(reversed(dims.values())) for dims in first.values() if dims]
    scores = [
        f"{percent(results[n]['zero_shot'])} ± {100 * results[n]['zero_shot_error']:.0f} by "
        f"{'weighted point sets' if rows[n].kind == 'points' else 'single vectors, as in CLIP'} "
        f"({n}, {rows[n].dim}-d, {several(int(results[n]['seeds']), 'seed', 'mean of ')})"
        for n in chosen
    ]
    sentence = (
        f"Encoders of pictures and captions, trained here from nothing, name what is in a picture of {of_corpus(study, corpus)} "
        f"zero-shot for {' and '.join(scores)}; ± standard error over pictures."
    )
    anchor = slug(image_text_title(study, corpus, results[chosen[0]]["test"]))
    return Finding(sentence, picture("evaluate_image_text", next(iter(rows)), "zero-shot"), anchor)
