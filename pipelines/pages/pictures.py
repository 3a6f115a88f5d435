"""The pictures, each drawn from a small table. drawing.py reads the tables."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl

from pipelines.measures.intervals import Interval
from pipelines.runtime import store

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SOURCE, TARGET = "#d95f02", "#1b6ca8"  # safe for colour-blind readers
LINES = 60  # texts whose two vectors are joined


@contextmanager
def figure(path: Path, **subplots: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes, and write it: atomically, and the same bytes for the same data."""
    fig, axes = plt.subplots(layout="constrained", dpi=120, **subplots)
    try:
        yield fig, axes
        with store.atomic(path) as draft:
            fig.savefig(draft, format="png", metadata={"Software": None})
    finally:
        plt.close(fig)


def success(path: Path, panels: dict[str, dict[str, dict[int, list[float]]]], of: str) -> None:
    """Draw top-1 against the number `of` something, one panel per title.

    Each seed is a point, a line joins the medians, and oracles are dashed.
    """
    numbers = sorted({n for curves in panels.values() for curve in curves.values() for n in curve})
    size = (1.4 + 4.4 * len(panels), 4.4)
    with figure(path, ncols=len(panels), figsize=size, sharey=True, squeeze=False) as (_, axes):
        for ax, (title, curves) in zip(axes[0], panels.items(), strict=True):
            for label, curve in curves.items():
                style = "--" if label.endswith("(oracle)") else "-"
                medians = [float(np.median(scores)) for scores in curve.values()]
                (line,) = ax.plot(list(curve), medians, style, label=label)
                points = [(n, score) for n, scores in curve.items() for score in scores]
                ax.scatter(*zip(*points, strict=True), color=line.get_color(), s=18, alpha=0.7, lw=0)
            if 0 in numbers:
                ax.set_xscale("symlog", linthresh=5)  # 0 has no place on a log axis
            else:
                ax.set_xscale("log")
            ax.set_xticks(numbers, [f"{n:,}" for n in numbers], fontsize=8)
            ax.minorticks_off()
            ax.set(title=title, xlabel=of, ylim=(-0.03, 1.03))
            ax.legend(frameon=False, fontsize=7, loc="center left" if 0 in numbers else "lower right")
        axes[0, 0].set_ylabel("top-1, held-out pairs")


def spaces(path: Path, points: pl.DataFrame, source: str, target: str) -> None:
    """Draw both clouds on the target's first two principal axes; lines join the two vectors of one text.

    One row per text: untranslated_x, untranslated_y, translated_x, translated_y, target_x, target_y.
    """
    names = ("untranslated", "translated", "target")
    clouds = {name: points.select(f"{name}_x", f"{name}_y").to_numpy() for name in names}
    with figure(path, ncols=2, figsize=(9.5, 4.6), sharex=True, sharey=True) as (_, axes):
        for ax, name in zip(axes, ("untranslated", "translated"), strict=True):
            ends = np.stack([clouds[name][:LINES], clouds["target"][:LINES]])  # (2, LINES, 2)
            ax.plot(ends[..., 0], ends[..., 1], color="0.6", lw=0.6, zorder=1)
            ax.scatter(*clouds["target"].T, s=5, color=TARGET, alpha=0.5, lw=0, label=target, zorder=2)
            ax.scatter(*clouds[name].T, s=5, color=SOURCE, alpha=0.5, lw=0, label=source, zorder=3)
            ax.set(title=f"{source}, {name}, and {target}", xlabel=f"{target}'s 1st principal axis")
        axes[0].set_ylabel(f"{target}'s 2nd principal axis")
        axes[0].legend(loc="upper left", markerscale=3, frameon=False)


def curves(path: Path, curve: pl.DataFrame) -> None:
    """Draw Spearman by step."""
    with figure(path, figsize=(4.8, 3.4)) as (_, ax):
        ax.plot(curve["step"], curve["spearman"], color=TARGET, marker=".")
        ax.set(xlabel="step", ylabel="STS dev, Spearman x 100")


def plane(path: Path, points: pl.DataFrame, colour: str) -> None:
    """Draw points on the plane of uniformity and alignment: steps (SimCSE, figure 2), or encoders with their
    names (figure 3).

    points: columns uniformity, alignment, one for the colour, and `name` of encoders.
    """
    names = points["name"] if "name" in points.columns else []
    x, y = points["uniformity"], points["alignment"]
    with figure(path, figsize=(6.4, 4.4)) as (fig, ax):
        if not len(names):
            ax.plot(x, y, color="0.8", lw=1, zorder=1)
        at = ax.scatter(x, y, c=points[colour], cmap="viridis", s=32)
        for place, name in enumerate(names):
            ax.annotate(name, (x[place], y[place]), xytext=(4, 4), textcoords="offset points", fontsize=7)
        ax.margins(x=0.25, y=0.15)  # room for the names
        ax.set(xlabel="uniformity (lower: more even)", ylabel="alignment (lower: positives nearer)")
        fig.colorbar(at, label=colour)


def similarity_map(path: Path, names: list[str], values: np.ndarray, title: str) -> None:
    """Draw a symmetric matrix of numbers in [0, 1] between encoders or layers. (k, k)"""
    side = 2.4 + 0.7 * len(names)
    with figure(path, figsize=(side + 0.8, side)) as (fig, ax):
        image = ax.imshow(values, vmin=0, vmax=1, cmap="viridis")
        for (i, j), value in np.ndenumerate(values):
            ink = "w" if value < 0.6 else "k"
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
        ticks = range(len(names))
        ax.set_xticks(ticks, names, rotation=60, ha="right", fontsize=7)
        ax.set_yticks(ticks, names, fontsize=7)
        ax.set_title(title, fontsize=9)
        fig.colorbar(image, shrink=0.8)


def similarity_against_pmi(path: Path, pairs: pl.DataFrame, title: str) -> None:
    """Draw learnt similarity against true pointwise mutual information; the loss asks for a straight line.

    One row per pair of image and caption: true (whether the caption is true of the image), pmi, similarity.
    """
    groups = ((False, "0.6", "pairs at regular intervals"), (True, TARGET, "caption true of the image"))
    with figure(path, figsize=(4.8, 4.2)) as (_, ax):
        for true, colour, label in groups:
            part = pairs.filter(pl.col("true") == true)
            ax.scatter(part["pmi"], part["similarity"], s=3, lw=0, alpha=0.5, color=colour, label=label)
        ax.set(title=title, xlabel="true PMI (nats)", ylabel="learnt similarity")
        ax.legend(frameon=False, markerscale=3, fontsize=8)


def bars(path: Path, shares: dict[str, Interval], xlabel: str, grey: Collection[str] = ()) -> None:
    """Draw shares with their 95 % intervals as bars, the first on top; floors and ceilings are `grey`."""
    with figure(path, figsize=(6.4, 0.9 + 0.5 * len(shares))) as (_, ax):
        for y, (name, (value, low, high)) in enumerate(shares.items()):
            ax.barh(y, value, height=0.6, color="0.75" if name in grey else TARGET)
            ax.errorbar(value, y, xerr=[[value - low], [high - value]], color="0.2", capsize=3, lw=1)
            at = {"xy": (high, y), "xytext": (5, 0), "textcoords": "offset points"}
            ax.annotate(f"{value:.1%}", va="center", fontsize=8, **at)
        ax.set_yticks(range(len(shares)), list(shares))
        ax.set_ylim(len(shares) - 0.4, -0.6)
        ax.margins(x=0.12)
        ax.set(xlabel=xlabel, xlim=(0, None))
        ax.xaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
        ax.spines[["top", "right"]].set_visible(False)
