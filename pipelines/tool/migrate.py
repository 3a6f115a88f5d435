"""migrate: move an index, a file of vectors, into the space of a new encoder, and say what it cost."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.aligners import procrustes
from pipelines.aligners.core.parts import judge_parts
from pipelines.aligners.core.translator import Translator
from pipelines.corpora.core.files import located
from pipelines.corpora.kinds.judged import qrels
from pipelines.corpora.sources.path import read
from pipelines.corpora.sources.vectors import formats, matrix
from pipelines.fitting import arrays
from pipelines.measures import retrieval, shown, summary, translation
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.errors import BadInput
from pipelines.tool import Answer
from pipelines.tool.translate import check_output, write

HELD_OUT = 5  # every fifth known pair measures the maps, and is told to none of them
LEAST = 10  # known pairs
ADVICE = {
    "failed": "The map is wrong: nothing is written. Embed the documents again, or name known pairs.",
    "doubtful": "The map may be wrong: measure it on known pairs, or embed the documents again.",
    "partial": "The map is right where column `aligned` is true: embed the other documents again.",
    "aligned": "The map is right, but loses detail: embed texts that you have again (docs/migrate.md).",
}


@dataclass(frozen=True)
class Index:
    """Vectors of a file and the ids of its rows; without ids, row numbers from 0."""

    path: Path
    vectors: Tensor  # (n, d)
    ids: list[str]

    @classmethod
    def of(cls, name: str, column: str | None) -> Index:
        path = located(name)
        vectors = torch.from_numpy(matrix(path, column))
        ids = formats.words(path, None, ("id", "ids", "_id")) or [str(row) for row in range(len(vectors))]
        return cls(path, vectors, ids)

    def rows(self, ids: list[str], where: str) -> list[int]:
        """Return the rows of these ids. Raises BadInput for an id that is not there."""
        at = {name: row for row, name in enumerate(self.ids)}
        if missing := [name for name in ids if name not in at]:
            raise BadInput(f"{where}: {self.path} has no vector {missing[0]!r} ({len(missing)} such ids)")
        return [at[name] for name in ids]


def migrate(args: Namespace) -> Answer:
    """Fit a map from OLD to NEW, measure it, and write OLD as vectors of the new encoder.

    Exit code 3, and no file, if the verdict is *failed* and no known pairs show another map to be right.
    """
    check_output(args.out)
    old, new = Index.of(args.old, args.column), Index.of(args.new, args.column)
    judged = Judged.of(args, old)
    known = known_pairs(args.pairs, old, new)
    held = torch.arange(len(known)) % HELD_OUT == HELD_OUT - 1
    told, measured = known[~held], known[held]

    # 1. The map without pairs, or told of some; beside it Procrustes of these pairs.
    pairs = (old.vectors[told[:, 0]], new.vectors[told[:, 1]]) if len(told) else None
    unseen = torch.isin(torch.arange(len(new.ids)), measured[:, 1])  # else these texts would be on both sides
    target = new.vectors[~unseen]
    unpaired, verdict = arrays.fit(old.vectors, target, args.seed, args.restarts, pairs, match_in="smaller")
    maps: dict[str, Translator] = {"unpaired": unpaired}
    if pairs:
        maps["procrustes"] = procrustes.fit_oracle(*pairs, procrustes.Settings(), args.seed)

    # 2. What each finds again of the pairs that were held out.
    top1 = {name: found_again(map, old, new, measured) for name, map in maps.items()}
    best = max(maps, key=lambda name: top1[name])
    lines = [f"verdict: {verdict.label} (agreement {verdict.agreement:.2f}), {len(old.ids)} vectors"]
    if pairs:
        found = f"of {len(measured)} known pairs are nearest among {len(new.ids)} new vectors"
        lines += [f"{name}: {share:.3f} {found}" for name, share in top1.items()]
    data: dict[str, Any] = {"verdict": asdict(verdict), "top1": top1, "map": best, "out": None}
    if judged:
        data["retrieval"] = judged.by(maps[best](old.vectors))
        for name, scores in data["retrieval"].items():
            means = (f"{m.title} {scores[m.name]:.3f}" for m in shown(retrieval.MEASURES))
            lines.append(f"{name}: {', '.join(means)}")
    lines.append(ADVICE["aligned" if best == "procrustes" else verdict.label])
    if verdict.label == "failed" and best == "unpaired":
        return Answer(lines, data, 3)

    # 3. The file.
    partial = verdict.label == "partial" and best == "unpaired"
    parts = judge_parts(old.vectors, unpaired, new.vectors) if partial else None
    write(args.out, old.path, args.column, maps[best], parts)
    lines.append(f"{args.out}: {len(old.ids)} vectors, moved by the map {best}")
    return Answer(lines, data | {"out": str(args.out)})


def known_pairs(pairs: str | None, old: Index, new: Index) -> Tensor:
    """Return the rows (k, 2) of known pairs: the first K of both files, or those of a table of ids."""
    if pairs is None:
        return torch.empty(0, 2, dtype=torch.int64)
    if pairs.isdigit():
        count = int(pairs)
        if count > min(len(old.ids), len(new.ids)):
            raise BadInput(f"--pairs {count}: the files have {len(old.ids)} and {len(new.ids)} vectors")
        rows = torch.stack([torch.arange(count)] * 2, 1)
    else:
        table = read(located(pairs))
        if table.width != 2:
            raise BadInput(f"{pairs}: {table.width} columns; two are needed: ids of OLD and of NEW")
        sides = (
            index.rows([str(i) for i in table.to_series(n)], pairs) for n, index in enumerate((old, new))
        )
        rows = torch.tensor([*sides]).T
    if len(rows) < LEAST:
        raise BadInput(f"--pairs {pairs}: {len(rows)} known pairs; at least {LEAST} are needed")
    return rows


def found_again(map: Translator, old: Index, new: Index, pairs: Tensor) -> float:
    """Return the share of pairs (k, 2) whose new vector is the nearest of all to the moved one; else 0."""
    if not len(pairs):
        return 0.0
    true = pairs[:, 1]
    others = ~torch.isin(torch.arange(len(new.ids)), true)
    keys = torch.cat([new.vectors[true], new.vectors[others]])
    moved, mean = map(old.vectors[pairs[:, 0]]), keys.mean(0)
    normalized = torch.nn.functional.normalize(moved - mean, dim=1)
    return float((translation.ranks(normalized, centred_unit(keys)) <= 1).float().mean())


@dataclass(frozen=True)
class Judged:
    """Judged queries by the new encoder (`moved`) and, if they are known, by the old one (`before`)."""

    index: Index
    queries: dict[str, Tensor]  # (q, e), (q, d)
    judgements: list[Mapping[str, float]]  # of each query

    @classmethod
    def of(cls, args: Namespace, index: Index) -> Judged | None:
        """Read them. Raises BadInput if they do not fit each other."""
        if not (args.qrels and args.queries):
            if args.qrels or args.queries or args.old_queries:
                raise BadInput("--queries and --qrels are needed together")
            return None
        file = located(args.qrels)
        of = qrels(file, read(file))
        if not {name for grades in of.values() for name in grades} & {*index.ids}:
            raise BadInput(f"{args.qrels}: no document of it is in {index.path}")
        files = {"moved": args.queries, "before": args.old_queries}
        sides = {name: Index.of(file, args.column) for name, file in files.items() if file}
        queries = {name: side.vectors[side.rows([*of], args.qrels)] for name, side in sides.items()}
        return cls(index, queries, [*of.values()])

    def by(self, moved: Tensor) -> dict[str, dict[str, float]]:
        """Measure retrieval in moved vectors (n, e), and in the old ones where old queries are known."""
        documents = {"moved": moved, "before": self.index.vectors}
        return {
            name: summary(retrieval.judged_scores(queries, documents[name], self.index.ids, self.judgements))
            for name, queries in self.queries.items()
        }
