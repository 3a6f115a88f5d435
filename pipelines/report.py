"""report: every table of the study in one page, report/report.md, also printed."""

from __future__ import annotations

import polars as pl

from pipelines import params, stage, store, track

MEASURES = {"centred_cosine": "centred cosine", "top1": "top-1", "mean_rank": "mean rank", "foscttm": "FOSCTTM"}
DIGITS = {"mean_rank": 1, "foscttm": 4}


def report(name: str, row: None, study: params.Study, run: track.Run) -> None:
    """Write and print the page; keep it with the MLflow run."""
    page = (
        "\n".join([f"# {study.study}", "", study.about, "", *corpora_table(study), "", *translation_table(study)])
        + "\n"
    )
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
        "Mean over seeds ± spread (standard deviation) over seeds, or ± standard error of one seed.",
    ]
    pairs = dict.fromkeys((r.source, r.target) for r in study.evaluate.values())
    for source, target in pairs:
        corpus = study.embed[source].corpus
        names = [n for n, r in study.evaluate.items() if (r.source, r.target) == (source, target)]
        names.sort(key=lambda n: KINDS.index(kind(study, n)))
        rows = [[label(study, n), *measured(n)] for n in names if store.seeds_path(n).exists()]
        lines += ["", f"### {source} -> {target} ({origin(study.corpora[corpus])})", ""]
        lines += table(
            ["aligner", "trained on", "seeds", *MEASURES.values()],
            [[r[0], trained_on(study, n), *r[1:]] for r, n in zip(rows, names, strict=True)],
        )
    return lines


KINDS = ("unpaired", "few pairs", "naive", "oracle")


def kind(study: params.Study, name: str) -> str:
    """How much an aligner was told."""
    row = study.align[study.evaluate[name].translator]
    if row.aligner == "identity":
        return "naive"
    if hasattr(params.aligner_module(row.aligner), "fit_oracle"):
        return "oracle"
    return "few pairs" if row.pairs else "unpaired"


def label(study: params.Study, name: str) -> str:
    return f"{study.evaluate[name].translator} ({kind(study, name)})"


def trained_on(study: params.Study, name: str) -> str:
    row = study.align[study.evaluate[name].translator]
    return study.embed[row.source].corpus


def measured(name: str) -> list[str]:
    """Number of seeds, then `mean ± spread` for each measure."""
    seeds = pl.read_csv(store.seeds_path(name))
    cells = [str(len(seeds))]
    for measure in MEASURES:
        digits = DIGITS.get(measure, 3)
        spread = seeds[measure].std() if len(seeds) > 1 else seeds[f"{measure}_error"][0]
        cells.append(f"{seeds[measure].mean():.{digits}f} ± {spread:.{digits}f}")
    return cells


def table(header: list[str], rows: list[list]) -> list[str]:
    """A Markdown table with aligned columns, readable in a terminal too."""
    cells = [header, *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


if __name__ == "__main__":
    stage.main(report)
