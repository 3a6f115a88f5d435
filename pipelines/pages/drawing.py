"""Draw the pictures of a study, but those of `tables/sizes.py`, from what its stages left in results/.

A row's picture is report/pictures/<verb>.<row>.<picture>.png.
Stages write tables only, so a changed legend redraws pictures and reruns no training (docs/decisions/0012).
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.measures.geometry import NEIGHBOURS
from pipelines.measures.intervals import Interval, share
from pipelines.pages import pictures
from pipelines.pages.tables import by_keys, measured
from pipelines.runtime import store
from pipelines.study import Attributes, Invert
from pipelines.study.params import Study

FOLDER = store.REPORT / "pictures"


def draw(study: Study) -> None:
    """Draw all that has a table with rows in it, or metrics."""
    for path_of, _, frame in tables(study, "finetune", "curve.csv"):
        pictures.curves(path_of("curve"), frame)
        pictures.plane(path_of("steps"), frame, "step")
    for path_of, row, frame in tables(study, "similarity", "layers.csv"):
        title = f"cosine of a token's vectors in two layers of {row.encoder}"  # SBERT-WK, section III
        pictures.similarity_map(path_of("layers"), frame.columns, frame.to_numpy(), title)
    for path_of, row, frame in tables(study, "evaluate", "spaces.csv"):
        pictures.spaces(path_of("spaces"), frame, *encoders(study, row))
    for path_of, row, frame in tables(study, "geometry", "pairs.csv"):
        title = f"shared among {NEIGHBOURS} nearest, on {row.corpus}"
        neighbours(path_of("neighbours"), frame, title)
    for path_of, row, frame in tables(study, "evaluate_image_text", "pmi.csv"):
        pictures.similarity_against_pmi(path_of("pmi"), frame, f"{row.encoders} on {row.corpus}")
    for verb, draw_floor in (("attributes", labels), ("invert", facts)):
        for name, (row, metrics) in measured(study, verb).items():
            draw_floor(picture_path(verb, name, "floor"), metrics, row, *encoders(study, row))
    planes(study)
    zero_shot(study)


def tables(study: Study, verb: str, table: str) -> Iterator[tuple[Callable[[str], Path], Any, pl.DataFrame]]:
    """Yield (path of a picture by its name, row, table) of each row whose stage left the table with rows."""
    for name, row in getattr(study, verb).items():
        source = store.tables_path(verb, name) / table
        if source.is_file() and len(frame := store.read_csv(source)):
            yield partial(picture_path, verb, name), row, frame


def picture_path(verb: str, name: str, picture: str) -> Path:
    """Return where a row's picture is drawn. Row names have no dot."""
    return FOLDER / f"{verb}.{name}.{picture}.png"


def drawn(verb: str, name: str, *kinds: str) -> list[str]:
    """Return lines of Markdown that show those pictures of a row that were drawn."""
    lines = []
    for kind in kinds:
        path = picture_path(verb, name, kind)
        if path.exists():
            lines += ["", f"![{verb} {name}: {kind}](pictures/{path.name})"]
    return lines


def encoders(study: Study, row: Any) -> tuple[str, str]:
    """Return the encoders of a row's source and target."""
    spaces = study.spaces()
    return spaces[row.source].encoder, spaces[row.target].encoder


def neighbours(path: Path, frame: pl.DataFrame, title: str) -> None:
    """Draw the symmetric matrix of shared neighbours, whose diagonal is 1."""
    names = list(dict.fromkeys([*frame["first"], *frame["second"]]))
    values = np.eye(len(names))
    for first, second, value in frame.select("first", "second", "overlap").iter_rows():
        i, j = names.index(first), names.index(second)
        values[i, j] = values[j, i] = value
    pictures.similarity_map(path, names, values, title)


def labels(path: Path, metrics: dict[str, Any], row: Attributes, source: str, target: str) -> None:
    """Draw top-k for the first k and wording: the attack between its floor and its ceiling."""
    names = {
        "majority": "floor: the commonest labels",
        "naive": f"{source}, untranslated",
        "translated": f"{source}, translated to {target}",
        "ideal target": f"true {target} (ORACLE)",
    }
    scores, k = metrics[row.wordings[0]], row.k[0]
    n, documents = metrics["examples"], metrics["documents"]
    top, error = f"top{k}", f"top{k}_error"
    by_text = {m: share(scores[m][top] * n, n) for m in names}
    shares = {m: one.widened(scores[m][error], documents).within(0, 1) for m, one in by_text.items()}
    first = "first" if k == 1 else f"among the first {k}"
    attack(path, names, shares, f"texts of {row.corpus} with a right label {first}")


def facts(path: Path, metrics: dict[str, Any], row: Invert, source: str, target: str) -> None:
    """Draw private facts that correction recovers: the attack between its floor and its ceiling."""
    names = {
        "mismatched": "floor: vectors of other texts",
        "translated": f"{source}, translated to {target}",
        "ceiling": f"true {target} (ORACLE)",
    }
    counts = {method: metrics[method]["corrected"]["facts"]["all"] for method in names}
    if counts["translated"]["recoverable"]:
        shares = {method: share(count["recovered"], count["recoverable"]) for method, count in counts.items()}
        attack(path, names, shares, f"private facts of {row.corpus} that are recovered")


def attack(path: Path, names: dict[str, str], shares: dict[str, Interval], title: str) -> None:
    """Draw translated vectors in colour, and floors and ceilings in grey."""
    grey = tuple(name for method, name in names.items() if method != "translated")
    pictures.bars(path, {names[method]: value for method, value in shares.items()}, title, grey)


def planes(study: Study) -> None:
    """Draw all encoders that were measured on the same pairs, once: for the first of their rows."""
    for every in by_keys(study, "similarity", "corpus", "split").values():
        rows = [
            (name, m["uniformity"], m["alignment"], m["spearman"])
            for name, (_, m) in every.items()
            if math.isfinite(m["alignment"])
        ]
        if rows:
            columns = ["name", "uniformity", "alignment", "Spearman x 100"]
            points = pl.DataFrame(rows, schema=columns, orient="row")
            pictures.plane(picture_path("similarity", rows[0][0], "plane"), points, columns[-1])


def zero_shot(study: Study) -> None:
    """Draw all encoders that were measured on a corpus, once: for the corpus's first row."""
    for corpus, every in by_keys(study, "evaluate_image_text", "corpus").items():
        shares = {
            name: Interval.student(m["zero_shot"], m["zero_shot_error"], m["classified"]).within(0, 1)
            for name, (_, m) in every.items()
            if "zero_shot" in m
        }
        if shares:
            heads = {name: study.train_image_text[every[name][0].encoders].head for name in shares}
            path = picture_path("evaluate_image_text", next(iter(shares)), "zero-shot")
            title = f"{corpus}, zero-shot accuracy (grey: one vector, as CLIP)"
            pictures.bars(path, shares, title, [n for n, head in heads.items() if head.kind == "vector"])
