"""report: every table of the study in one page, report/report.md, also printed."""

from __future__ import annotations

import polars as pl

from pipelines import params, stage, store, track

MEASURES = {"centred_cosine": "centred cosine", "top1": "top-1", "mean_rank": "mean rank", "foscttm": "FOSCTTM"}
DIGITS = {"mean_rank": 1, "foscttm": 4}


def report(name: str, row: None, study: params.Study, run: track.Run) -> None:
    """Write and print the page; keep it with the MLflow run."""
    tables = (
        corpora_table, translation_table, similarity_table, trained_table, geometry_table, attributes_table, inversion_table,
    )  # fmt: skip
    page = "\n".join([f"# {study.study}", "", study.about, *(line for t in tables for line in ["", *t(study)])]) + "\n"
    path = store.REPORT / "report.md"
    with store.atomic(path) as draft:
        draft.write_text(page)
    run.artifact(path)
    print(page)


def origin(row: params.AnyCorpus) -> str:
    """What a corpus's texts are, said wherever a number of theirs is shown."""
    words = {
        "library": "real: docstrings of the installed dependencies",
        "sample": "GENERATED",
        "hub": "real: the hub",
        "path": "the user's own",
        "vectors": "vectors without text",
    }
    return words[row.source]


def corpora_table(study: params.Study) -> list[str]:
    """One line per corpus."""
    metrics = store.read_metrics("collect")
    rows = [
        [name, origin(row), m["rows"], m["test"], f"{m['words']:.0f}", m["labels"]]
        for name, row in study.corpora.items()
        if (m := metrics.get(name))
    ]
    return ["## Corpora", "", *table(["corpus", "texts", "rows", "held out", "words per text", "labels"], rows)]


def translation_table(study: params.Study) -> list[str]:
    """One block per pair of embeddings measured on: every translator, unpaired first, then identity and the oracles."""
    lines = [
        "## Translation",
        "",
        "Mean over seeds ± spread (standard deviation) over seeds, or ± standard error of one seed. The verdict comes from",
        "unpaired vectors alone: how many seeds are `aligned`, and the mean score; all else from true pairs, afterwards.",
    ]
    pairs = dict.fromkeys((r.source, r.target) for r in study.evaluate.values())
    for source, target in pairs:
        corpus = study.embed[source].corpus
        names = [n for n, r in study.evaluate.items() if (r.source, r.target) == (source, target)]
        names.sort(key=lambda n: KINDS.index(study.align[study.evaluate[n].translator].told))
        rows = [[label(study, n), *measured(n)] for n in names if store.seeds_path(n).exists()]
        lines += ["", f"### {source} -> {target} ({origin(study.corpora[corpus])})", ""]
        lines += table(
            ["aligner", "trained on", "verdict", "seeds", *MEASURES.values()],
            [[r[0], trained_on(study, n), verdict(study, n), *r[1:]] for r, n in zip(rows, names, strict=True)],
        )
    return lines


KINDS = ("unpaired", "few pairs", "naive", "oracle")


def label(study: params.Study, name: str) -> str:
    translator = study.evaluate[name].translator
    return f"{translator} ({study.align[translator].told})"


def trained_on(study: params.Study, name: str) -> str:
    row = study.align[study.evaluate[name].translator]
    return study.embed[row.source].corpus


def verdict(study: params.Study, name: str) -> str:
    """`4/5 aligned, 0.97`: of the seeds of the translator."""
    found = store.read_metrics("align")[study.evaluate[name].translator]
    if "verdict" not in found:
        return ""
    return f"{found['aligned'] * found['seeds']:.0f}/{found['seeds']} aligned, {found['verdict']:.2f}"


def measured(name: str) -> list[str]:
    """Number of seeds, then `mean ± spread` for each measure."""
    seeds = pl.read_csv(store.seeds_path(name))
    cells = [str(len(seeds))]
    for measure in MEASURES:
        digits = DIGITS.get(measure, 3)
        spread = seeds[measure].std() if len(seeds) > 1 else seeds[f"{measure}_error"][0]
        cells.append(f"{seeds[measure].mean():.{digits}f} ± {spread:.{digits}f}")
    return cells


# ---------------------------------------------------------------- encoders


