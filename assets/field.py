"""Checks that warn of what a study would be wrong to conclude from. Each reads files alone and gives a line, and its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dagster_dvc.checks import Check, Found
from dagster_dvc.graph import Loader, Stage


def aligned(root: Path, stage: Stage) -> Found:
    """How many seeds have another verdict than `aligned`; oracles have none."""
    words = [verdict["word"] for verdict in _verdicts(_result(root, stage.base, stage.row))]
    other = sum(word != "aligned" for word in words)
    return f"{other} of {len(words)} verdicts are not aligned" if other else "", {
        "verdicts": len(words),
        "not aligned": other,
    }


def disjoint(root: Path, stage: Stage) -> Found:
    """How many texts are on both sides of a fit, beyond the pairs that its row grants."""
    shared = _result(root, stage.base, stage.row).get("shared", 0)
    return f"{shared} texts are on both sides" if shared else "", {"on both sides": shared}


def oracle_above(root: Path, stage: Stage) -> Found:
    """Top-1 of the best oracle on the same pairs, less this translator's. No oracle: nothing to compare with."""
    rows, results = _table(root, "evaluate"), {}
    pairs = [rows.get(stage.row, {}).get(key, "test") for key in ("source", "target", "split")]
    for name, row in rows.items():
        if [row.get(key, "test") for key in ("source", "target", "split")] == pairs:
            results[name] = _result(root, "evaluate", name)
    this = results.pop(stage.row, {})
    oracles = [result["top1"] for result in results.values() if result.get("supervision") == "oracle"]
    if not oracles or this.get("supervision") in (None, "oracle"):
        return "", {}
    above = max(oracles) - this["top1"]
    return f"top-1 is {-above:.3f} above the best oracle's" if above < 0 else "", {
        "oracle's top-1 above": above
    }


def ids_of_corpus(root: Path, stage: Stage) -> Found:
    """How many rows of the vectors have another id than the same row of their corpus."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    corpus = _table(root, "embed").get(stage.row, {}).get("corpus")
    try:
        with pa.memory_map(str(root / f"data/embeddings/{stage.row}.arrow")) as file:
            ids = pa.ipc.open_file(file).read_all()["id"].to_pylist()
        texts = pq.read_table(root / f"data/corpora/{corpus}.parquet", columns=["id"])["id"].to_pylist()
    except (OSError, KeyError, pa.ArrowException) as error:
        return " ".join(str(error).split()), {}
    other = sum(a != b for a, b in zip(ids, texts, strict=False)) + abs(len(ids) - len(texts))
    return f"{other} ids are not those of corpus {corpus}" if other else "", {
        "rows": len(ids),
        "other ids": other,
    }


CHECKS: dict[str, dict[str, Check]] = {
    "align": {"aligned": aligned, "disjoint_halves": disjoint},
    "align_jointly": {"aligned": aligned},
    "evaluate": {"oracle_above": oracle_above},
    "embed": {"ids_of_corpus": ids_of_corpus},
}


def _result(root: Path, verb: str, row: str | None) -> dict[str, Any]:
    """A row's metrics; empty where there are none, which other checks say."""
    try:
        content = json.loads((root / "results" / verb / f"{row}.json").read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _table(root: Path, name: str) -> dict[Any, Any]:
    return yaml.load((root / "params.yaml").read_text(), Loader).get(name) or {}


def _verdicts(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of a row of `align`, or of every pair of one of `align_jointly`."""
    inner = [v for value in content.values() if isinstance(value, dict) for v in _verdicts(value)]
    return [*inner, dict(content)] if "word" in content else inner
