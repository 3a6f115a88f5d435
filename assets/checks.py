"""Checks that warn of results from which no conclusion should be drawn. Each reads files only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dagster_dvc.checks import Check, Found
from dagster_dvc.graph import Loader, Stage


def aligned(root: Path, stage: Stage) -> Found:
    """Warn of seeds whose verdict is not `aligned`; oracles have no verdict."""
    words = [verdict["label"] for verdict in _verdicts(_result(root, stage.base, stage.row))]
    other = sum(word != "aligned" for word in words)
    line = f"{other} of {len(words)} verdicts are not aligned" if other else ""
    return line, {"verdicts": len(words), "not aligned": other}


def disjoint(root: Path, stage: Stage) -> Found:
    """Warn of texts on both sides of a fit, apart from the known pairs of its row, and of near-duplicates."""
    found = _result(root, stage.base, stage.row)
    counts = {"on both sides": found.get("shared", 0), "near-duplicates": found.get("near_duplicates", 0)}
    line = "{} texts are on both sides, {} have a near-duplicate on the other side".format(*counts.values())
    return line if any(counts.values()) else "", counts


def oracle_above(root: Path, stage: Stage) -> Found:
    """Warn of a translator with a higher top-1 than the best oracle on the same pairs."""
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
    line = f"top-1 is {-above:.3f} above the best oracle's" if above < 0 else ""
    return line, {"oracle's top-1 above": above}


def ids_of_corpus(root: Path, stage: Stage) -> Found:
    """Warn of rows of the vectors whose id differs from the same row of the corpus."""
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
    line = f"{other} ids are not those of corpus {corpus}" if other else ""
    return line, {"rows": len(ids), "other ids": other}


def targets(root: Path, stage: Stage) -> Found:
    """Warn of audits in report/audit that missed a target of `--gate`; each page's newest audit counts."""
    pages = {path.stem: _json(path) for path in sorted((root / "report/audit").glob("*.json"))}
    lines = [f"{name}: {line}" for name, page in pages.items() for line in page.get("missed", [])]
    return "; ".join(lines), {"audits": len(pages), "targets missed": len(lines)}


CHECKS: dict[str, dict[str, Check]] = {
    "align": {"aligned": aligned, "disjoint_halves": disjoint},
    "align_jointly": {"aligned": aligned},
    "evaluate": {"oracle_above": oracle_above},
    "embed": {"ids_of_corpus": ids_of_corpus},
    "report": {"audit_targets": targets},
}


def _result(root: Path, verb: str, row: str | None) -> dict[str, Any]:
    """Return the metrics of a row, empty if there are none: another check reports that."""
    return _json(root / "results" / verb / f"{row}.json")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _table(root: Path, name: str) -> dict[Any, Any]:
    return yaml.load((root / "params.yaml").read_text(encoding="utf-8"), Loader).get(name) or {}


def _verdicts(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the verdicts of a row of `align`, or of every pair of a row of `align_jointly`."""
    inner = [v for value in content.values() if isinstance(value, dict) for v in _verdicts(value)]
    return [*inner, dict(content)] if "label" in content else inner