def similarity_table(study: params.Study) -> list[str]:
    """One block per set of pairs: every encoder measured on it, best first."""
    found, lines = store.read_metrics("similarity"), []
    rows = {name: row for name, row in study.similarity.items() if name in found}
    for corpus, split in dict.fromkeys((r.corpus, r.split) for r in rows.values()):
        names = [n for n, r in rows.items() if (r.corpus, r.split) == (corpus, split)]
        names.sort(key=lambda n: -found[n]["spearman"])
        pairs = f"{found[names[0]]['pairs']} pairs" + (f", {split}" if split else "")
        lines += ["", f"### {corpus} ({origin(study.corpora[corpus])}; {pairs})", ""]
        measured = [[rows[n].encoder, pooled(study, rows[n]), *numbers(found[n], SIMILARITY)] for n in names]
        lines += table(["encoder", "pooling", *SIMILARITY], measured)
    legend = [
        "Cosines of raw vectors against human scores, or those of the generator: Spearman and Pearson x 100, all pairs together,",
        "no regressor. *Alignment*: mean squared distance of pairs with a score above 4; *uniformity* (lower is more even),",
        "*mean cosine* and *effective rank* of all sentences: anisotropy.",
    ]
    return ["## Similarity", "", *legend, *lines] if lines else []


SIMILARITY = {"Spearman": 2, "Pearson": 2, "alignment": 3, "uniformity": 3, "mean cosine": 3, "effective rank": 1}
SHARED = {"cka": 3, "overlap": 3}


def numbers(metrics: dict[str, float], digits: dict[str, int]) -> list[str]:
    return [f"{metrics[name.lower().replace(' ', '_')]:.{n}f}" for name, n in digits.items()]


def pooled(study: params.Study, row: params.Similarity) -> str:
    return row.pooling or study.encoders[row.encoder].pooling or "its own"


def trained_table(study: params.Study) -> list[str]:
    """Every encoder trained here, as it was before and at the chosen step."""
    found = store.read_metrics("finetune")
    rows = []
    for name, row in study.finetune.items():
        for when in ("before", "dev") if name in found else ():
            point = found[name][when]
            cells = [f"{point[k]:.{n}f}" for k, n in (("spearman", 2), ("alignment", 3), ("uniformity", 3))]
            of = f"{row.corpus} ({origin(study.corpora[row.corpus])})"
            rows.append([name, of, row.dev, "untrained" if when == "before" else f"step {point['step']}", *cells])
    legend = ["SimCSE. The step is chosen on the dev split of the pairs named, so these numbers flatter it: see Similarity.", ""]
    header = ["encoder", "texts", "chosen on", "", "Spearman", "alignment", "uniformity"]
    return ["## Trained here", "", *legend, *table(header, rows)] if rows else []


def geometry_table(study: params.Study) -> list[str]:
    """One block per row: every two encoders, beside how well one could be translated into the other."""
    found, lines = store.read_metrics("geometry"), []
    for name, row in study.geometry.items():
        if name not in found:
            continue
        own = dict(found[name])
        texts, chance = own.pop("texts"), own.pop("chance")
        rows = [
            [pair.replace(":", " and "), *numbers(m, SHARED), *translated(study, row.corpus, pair.split(":"))]
            for pair, m in sorted(own.items(), key=lambda p: -p[1]["overlap"])
        ]
        lines += ["", f"### {row.corpus} ({origin(study.corpora[row.corpus])}; {texts} texts)", ""]
        lines += table(["encoders", "linear CKA", f"shared (chance {chance:.4f})", "top-1, unpaired", "top-1, oracle"], rows)
    legend = [
        "Who shares geometry with whom. *Shared*: the part of a text's nearest texts that are so in both spaces. Beside it,",
        "where there is one, the best top-1 of a translation between the two, in either direction, unpaired and by an oracle.",
    ]
    return ["## Geometry", "", *legend, *lines] if lines else []


def translated(study: params.Study, corpus: str, pair: list[str]) -> list[str]:
    """Best top-1 on a corpus between two encoders: unpaired, oracle."""
    found, best = store.read_metrics("evaluate"), {"unpaired": "", "oracle": ""}
    for name, row in study.evaluate.items():
        sides = [study.spaces()[s] for s in (row.source, row.target)]
        if name in found and {s.encoder for s in sides} == set(pair) and sides[0].corpus == corpus:
            told = study.align[row.translator].told
            best[told] = max(best.get(told, ""), f"{found[name]['top1']:.3f}")
    return [best["unpaired"], best["oracle"]]


