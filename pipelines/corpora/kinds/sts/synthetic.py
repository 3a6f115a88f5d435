"""Pairs of generated sentences; the score, 0 to 5, says how much of the claim they share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import polars as pl

from pipelines.corpora.sources.synthetic.claims import PLAIN, WITH_PLACE, Claim, claim, other
from pipelines.corpora.sources.synthetic.engine import Pen
from pipelines.study import SyntheticCorpus


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return generated pairs: id, text, pair, score, split ("dev" for the first half, then "test"). No pair
    occurs twice.

    Score 5: one claim in two wordings. 4: the second leaves out the place. 3: the act is a related one.
    2: one subject, two unrelated acts. 1: another subject and act of the same field. 0: another domain.
    The wording around a claim is drawn apart from the score, so that common words tell only a part of it.
    """
    pen, wanted = Pen(p.seed), p.rows or 2000
    rows: dict[tuple[str, str], float] = {}
    for text, pair, score in _pairs(pen):
        rows.setdefault((text, pair), score)
        if len(rows) == wanted:
            break
    data = {
        "id": [f"sts-{i:06d}" for i in range(len(rows))],
        "text": [text for text, _ in rows],
        "pair": [pair for _, pair in rows],
        "score": list(rows.values()),
        "split": ["dev" if 2 * i < len(rows) else "test" for i in range(len(rows))],
    }
    return pl.DataFrame(data, schema_overrides={"score": pl.Float64})


def _pairs(pen: Pen) -> Iterator[tuple[str, str, float]]:
    for i in count():
        score, a = i % 6, claim(pen)
        templates = pen.rng.permutation(len(WITH_PLACE))
        text = a.say(WITH_PLACE[templates[0]])
        second = pen.any(PLAIN) if score == 4 else WITH_PLACE[templates[1]]
        yield text, _counterpart(pen, a, score).say(second), float(score)


def _counterpart(pen: Pen, a: Claim, score: int) -> Claim:
    match score:
        case 3:
            return other(pen, a, "act", nearby=True)
        case 2:
            return other(pen, other(pen, a, "act", nearby=False), "setting", nearby=False)
        case 1:
            return other(pen, other(pen, a, "subject", nearby=False), "act", nearby=False)
        case 0:
            while (b := claim(pen)).domain == a.domain:
                pass
            return b
    return a
