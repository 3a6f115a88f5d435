"""Rendered scenes with captions, where p(image, caption) is known.

A scene has one to three objects in a grid of four cells, or one to six in nine. An object has a shape, a
colour and a size. A caption names a part of the scene: an object with or without its size, colour and place;
two objects, with or without how they lie; or how many there are. So one image has dozens of true captions,
and one caption fits thousands of images. A share NOISE of the captions belongs to other scenes, as on the
web. It also keeps the pointwise mutual information finite:

    PMI(x, y) = log p(y | x) / p(y) = log((1 - NOISE) q(y | scene) / q(y) + NOISE)

where q is the grammar without noise.
"""

import functools
import io
import itertools
import json
from collections import defaultdict

import numpy as np
import polars as pl

from pipelines.study import SyntheticCorpus

SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (214, 40, 40),
    "green": (44, 150, 60),
    "blue": (40, 80, 200),
    "yellow": (232, 196, 30),
    "white": (240, 240, 240),
}
SIZES = {"small": 3.6, "large": 6.4}
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
LINES = {2: (0, 2), 3: (0, 1, 2)}  # the rows and columns that a grid of two or three cells a side has
MOST = {2: 3, 3: 6}  # largest number of objects
NUMBERS = ("one", "two", "three", "four", "five", "six")
COUNTED, ONE, TWO = 0.1, 0.45, 0.45  # shares of captions that count objects, and that name one or two
CELL, NOISE, CAPTIONS = 16, 0.1, 8  # pixels a side; share of foreign captions; captions drawn per scene

