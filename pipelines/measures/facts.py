"""Find private facts in a text, and count which of them an inverted text recovers.

A fact is a piece of the original text with a kind (names, amounts, ...). The generator plants it, or
`annotate` finds it by pattern. The patterns know English, and American forms of numbers: texts of other
languages have few facts. A guess recovers a fact if it contains the fact's words, side by side and in
order; case, spacing and punctuation are ignored. A floor is a guess from the vector of another text, or from
no vector. Facts that a floor recovers, too, are no leak. A longer number is another one: $5.99 does not state
$5.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import torch

from pipelines.measures import mean_and_error, numbered
from pipelines.measures.intervals import Interval, difference
from pipelines.measures.inversion import WORD, normal, words

UNKNOWN = "not in the attacker's texts"  # the kind of facts that no text of the attacker contains

MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
# Kinds are searched in this order. A later kind does not see the facts that an earlier one has found. A
# search is linear in time only if it tries no character twice. So a pattern also matches a run of characters
# that begins like a fact and is none: then its group `no` matches, and the match is dropped.
PATTERNS = {
    "emails": re.compile(r"[\w.+-]++(?:@[\w-]++(?:\.[\w-]++)+|(?P<no>))"),
    "dates": re.compile(
        r"\b(?:\d{1,2}[/-]\d{1,2}[/-]\d{2,4}|\d{4}-\d{2}-\d{2}"
        rf"|{MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:, ?\d{{4}})?|\d{{1,2}} {MONTH}(?: \d{{4}})?)\b"
    ),
    "amounts": re.compile(
        r"[$€£] ?\d[\d,]*(?:\.\d+)?(?: ?(?:million|billion|thousand|mm?|bn?|k)\b)?"
        r"|\b\d[\d,]*+"
        r"(?:(?:\.\d++)?(?: ?(?:million|billion|thousand))? ?(?:dollars|euros|USD|EUR)\b|(?P<no>))",
        re.I,
    ),
    "phones": re.compile(
        r"(?<!\d)(?:\+\d{1,3}[ .-]?|1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?!\d)"
    ),
}
# Between two groups of digits of one number: 5.99, 5 . 99, 10/16, 5 000. Not: 2000 09:15, or 16, 3:30
GOES_ON = re.compile(r"(\s?)[.,/-]\1|\s(?=\d{3}(?!\d))")
COMPANY = re.compile(
    r"\b(?:Inc|Corp|Corporation|Co|Company|LLC|LLP|Ltd|GmbH|AG|Group|Bank|Energy|Partners|Capital|Holdings)$"
)
SENTENCE_OPENERS = (
    "The This That These Those There Here We You He She It They If In On At As For From To With And But "
    "Or So Not No Yes All Any Each Our Your My His Her Please Thanks Thank Dear Hi Hello Regards Best Let "
    "Do Does Did Is Are Was Were Will Would Can Could Should May Have Has Per Attached After Before When "
    "What Where Who How Why While Also Then Once Subject Re Fwd Monday Tuesday Wednesday Thursday Friday "
    "Saturday Sunday"
)
OPENERS = "|".join(SENTENCE_OPENERS.split())  # capitalised as first words of a sentence; no part of a name
# 2 to 4 capitalised words, each whole, after at most 3 openers
NAME = re.compile(
    rf"\b(?:(?:{OPENERS}) ){{0,3}}+(?!(?:{OPENERS})\b)"
    r"(?P<name>[A-Z][a-z]+(?: (?:[A-Z]\.|[A-Z][A-Za-z]+|&)){1,3})(?!\w)"
)


def annotate(text: str) -> dict[str, list[str]]:
    """Return the facts of a text by kind, each once, in order: emails, dates, amounts, phones, names and
    companies.
    """
    found: dict[str, list[str]] = {}
    rest = text
    for kind, pattern in PATTERNS.items():
        pieces, end = [], 0
        for match in pattern.finditer(rest):
            if match.lastgroup != "no":
                found.setdefault(kind, []).append(match.group().strip(" .,"))
                # No later pattern matches across a line break
                pieces += [rest[end : match.start()], "\n" * len(match.group())]
                end = match.end()
        rest = "".join([*pieces, rest[end:]])
    for match in NAME.finditer(rest):
        name = match["name"].removesuffix(" &")
        if " " in name:
            found.setdefault("companies" if COMPANY.search(name) else "names", []).append(name)
    return {kind: list(dict.fromkeys(facts)) for kind, facts in found.items()}


def stated(text: str) -> list[str]:
    """Return the facts of a text of every kind, each once."""
    return list(dict.fromkeys(fact for phrases in annotate(text).values() for fact in phrases))


def recovers(guess: str, fact: str) -> bool:
    """Return whether the guess contains the fact's words, side by side and in order."""
    return bool(words(fact)) and _states(_padded(guess), _padded(fact))


