"""probes: tasks whose labels are computed from the texts, as in SentEval's probing (Conneau et al. 2018).

length: in which sixth of the texts a text's number of words lies. word: which one of WORDS words of medium
frequency is in it. shift: whether two neighbouring words were swapped (bigram shift).
"""

from typing import Any

import numpy as np
import polars as pl

from pipelines.corpora.core import texts
from pipelines.runtime.errors import BadInput
from pipelines.study import PathCorpus

SOURCES = ("path",)
BINS = 6
WORDS = 20  # each in about FREQUENCY of all texts
FREQUENCY = 0.01
LETTERS = 4  # of such a word, at least


def rows(p: PathCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, labels and task: as many texts of each task, `p.rows` together, drawn with `p.seed`.

    Raises BadInput for ids that repeat, and if a task has no text.
    """
    where = texts.name_of(p)
    frame = texts.cleaned(texts.mapped(source.table(p), p.columns, where).select("id", "text"), where)
    generator = np.random.default_rng(p.seed)
    tasks = {"length": length(frame), "word": word(frame), "shift": shift(frame, generator)}
    count = min((p.rows or 3 * len(frame)) // 3, *map(len, tasks.values()))
    if not count:
        raise BadInput(f"{where}: too few for three tasks: {len(frame)} texts, `rows` {p.rows}")
    drawn = [
        task[np.sort(generator.permutation(len(task))[:count])].select(
            "text",
            id=pl.lit(f"{name}/") + pl.col("id"),
            labels=pl.concat_list(pl.col("label").cast(pl.String)),
            task=pl.lit(name),
        )
        for name, task in tasks.items()
    ]
    return pl.concat(drawn)


def length(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `label`: the bin of the number of words. All bins have about as many texts."""
    words = frame["text"].str.count_matches(r"\S+").to_numpy()
    edges = np.quantile(words, np.arange(1, BINS) / BINS)
    return frame.with_columns(label=pl.Series(np.searchsorted(edges, words)))


def word(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the texts that have exactly one of the WORDS words, and `label`: this word."""
    tokens = frame["text"].str.to_lowercase().str.extract_all(r"\w+").list.unique()
    counts = tokens.explode().value_counts(name="texts").filter(pl.col("text").str.len_chars() >= LETTERS)
    distance = (pl.col("texts") - FREQUENCY * len(frame)).abs()
    words = counts.sort(distance, "text")["text"].head(WORDS).to_list()
    found = frame.with_columns(label=tokens.list.set_intersection(words))
    return found.filter(pl.col("label").list.len() == 1).with_columns(pl.col("label").list.first())


def shift(frame: pl.DataFrame, generator: np.random.Generator) -> pl.DataFrame:
    """Swap two different neighbouring words in a random half. Add `label`: whether they were swapped."""
    swapped = []
    for number, text in zip(generator.permutation(len(frame)), frame["text"], strict=True):
        words = text.split()
        places = [i for i in range(len(words) - 1) if words[i].lower() != words[i + 1].lower()]
        if number % 2 and places:
            i = int(generator.choice(places))
            words[i : i + 2] = words[i + 1], words[i]
        swapped.append((" ".join(words), bool(number % 2 and places)))
    new, label = zip(*swapped, strict=True)
    return frame.with_columns(text=pl.Series(new), label=pl.Series(label, dtype=pl.Int64))
