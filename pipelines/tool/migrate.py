"""migrate: move an index, a file of vectors, into the space of a new encoder, and say what it cost."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners import procrustes
from pipelines.aligners.core.translator import Translator
from pipelines.aligners.core.verdict import RIGHT
from pipelines.corpora.core.files import located
from pipelines.corpora.kinds.judged import qrels
from pipelines.corpora.sources.path import read
from pipelines.corpora.sources.vectors import formats, stores
from pipelines.fitting import arrays
from pipelines.measures import retrieval, shown, summary, translation
from pipelines.measures.vectors import centred_unit, finite
from pipelines.runtime.errors import BadInput
from pipelines.tool import Answer
from pipelines.tool.files import check_output, cloud, lost_columns, two_files, write

HELD_OUT = 5  # every fifth known pair is held out to measure the maps
LEAST = 10  # known pairs
EVIDENCE = math.log(20)  # of a one-sided 95 % interval: pairs times divergence
IDS = ("id", "ids", "_id")
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
ADVICE = {
    "failed": "Probably wrong: nothing is written. Embed the documents again, or name (more) known pairs.",
    "doubtful": "The map may be wrong: measure it on known pairs, or embed the documents again.",
    "partial": "The map is right for a part: column `aligned` (not in .npy) marks it. Embed the rest again.",
    "aligned": "The map is right, but loses detail. Embed the texts that you have again (docs/migrate.md).",
}


@dataclass(frozen=True)
class Index:
    """Vectors of a file and the ids of its rows; without ids, row numbers from 0."""

    path: Path
    vectors: Tensor  # (n, d)

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the rows.

        Raises BadInput if they are not unique, or if ids cannot be read from this format.
        """
        ids = ids_of(self.path)
        if ids is None:
            suffix = self.path.suffix.lower()
            index = formats.READERS.get(suffix) is stores.index
            if index or self.path.is_dir() or suffix in (".json", ".copy", *formats.SQLITE):
                raise BadInput(f"{self.path}: its ids are not read; those of parquet with a column `id` are")
            return [str(row) for row in range(len(self.vectors))]
        if len(ids) != len(self.vectors):
            raise BadInput(f"{self.path}: {len(self.vectors)} vectors, but {len(ids)} ids")
        if len({*ids}) < len(ids):
            raise BadInput(f"{self.path}: ids are not unique")
        return ids

    @cached_property
    def near(self) -> Tensor:
        """Mark the rows that are neither zero nor far off; a fit sees no others. (n,) bool"""
        distinct, which = self.vectors.unique(dim=0, return_inverse=True)
        return torch.from_numpy(arrays.near_centre(distinct.numpy()))[which] & self.vectors.any(1)

    def rows(self, ids: list[str], where: str) -> list[int]:
        """Return the rows of these ids. Raises BadInput for an id that is not there."""
        at = {name: row for row, name in enumerate(self.ids)}
        if missing := [name for name in ids if name not in at]:
            raise BadInput(f"{where}: {self.path} has no vector {missing[0]!r} ({len(missing)} such ids)")
        return [at[name] for name in ids]


def ids_of(path: Path) -> list[str] | None:
    """Return the ids of a file's rows; None if it has none, or if they are not read from such files."""
    if path.suffix.lower() not in TABLES:
        return formats.column_as_text(path, None, IDS)
    with open(path, encoding="utf-8-sig") as file:
        if file.read(1) == "[":  # a bare vector in each line
            return None
    table = without_blank_lines(path)
    if (name := next((name for name in IDS if name in table.columns), None)) is None:
        return None
    if missing := table[name].null_count():
        raise BadInput(f"{path}: {missing} rows have no {name}")
    return [str(value) for value in table[name]]


def without_blank_lines(path: Path) -> pl.DataFrame:
    """Read a table, and drop the rows without a value."""
    return read(path).filter(~pl.all_horizontal(pl.all().is_null()))


