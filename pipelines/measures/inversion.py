"""Score inverted texts against their originals. All scores but the cosine are in [0, 1]; papers multiply them
by 100.

Token F1, BLEU, ROUGE-L and exact matches compare `words`, without case, spacing and most punctuation. Spaces
and signs separate words, so these scores are not meant for Chinese, Japanese or Thai.
vec2text (Morris et al. 2023) compares texts as they are, which is stricter. `set_f1` keeps case and
punctuation, too.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence, Sized

import numpy as np
import torch
from torch import Tensor

from pipelines.measures import Measure

# Vowels of Hindi, for example. `re` counts them as signs.
MARKS = "".join(c for c in map(chr, range(0x300, 0xFE00)) if unicodedata.category(c) in ("Mn", "Mc"))
WORD = re.compile(rf"[^\W_](?:[^\W_]|[{MARKS}])*|[$€£%@]")  # other punctuation is not scored
TOKEN = re.compile(r"\w+|[^\w\s]")
MEASURES = [
    Measure("token_f1", "token F1"),
    Measure("set_f1", "set F1"),
    Measure("bleu", "BLEU"),
    Measure("rouge_l", "ROUGE-L"),
    Measure("exact"),
    Measure("cosine", "cosine"),  # for the re-embedded text, which needs an encoder
]
ORDER = 4  # BLEU compares sequences of at most so many words
Words = Sequence[str]


def text_scores(guesses: Sequence[str], texts: Sequence[str]) -> dict[str, Tensor]:
    """Return every measure of MEASURES but the cosine, per example. n guesses, n originals -> {name: (n,)}

    exact: 1 if all words are the same, in the same order; case and punctuation may differ.
    """
    pairs = [(words(guess), words(text)) for guess, text in zip(guesses, texts, strict=True)]
    out = {
        "token_f1": [token_f1(*pair) for pair in pairs],
        "set_f1": [set_f1(*pair) for pair in zip(guesses, texts, strict=True)],
        "bleu": [bleu(*pair) for pair in pairs],
        "rouge_l": [rouge_l(*pair) for pair in pairs],
        "exact": [float(guess == true) for guess, true in pairs],
    }
    return {name: torch.tensor(scores, dtype=torch.float64) for name, scores in out.items()}


def words(text: str) -> list[str]:
    """Return lower-cased words, numbers and the signs $ € £ % @, in Unicode's form NFC."""
    return WORD.findall(normal(text))


def normal(text: str) -> str:
    """Return the text in which words are found: lower-cased, in Unicode's form NFC."""
    text = text.casefold()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def token_f1(guess: Words, true: Words) -> float:
    """Return SQuAD's F1: the harmonic mean of precision and recall over multisets of words.

    Articles count as words; SQuAD leaves them out.
    """
    return _f1(sum((Counter(guess) & Counter(true)).values()), guess, true)


def set_f1(guess: str, true: str) -> float:
    """Return vec2text's F1 over sets of tokens, case kept.

    Tokens are words and single marks instead of nltk's tokens.
    """
    guessed, wanted = set(TOKEN.findall(guess)), set(TOKEN.findall(true))
    return _f1(len(guessed & wanted), guessed, wanted)


def _f1(common: int, guess: Sized, true: Sized) -> float:
    """Return the F1 of what two texts have in common; 1 if both are empty."""
    both = len(guess) + len(true)
    return 2 * common / both if both else 1.0


def bleu(guess: Words, true: Words) -> float:
    """Return BLEU-4 of words with the brevity penalty (Papineni et al. 2002); 0 if no word is right.

    Orders 2 to 4 are smoothed by adding one (Lin and Och 2004).
    """
    if not guess or not true:
        return float(list(guess) == list(true))
    logs = 0.0
    for n in range(1, ORDER + 1):
        guessed, wanted = _grams(guess, n), _grams(true, n)
        right, total = sum((guessed & wanted).values()), sum(guessed.values())
        if n == 1 and not right:
            return 0.0
        logs += math.log((right + (n > 1)) / (total + (n > 1)))
    return min(1.0, math.exp(1 - len(true) / len(guess))) * math.exp(logs / ORDER)


def _grams(words: Words, n: int) -> Counter:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def rouge_l(guess: Words, true: Words) -> float:
    """Return the F1 of the longest common subsequence (Lin 2004): 2 LCS / (|guess| + |true|)."""
    numbers = {word: i for i, word in enumerate(true)}
    ids = np.array([numbers[word] for word in true])
    row = np.zeros(len(true) + 1, dtype=int)  # the LCS of the guess so far and the first j words
    for number in (numbers[word] for word in guess if word in numbers):
        row[1:] = np.maximum.accumulate(np.maximum(row[1:], row[:-1] + (ids == number)))
    return _f1(int(row[-1]), guess, true)