Thing = tuple[str, str, str, tuple[int, int]]  # size, colour, shape, (row, column)
OBJECTS = tuple(itertools.product(SIZES, COLOURS, SHAPES))


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return generated scenes: id, text (the first caption), labels (each "colour shape" in it), captions
    (CAPTIONS of them), image (PNG), scene (JSON)."""
    rng = np.random.default_rng(p.seed)
    made = []
    for i in range(p.count):
        scene = draw_scene(p.grid, rng)
        texts = [draw_caption(scene, p.grid, rng) for _ in range(CAPTIONS)]
        labels = sorted({f"{colour} {shape}" for _, colour, shape, _ in scene})
        known = json.dumps({"grid": p.grid, "things": scene})
        made.append((f"scene-{i}", texts[0], labels, texts, render(scene, p.grid, rng), known))
    names = ["id", "text", "labels", "captions", "image", "scene"]
    return pl.DataFrame(made, schema=names, orient="row")


def _names(thing: Thing) -> list[str]:
    """Return four ways to name a thing, equally likely: size and colour may be left out."""
    size, colour, shape, _ = thing
    return [f"{colour} {shape}", f"{size} {colour} {shape}", f"{size} {shape}", shape]


def _relations(a: Thing, b: Thing) -> list[str]:
    """Return how a lies to b: one way or two, equally likely."""
    (row_a, column_a), (row_b, column_b) = a[3], b[3]
    words = [("above", "below")[row_a > row_b]] if row_a != row_b else []
    return words + ([("left of", "right of")[column_a > column_b]] if column_a != column_b else [])


def captions(scene: tuple[Thing, ...]) -> dict[str, float]:
    """Return q(y | scene): every true caption and its probability."""
    out: dict[str, float] = defaultdict(float)
    pairs = list(itertools.permutations(scene, 2))
    out[_count(len(scene))] += COUNTED
    for thing in scene:
        _add(out, _single(thing), (ONE if pairs else ONE + TWO) / len(scene))
    for a, b in pairs:
        _add(out, _double(a, b), TWO / len(pairs))
    return dict(out)


def _add(out: dict[str, float], texts: list[str], share: float) -> None:
    for text in texts:
        out[text] += share / len(texts)


def _count(objects: int) -> str:
    return f"{NUMBERS[objects - 1]} object{'s' * (objects > 1)}"


def _single(thing: Thing) -> list[str]:
    row, column = thing[3]
    place = f"{ROWS[row]} {COLUMNS[column]}"
    return [text for name in _names(thing) for text in (f"a {name}", f"a {name} at the {place}")]


def _double(a: Thing, b: Thing) -> list[str]:
    """Return conjunctions and relations of two objects, equally likely."""
    ways = ["and", *_relations(a, b)]
    return [f"a {m} {way} a {n}" for m in _names(a) for n in _names(b) for way in ways]


@functools.cache
def marginal(grid: int) -> dict[str, float]:
    """Return q(y) over all scenes, exactly: objects are independent, and a caption names at most two."""
    out: dict[str, float] = defaultdict(float)
    most = MOST[grid]
    for objects in range(1, most + 1):
        out[_count(objects)] += COUNTED / most
    things = [(*o, cell) for o in OBJECTS for cell in _cells(grid)]
    for thing in things:
        _add(out, _single(thing), (ONE + TWO + ONE * (most - 1)) / most / len(things))
    pairs = [(a, b) for a, b in itertools.product(things, repeat=2) if a[3] != b[3]]
    for a, b in pairs:
        _add(out, _double(a, b), TWO * (most - 1) / most / len(pairs))
    return dict(out)


def _cells(grid: int) -> list[tuple[int, int]]:
    return list(itertools.product(LINES[grid], repeat=2))


def pmi(scenes: list[str], texts: list[str]) -> np.ndarray:
    """Return the true PMI (n, m) of scenes (the corpus's column `scene`) and captions; natural logarithm."""
    column = {text: j for j, text in enumerate(texts)}
    ratio = np.zeros((len(scenes), len(texts)))
    for i, known in enumerate(map(json.loads, scenes)):
        scene = tuple((*thing, tuple(cell)) for *thing, cell in known["things"])
        for text, p in captions(scene).items():
            if text in column:
                ratio[i, column[text]] = p / marginal(known["grid"])[text]
    return np.log((1 - NOISE) * ratio + NOISE)


def draw_scene(grid: int, rng: np.random.Generator) -> tuple[Thing, ...]:
    """Draw one to MOST objects, equally likely, in cells drawn without repetition; each object uniform."""
    cells = _cells(grid)
    taken = sorted(rng.permutation(len(cells))[: rng.integers(1, MOST[grid] + 1)].tolist())
    return tuple((*OBJECTS[rng.integers(len(OBJECTS))], cells[cell]) for cell in taken)


def draw_caption(scene: tuple[Thing, ...], grid: int, rng: np.random.Generator) -> str:
    """Draw from p(y | scene): with probability NOISE a caption of another scene."""
    q = captions(draw_scene(grid, rng) if rng.random() < NOISE else scene)
    return str(rng.choice(list(q), p=list(q.values())))


def render(scene: tuple[Thing, ...], grid: int, rng: np.random.Generator) -> bytes:
    """Draw a PNG of CELL x CELL pixels a cell. Background, shade, size, place and pixels vary at random."""
    from PIL import Image, ImageDraw

    zoom, side = 4, CELL * grid
    image = Image.new("RGB", (side * zoom, side * zoom), (int(rng.integers(40, 110)),) * 3)
    pen = ImageDraw.Draw(image)
    for size, colour, shape, (row, column) in scene:
        r = SIZES[size] * rng.uniform(0.9, 1.1)
        x, y = (CELL * (LINES[grid].index(at) + 0.5) + rng.uniform(-1.3, 1.3) for at in (column, row))
        shade = tuple(int(c * rng.uniform(0.85, 1)) for c in COLOURS[colour])
        _draw(pen, shape, x * zoom, y * zoom, r * zoom, shade)
    pixels = np.asarray(image.resize((side, side), Image.Resampling.BOX), np.float32)
    pixels = np.clip(pixels + rng.normal(0, 6, pixels.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _draw(pen, shape: str, x: float, y: float, r: float, colour: tuple[int, ...]) -> None:
    match shape:
        case "circle":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
        case "square":
            pen.rectangle((x - 0.88 * r, y - 0.88 * r, x + 0.88 * r, y + 0.88 * r), fill=colour)
        case "triangle":
            pen.polygon([(x, y - r), (x - r, y + 0.85 * r), (x + r, y + 0.85 * r)], fill=colour)
        case _:
            pen.rectangle((x - r, y - 0.34 * r, x + r, y + 0.34 * r), fill=colour)
            pen.rectangle((x - 0.34 * r, y - r, x + 0.34 * r, y + r), fill=colour)
