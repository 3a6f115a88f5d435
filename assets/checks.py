"""Checks that warn of results from which no conclusion should be drawn. Each reads files only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagster_dvc.checks import Found
from dagster_dvc.graph import Stage


def aligned(root: Path, stage: Stage) -> Found:
    """Warn of seeds whose verdict is not `aligned`. Rows of oracles and naive ones have no verdict."""
    labels = [verdict["label"] for verdict in _verdicts(_result(root, stage))]
    other = sum(label != "aligned" for label in labels)
    line = f"{other} of {len(labels)} verdicts are not aligned" if other else ""
    return line, {"verdicts": len(labels) or "none: oracles and naive rows get none", "not aligned": other}


def disjoint(root: Path, stage: Stage) -> Found:
    """Warn of texts on both sides of a fit, apart from the known pairs of its row, and of near-duplicates.

    For a joint fit, each number is the largest of its pairs of spaces.
    """
    found = _result(root, stage)
    fits = [found, *(pair for pair in found.values() if isinstance(pair, dict))]
    keys = {"on both sides": "shared", "near-duplicates": "near_duplicates"}
    counts = {name: max(fit.get(key, 0) for fit in fits) for name, key in keys.items()}
    line = "{} texts are on both sides, {} have a near-duplicate on the other side".format(*counts.values())
    return line if any(counts.values()) else "", counts


def targets(root: Path, stage: Stage) -> Found:
    """Warn of audits in report/audit that missed a target of `--gate`.

    An unfinished audit counts only until the same audit has run to its end.
    """
    pages = {path.stem: _json(path) for path in sorted((root / "report/audit").glob("*.json"))}
    whole = {name for name in pages if not name.endswith("-unfinished")}
    pages = {n: page for n, page in pages.items() if n in whole or n.removesuffix("-unfinished") not in whole}
    lines = [f"{name}: {line}" for name, page in pages.items() for line in page.get("missed", [])]
    return "; ".join(lines), {"audits": len(pages), "targets missed": len(lines)}


CHECKS = {
    "align": {"aligned": aligned, "disjoint_halves": disjoint},
    "align_jointly": {"aligned": aligned, "disjoint_halves": disjoint},
    "report": {"audit_targets": targets},
}


def _result(root: Path, stage: Stage) -> dict[str, Any]:
    """Return the metrics of a row, empty if there are none: the checks of dagster_dvc report that."""
    return _json(root / "results" / stage.base / f"{stage.row}.json")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _verdicts(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the verdicts of a row of `align`, or of every pair of a row of `align_jointly`."""
    inner = [v for value in content.values() if isinstance(value, dict) for v in _verdicts(value)]
    return [*inner, dict(content)] if "label" in content else inner