def migrate(args: Namespace) -> Answer:
    """Fit a map from OLD to NEW, measure it, and write OLD as vectors of the new encoder.

    Exit code 3, and no file, if the map is *failed*. Held-out known pairs decide if they are enough
    (`label_by_pairs`), otherwise the verdict. Of a *partial* map the verdict always decides.
    """
    stored, stored_new = two_files(args, args.old, args.new)
    table = None if (args.pairs or "").isdecimal() else args.pairs  # a number is no file
    given = (args.old, args.new, table, args.queries, args.old_queries, args.qrels)
    check_output(args.out, stored, [*filter(None, given)])
    old, new = (Index(file.path, cloud(file)) for file in (stored, stored_new))
    judged = Judged.of(args, old, new.vectors.shape[1])
    known = known_pairs(args.pairs, old, new)
    held = torch.arange(len(known)) % HELD_OUT == HELD_OUT - 1
    train, test = known[~held], known[held]

    # 1. Fit the unpaired map, with the training pairs as a hint, and Procrustes to the training pairs.
    pairs = (old.vectors[train[:, 0]], new.vectors[train[:, 1]]) if len(train) else None
    # Leave the test pairs out of the target, so that the fit does not see what measures it.
    tested = torch.isin(torch.arange(len(new.vectors)), test[:, 1])
    target = new.vectors[~tested]
    how = {"seed": args.seed, "restarts": args.restarts, "match_in": "smaller"}
    unpaired, verdict, parts = arrays.fit_parts(old.vectors, target, pairs=pairs, **how)
    maps = {"unpaired": unpaired}
    if pairs:
        maps["procrustes"] = procrustes.fit_oracle(*pairs, procrustes.Settings(), args.seed)

    # 2. Measure each map on the test pairs.
    top1, foscttm = {}, {}
    for name, translator in maps.items():
        top1[name], foscttm[name] = measure(translator, old, new, test)
    best = max(maps, key=lambda name: (top1[name], -foscttm[name]))
    lines = [f"verdict on the unpaired map: {verdict.short}, {len(old.vectors)} vectors"]
    label, data = verdict.label, {"verdict": asdict(verdict), "map": best, "out": None}
    if pairs:
        label, found = on_pairs(label, best, top1, foscttm, len(test), int(new.near.sum()))
        lines += found
        data |= {"top1": top1, "foscttm": foscttm}
    if judged:
        data["retrieval"] = judged.by(maps[best](old.vectors))
        lines += on_queries(data["retrieval"])
    lines.append(ADVICE[label])
    if label == "failed":
        return Answer(lines, data, 3)

    # 3. The file.
    write(args.out, stored, maps[best], parts if label == "partial" else None)
    lines += [
        f"{args.out}: {len(old.vectors)} vectors, moved by the map {best}",
        *lost_columns(args.out, stored),
    ]
    return Answer(lines, data | {"out": str(args.out)})


def on_pairs(
    verdict: str, best: str, top1: dict[str, float], foscttm: dict[str, float], pairs: int, vectors: int
) -> tuple[str, list[str]]:
    """Return the label of the best map, and the lines to print.

    A line for each map counts the held-out pairs whose true vector is the nearest of `vectors`. More lines
    warn if the pairs prove nothing, or contradict the verdict. A map that is right for a part keeps its
    verdict.
    """
    found = f"of {pairs} known pairs: the true vector is the nearest of {vectors}"
    lines = [
        f"{name}: {share * pairs:.0f} {found}; FOSCTTM {foscttm[name]:.3f} (right: at most {RIGHT})"
        for name, share in top1.items()
    ]
    if (verdict, best) == ("partial", "unpaired"):
        return verdict, lines
    label, enough = label_by_pairs(foscttm[best], pairs, verdict if best == "unpaired" else None)
    if not enough:
        lines.append(f"{pairs} held-out pairs do not prove it right or wrong: name more, if you can")
    if (verdict, label) == ("aligned", "failed"):
        lines.append("the known pairs contradict the verdict: are they pairs of the same texts?")
    return label, lines


def on_queries(by_index: dict[str, dict[str, float]]) -> list[str]:
    """Return a line for each index, by name: how well the queries find their documents."""
    measures = shown(retrieval.MEASURES)
    return [
        f"{name}: {', '.join(f'{m.title} {scores[m.name]:.3f}' for m in measures)}"
        for name, scores in by_index.items()
    ]


def label_by_pairs(foscttm: float, pairs: int, verdict: str | None) -> tuple[str, bool]:
    """Return the label of a map by the mean FOSCTTM of held-out pairs, and whether they are enough.

    The map is right or wrong if the one-sided 95 % interval of the mean is below or above RIGHT. For n
    values in [0, 1] with mean m, an r is outside if n KL(m, r) is at least EVIDENCE (Hoeffding 1963, theorem
    1). This holds for any n. If RIGHT is inside, a map is *aligned* only if its own verdict says so and the
    mean is right. A verdict of *failed* stays. verdict: None for a map of pairs, which *fails* if the mean is
    wrong.
    """
    shares = (foscttm, RIGHT), (1 - foscttm, 1 - RIGHT)
    divergence = sum(m * math.log(m / r) for m, r in shares if m)
    right = foscttm <= RIGHT
    if pairs * divergence >= EVIDENCE:
        return "aligned" if right else "failed", True
    if verdict == "aligned" and right:
        return "aligned", False
    return "failed" if verdict == "failed" or not (verdict or right) else "doubtful", False