def _padded(text: str) -> str:
    """Return the words of a text, each between blanks, with "~" before a number that continues another."""
    said, end = [], -1  # where the number before this word ended; -1: it was none
    text = normal(text)
    for match in WORD.finditer(text):
        word = match.group()
        gap = GOES_ON.match(text, end) if end >= 0 and word.isdigit() else None
        goes_on = gap and gap.end() == match.start()
        said.append(f"~{word}" if goes_on else word)
        end = match.end() if word.isdigit() else -1
    return f" {' '.join(said)} "


def _states(text: str, fact: str) -> bool:
    """Return whether a padded text contains the words of a padded fact, and no number there goes on."""
    parts = fact.replace("~", "").split()
    if not all(part in text for part in parts):  # much faster
        return False
    return re.search(f" {' ~?'.join(map(re.escape, parts))} (?!~)", text) is not None


@dataclass(frozen=True)
class Found:
    """One recoverable fact of a text, and whether the guess recovers it."""

    example: int
    kind: str
    fact: str
    recovered: bool


def check(guesses: Sequence[str], facts: Sequence[Mapping[str, Sequence[str]]]) -> list[Found]:
    """Look for every text's facts in its guess. Takes n guesses and n {kind: facts}."""
    out = []
    for i, (guess, planted) in enumerate(zip(guesses, facts, strict=True)):
        said = _padded(guess)
        for kind, phrases in planted.items():
            out += [Found(i, kind, f, _states(said, _padded(f))) for f in dict.fromkeys(phrases) if words(f)]
    return out


def counts(found: Mapping[str, Sequence[Found]]) -> dict[str, dict[str, int]]:
    """Return {kind: {recovered, recoverable}} of facts that `by_kind` returned."""
    return {
        kind: {"recovered": sum(one.recovered for one in some), "recoverable": len(some)}
        for kind, some in found.items()
    }


def by_kind(found: Sequence[Found], unknown: Set[str]) -> dict[str, list[Found]]:
    """Return facts by kind, `all` of them, and those that are in `unknown` as one more kind, UNKNOWN."""
    out: dict[str, list[Found]] = {}
    for one in found:
        out.setdefault(one.kind, []).append(one)
    return out | {UNKNOWN: [one for one in found if one.fact in unknown], "all": list(found)}


def unknown_to(texts: Sequence[str], facts: Sequence[Mapping[str, Sequence[str]]]) -> set[str]:
    """Return the facts that occur in none of the texts.

    An attacker who only copies these texts recovers none of them.
    """
    everything = "|".join(map(_padded, texts))
    distinct = {fact for kinds in facts for phrases in kinds.values() for fact in phrases}
    return {fact for fact in distinct if not _states(everything, _padded(fact))}


def above_floor(found: Sequence[Found], floor: Sequence[Found], documents: Sequence[str]) -> Interval:
    """Return the share of facts that an attack recovers, less the share that the floor recovers, with its
    95 % interval.

    found, floor: the same facts in the same order. documents: the document of each example. The interval
    covers Newcombe's, in which facts are independent, and Student's, in which only documents are. With one
    document it is -1 to 1. Raises ValueError if there is no fact.
    """
    ours, theirs = (sum(one.recovered for one in side) for side in (found, floor))
    gains = torch.tensor([float(a.recovered) - b.recovered for a, b in zip(found, floor, strict=True)])
    of_facts = numbered([documents[one.example] for one in found])
    error = mean_and_error(gains, of_facts)[1]
    by_fact = difference(ours, len(found), theirs, len(found))
    return by_fact.widened(error, int(of_facts.max()) + 1).within(-1, 1)
