"""Generated triples for supervised SimCSE: a sentence, what it entails, leaves open, and contradicts."""

from __future__ import annotations

import polars as pl

from pipelines.corpora.sources.synthetic.claims import PLAIN, WITH_PLACE, claim, other
from pipelines.corpora.sources.synthetic.engine import Pen
from pipelines.study import SyntheticCorpus

DENIALS = (
    "It is not true that {subject} {act}.",
    "Nobody would say that {subject} {act}.",
    "Contrary to what is said, it is false that {subject} {act}.",
    "There is no truth in the claim that {subject} {act}.",
)


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return generated triples: id, text (anchor), positive (entailed), neutral, negative (contradiction).

    No triple occurs twice.
    """
    pen, wanted = Pen(p.seed), p.rows or 2000
    rows: dict[tuple[str, str, str], str] = {}
    while len(rows) < wanted:
        a = claim(pen)
        a = a if pen.chance(0.4) else other(pen, a, "act", nearby=pen.chance(0.5))
        a = a if pen.chance(0.4) else other(pen, a, "setting", nearby=False)
        triple = (a.say(pen.any(WITH_PLACE)), a.say(pen.any(PLAIN)), a.say(pen.any(DENIALS)))
        rows.setdefault(triple, other(pen, a, "act", nearby=False).say(pen.any(PLAIN)))
    return pl.DataFrame(
        {
            "id": [f"nli-{i:06d}" for i in range(wanted)],
            "text": [text for text, _, _ in rows],
            "positive": [positive for _, positive, _ in rows],
            "neutral": list(rows.values()),
            "negative": [negative for _, _, negative in rows],
        }
    )
