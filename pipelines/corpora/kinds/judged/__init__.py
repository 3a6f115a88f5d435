"""judged: documents, queries, and which documents answer a query, in the layout of BEIR (Thakur et al. 2021).

A folder with `corpus` (id or _id, title, text), `queries` (id or _id, text) and qrels/<split>.tsv: query,
document, grade. Tables are read in every format of a `path` row. Instead of qrels, the queries may have the
columns `split` and `relevant`, the ids of the documents that answer them. A table of another name than
`queries` is taken if it is the only one beside `corpus`.
"""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.corpora.core import texts
from pipelines.corpora.core.files import located, number
from pipelines.runtime.errors import BadInput, listed
from pipelines.study import PathCorpus

SOURCES = ("path",)


def rows(p: PathCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, split, judgements: first the documents, of split "train", then the queries.

    A document's text is its title and its text, joined by a space, as BEIR embeds it. A query's split is
    `queries <its own>`, and its id has that split before it. `judgements` is JSON: {document: grade} of a
    query, null of a document. Queries that nobody judged are left out. Raises BadInput.
    """
    folder = located(p.path)
    if p.rows or p.chunk or p.test or p.columns:
        raise BadInput(f"{folder}: judgements are of whole documents: no `rows`, `chunk`, `test`, `columns`")
    files = {file.stem: file for file in sorted(folder.glob("*")) if file.suffix.lower() in source.TABLES}
    if "corpus" not in files:
        raise BadInput(f"{folder}: there is no table `corpus` in it; there are: {listed(files)}")
    documents = _documents(files.pop("corpus"), source)
    if "queries" not in files and len(files) != 1:
        raise BadInput(f"{folder}: which table has the queries? There is none of the name `queries`")
    file = files.get("queries") or next(iter(files.values()))
    queries = _mapped(file, source).select("text", query="id")
    judged = _judgements(file, source)
    if unknown := len(judged.join(queries, "query", "anti")):
        print(f"{file}: {unknown} judged queries are not in it and are left out")
    queries = queries.join(judged, "query", maintain_order="left")
    if queries.is_empty():
        raise BadInput(f"{file}: no query of it has a judgement")
    return pl.concat([documents, queries.select(documents.columns)])


def _mapped(file: Path, source: Any, *columns: str) -> pl.DataFrame:
    """Return id, text and other `columns` of a table, as far as it has them."""
    table = source.read(file)
    wanted = {name: name for name in columns if name in table.columns} | {"text": "text"}
    wanted["id"] = "_id" if "_id" in table.columns else "id"
    return texts.mapped(table, wanted, str(file))


def _documents(file: Path, source: Any) -> pl.DataFrame:
    table = _mapped(file, source, "title")
    text = [pl.col(name).cast(pl.String).fill_null("") for name in ("title", "text") if name in table.columns]
    return table.select(
        "id",
        text=pl.concat_str(text, separator=" ").str.strip_chars(),
        split=pl.lit("train"),
        judgements=pl.lit(None, pl.String),
    )


def _judgements(file: Path, source: Any) -> pl.DataFrame:
    """Return query, id, split and judgements, of each query of each split that has a judgement."""
    found = {tsv.stem: qrels(tsv, source.read(tsv)) for tsv in sorted((file.parent / "qrels").glob("*.tsv"))}
    if not found:
        table = _mapped(file, source, "split", "relevant")
        if "split" not in table.columns or not isinstance(table.schema.get("relevant"), pl.List):
            raise BadInput(f"{file}: needs a column `split` and lists `relevant`, or qrels/*.tsv beside it")
        for query, split, relevant in table.select("id", "split", "relevant").iter_rows():
            if relevant:
                found.setdefault(split, {})[query] = dict.fromkeys(map(str, relevant), 1.0)
    judged = [
        (query, f"{split}/{query}", f"queries {split}", json.dumps(grades))
        for split, queries in found.items()
        for query, grades in queries.items()
    ]
    columns = [(name, pl.String) for name in ("query", "id", "split", "judgements")]
    return pl.DataFrame(judged, schema=columns, orient="row")


def qrels(file: Path, table: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Return {query: {document: grade}} of a table with these three columns. Raises BadInput."""
    if table.width != 3:
        raise BadInput(f"{file}: {table.width} columns; three are needed: query, document, grade")
    grade = table.columns[2].partition("_duplicated_")[0]  # polars renames what repeats in the first line
    if math.isfinite(number(grade)):
        raise BadInput(f"{file}: its first line is a judgement; a header is needed")
    if any(kind.is_nested() for kind in table.dtypes):
        raise BadInput(f"{file}: query, document, grade are needed, not lists")
    found: dict[str, dict[str, float]] = {}
    for query, document, grade in table.cast(pl.String).iter_rows():
        value = number(grade)
        if not math.isfinite(value):
            raise BadInput(f"{file}: the grade of query {query!r} is no number")
        found.setdefault(query, {})[document] = value
    return found