# ---------------------------------------------------------------- leakage

VECTORS = {"ideal source": "ideal source (oracle)", "ideal target": "ideal target (oracle)", "ceiling": "ceiling (oracle)"}
VECTORS |= {"mismatched": "mismatched (floor)", "prior": "no vector (floor)"}
TEXT = {"token_f1": "token F1", "bleu": "BLEU", "rouge_l": "ROUGE-L", "cosine": "cosine"}


def attack_title(study: params.Study, name: str, row: params.Attributes | params.Invert) -> str:
    by = f"{row.translator} ({study.align[row.translator].told})"
    return f"### {name}: {row.source} -> {row.target} by {by} ({origin(study.corpora[row.corpus])})"


def attributes_table(study: params.Study) -> list[str]:
    """One block per row: what the nearest labels say, for each wording of the labels."""
    found, lines = store.read_metrics("attributes"), []
    for name, row in study.attributes.items():
        if not (metrics := found.get(name)):
            continue
        k = row.k[-1]
        measures = {f"top{n}": f"top-{n}" for n in row.k} | {f"precision{k}": f"precision@{k}", f"recall{k}": f"recall@{k}"}
        measures["mean_rank"] = "mean rank"
        rows = [
            [wording, VECTORS.get(method, method), *(with_error(own, m) for m in measures)]
            for wording in row.wordings
            for method, own in metrics[wording].items()
        ]
        lines += ["", attack_title(study, name, row), "", f"{metrics['examples']} texts, {metrics['labels']} labels.", ""]
        lines += table(["labels as", "vectors", *measures.values()], rows)
    legend = [
        "Zero-shot: the labels whose own vectors lie nearest. *Ideal* reads vectors that no attacker has; *naive* reads the",
        "untranslated ones; *majority* knows only which labels are common. Mean ± standard error over texts, of translated",
        "vectors averaged over seeds.",
    ]
    return ["## Attributes", "", *legend, *lines] if lines else []


def inversion_table(study: params.Study) -> list[str]:
    """One block per row: every attack by every method, then the facts that correction leaks, by kind."""
    found, lines = store.read_metrics("invert"), []
    for name, row in study.invert.items():
        if not (metrics := found.get(name)):
            continue
        attacks = {a: metrics[a] for a in ("translated", "ceiling", "mismatched", "prior") if a in metrics}
        rows = [
            [VECTORS.get(a, a), method, *(with_error(own, m) for m in TEXT), leaked(own["facts"]["all"]), f"{own['queries']:.0f}"]
            for a, methods in attacks.items()
            for method, own in methods.items()
        ]
        about = f"{metrics['texts']} texts; the inverter was learnt from {metrics['known']} others."
        share = ", ".join(f"{k.replace('_', ' ')} {v:.0%}" for k, v in metrics["of_ceiling"].items())
        lines += ["", attack_title(study, name, row), "", f"{about} Translated and corrected, of the ceiling: {share}.", ""]
        lines += table(["vectors", "method", *TEXT.values(), "facts leaked", "queries a text"], rows)
        corrected = {VECTORS.get(a, a): own["corrected"]["facts"] for a, own in attacks.items() if "corrected" in own}
        kinds = next(iter(corrected.values()))
        lines += ["", *table(["facts leaked", *corrected], [[k, *(leaked(f[k]) for f in corrected.values())] for k in kinds])]
    legend = [
        "Texts written from vectors alone. The *ceiling* inverts true target vectors; what the *floors* leak too (the vector of",
        "another text, no vector at all) is no leak. *Retrieved*: the nearest of the attacker's own texts; *corrected* begins",
        "with it and with what was generated. Mean ± standard error over texts; facts: recovered/recoverable.",
    ]
    return ["## Inversion", "", *legend, *lines] if lines else []


def with_error(own: dict[str, float], measure: str) -> str:
    digits = DIGITS.get(measure, 3)
    return f"{own[measure]:.{digits}f} ± {own[f'{measure}_error']:.{digits}f}"


def leaked(count: dict[str, int]) -> str:
    return f"{count['recovered']}/{count['recoverable']}"


def table(header: list[str], rows: list[list]) -> list[str]:
    """A Markdown table with aligned columns, readable in a terminal too."""
    cells = [header, *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


if __name__ == "__main__":
    stage.main(report)