def known_pairs(pairs: str | None, old: Index, new: Index) -> Tensor:
    """Return the rows (k, 2) of known pairs: the first K of both files, or those of a table of ids.

    Pairs with a row that is not `near` are left out.
    """
    if pairs is None:
        return torch.empty(0, 2, dtype=torch.int64)
    if pairs.isdecimal():
        count = int(pairs)
        sizes = len(old.vectors), len(new.vectors)
        if count > min(sizes):
            raise BadInput(f"--pairs {count}: the files have {sizes[0]} and {sizes[1]} vectors")
        rows = torch.stack([torch.arange(count)] * 2, 1)
    else:
        ids = paired_ids(pairs, old)
        both = [index.rows(of_side, pairs) for index, of_side in zip((old, new), ids, strict=True)]
        rows = torch.tensor(both, dtype=torch.int64).T
    rows = rows[old.near[rows[:, 0]] & new.near[rows[:, 1]]]
    if len(rows) < LEAST:
        raise BadInput(f"--pairs {pairs}: {len(rows)} usable known pairs; at least {LEAST} are needed")
    return rows


def paired_ids(pairs: str, old: Index) -> list[list[str]]:
    """Return the ids of OLD and those of NEW in a table of pairs."""
    table = without_blank_lines(located(pairs))
    if table.width != 2:
        raise BadInput(f"{pairs}: {table.width} columns; two are needed: ids of OLD and of NEW")
    if table.columns[0] in {*old.ids}:
        raise BadInput(f"{pairs}: its first line is a pair; a header is needed")
    if missing := sum(table.null_count().row(0)):
        raise BadInput(f"{pairs}: {missing} cells have no id")
    ids = [[str(i) for i in column] for column in table.unique(maintain_order=True)]
    if any(len({*of_side}) < len(of_side) for of_side in ids):
        raise BadInput(f"{pairs}: an id is in two pairs: each text needs one vector on each side")
    return ids


def measure(translator: Translator, old: Index, new: Index, pairs: Tensor) -> tuple[float, float]:
    """Return top-1 and FOSCTTM of pairs (k, 2) among all `near` new vectors; 0 and 1 without pairs."""
    if not len(pairs):
        return 0.0, 1.0
    true = pairs[:, 1]
    others = new.near & ~torch.isin(torch.arange(len(new.vectors)), true)
    keys = torch.cat([new.vectors[true], new.vectors[others]])
    moved, mean = translator(old.vectors[pairs[:, 0]]), keys.mean(0)
    normalized = torch.nn.functional.normalize(moved - mean, dim=1)
    rank = translation.ranks(normalized, centred_unit(keys))
    return float((rank <= 1).float().mean()), float((rank - 1).mean() / (len(keys) - 1))


@dataclass(frozen=True)
class Judged:
    """Judged queries by the new encoder (`moved`) and, if they are known, by the old one (`before`)."""

    index: Index
    queries: dict[str, Tensor]  # (q, e), (q, d)
    judgements: list[Mapping[str, float]]  # of each query

    @classmethod
    def of(cls, args: Namespace, index: Index, width: int) -> Judged | None:
        """Read them. Raises BadInput if they do not fit each other. width: of the new encoder's vectors."""
        if not (args.qrels and args.queries):
            if args.qrels or args.queries or args.old_queries:
                raise BadInput("--queries and --qrels are needed together")
            return None
        file = located(args.qrels)
        judgements = qrels(file, read(file))
        if not {name for grades in judgements.values() for name in grades} & {*index.ids}:
            raise BadInput(f"{args.qrels}: no document of it is in {index.path}")
        before, moved = two_files(args, args.old_queries or args.queries, args.queries)
        given = {"moved": (moved, width)}
        given |= {"before": (before, index.vectors.shape[1])} if args.old_queries else {}
        queries = {}
        for name, (stored, needed) in given.items():
            side = Index(stored.path, torch.from_numpy(stored.matrix()))
            if (found := side.vectors.shape[1]) != needed:
                raise BadInput(f"{stored.path}: vectors of {found} dimensions; {needed} are needed")
            queries[name] = finite(str(stored.path), side.vectors)[side.rows([*judgements], args.qrels)]
        return cls(index, queries, [*judgements.values()])

    def by(self, moved: Tensor) -> dict[str, dict[str, float]]:
        """Measure retrieval in moved vectors (n, e), and in the old ones where old queries are known."""
        documents = {"moved": moved, "before": self.index.vectors}
        return {
            name: summary(retrieval.judged_scores(queries, documents[name], self.index.ids, self.judgements))
            for name, queries in self.queries.items()
        }
