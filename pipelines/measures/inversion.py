"""How near an inverted text comes to the original, per example, all in [0, 1] (papers write them x 100).

token F1: SQuAD's, on multisets of lower-cased words. set F1: vec2text's, on sets of words and marks with their case. BLEU-4
with add-one smoothing of orders 2..4 (Lin & Och 2004) and the brevity penalty of Papineni et al. 2002. ROUGE-L: F1 of the
longest common subsequence (Lin 2004). exact: equal as word sequences.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

WORD = re.compile(
    r"[^\W_]+|[$€£%@]"
)  # case, spacing and punctuation are no information worth a score; currency and per cent are


TOKEN = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """Lower-cased words, numbers and the signs $ € £ % @."""
    return WORD.findall(text.casefold())


def token_f1(guess: Sequence[str], true: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over multisets of words; two empty texts agree."""
    if not guess or not true:
        return float(list(guess) == list(true))
    common = sum((Counter(guess) & Counter(true)).values())
    return 2 * common / (len(guess) + len(true))


def set_f1(guess: str, true: str) -> float:
    """vec2text's and vec2vec's F1: of the sets of tokens, case kept; words and single marks here, nltk's tokens there."""
    guessed, wanted = set(TOKEN.findall(guess)), set(TOKEN.findall(true))
    if not guessed or not wanted:
        return float(guessed == wanted)
    return 2 * len(guessed & wanted) / (len(guessed) + len(wanted))


def bleu(guess: Sequence[str], true: Sequence[str], order: int = 4) -> float:
    """exp of the mean log precision of 1..order-grams, times the brevity penalty; 0 if no word is right."""
    if not guess or not true:
        return float(list(guess) == list(true))
    logs = 0.0
    for n in range(1, order + 1):
        guessed, wanted = _grams(guess, n), _grams(true, n)
        right, total = sum((guessed & wanted).values()), sum(guessed.values())
        if n == 1 and not right:
            return 0.0
        logs += math.log((right + (n > 1)) / (total + (n > 1)))
    return min(1.0, math.exp(1 - len(true) / len(guess))) * math.exp(logs / order)


def _grams(words: Sequence[str], n: int) -> Counter:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def rouge_l(guess: Sequence[str], true: Sequence[str]) -> float:
    """2 LCS / (|guess| + |true|)."""
    if not guess or not true:
        return float(list(guess) == list(true))
    row = [0] * (len(true) + 1)
    for word in guess:
        before = 0
        for j, other in enumerate(true, 1):
            kept = row[j]
            row[j] = before + 1 if word == other else max(row[j], row[j - 1])
            before = kept
    return 2 * row[-1] / (len(guess) + len(true))


def text_scores(guesses: Sequence[str], texts: Sequence[str]) -> dict[str, Tensor]:
    """Per-example scores of guesses against originals. n, n texts -> each (n,)"""
    out: dict[str, list[float]] = {"token_f1": [], "set_f1": [], "bleu": [], "rouge_l": [], "exact": []}
    for guess, text in zip(guesses, texts, strict=True):
        g, t = words(guess), words(text)
        out["token_f1"].append(token_f1(g, t))
        out["set_f1"].append(set_f1(guess, text))
        out["bleu"].append(bleu(g, t))
        out["rouge_l"].append(rouge_l(g, t))
        out["exact"].append(float(g == t))
    return {k: torch.tensor(v, dtype=torch.float64) for k, v in out.items()}
