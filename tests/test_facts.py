"""Facts: found by pattern, recovered only when they are there whole."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.measures import facts
from pipelines.measures.intervals import difference


def test_annotates_by_pattern():
    text = (
        "John Q. Smith and Jo McDonald of Enron Capital Corp. wired $2.5 million on "
        "March 3, 2001 and 1/15/01; call (713) 853-4567 or write to j.smith@enron.com. Please ask Mary Jones."
    )
    found = facts.annotate(text)
    assert {"John Q. Smith", "Jo McDonald", "Mary Jones"} <= set(found.pop("names"))
    assert found == {
        "amounts": ["$2.5 million"],
        "dates": ["March 3, 2001", "1/15/01"],
        "phones": ["(713) 853-4567"],
        "emails": ["j.smith@enron.com"],
        "companies": ["Enron Capital Corp"],
    }
    assert facts.annotate("please let me know what you think about this when you can") == {}
    assert facts.annotate("Dear Anna Maria Sofia Lund") == {"names": ["Anna Maria Sofia Lund"]}
    assert facts.stated("Ann Smith owes Bo Jones $5; Ann Smith pays.") == ["$5", "Ann Smith", "Bo Jones"]


@pytest.mark.parametrize(
    ("guess", "fact", "said"),
    [
        ("the fee is $ 5 . 20 today", "$5.20", True),
        ("mr john smith called", "John Smith", True),
        ("john called smith", "John Smith", False),
        ("the fee is 5.20", "$5.20", False),
        ("about 125 dollars", "25 dollars", False),
        ("it costs $5,000,000", "$5,000", False),
        ("it costs $ 5 000, or", "$5,000", True),
        ("it costs $5.99", "$5", False),
        ("call 555-123-4567-999", "555-123-4567", False),
        ("call +1 555-123-4567", "555-123-4567", False),
        ("on May 5 2001 he", "May 5", True),
        ("", "John", False),
        ("anything", "...", False),
    ],
)
def test_a_fact_is_recovered_whole_or_not_at_all(guess, fact, said):
    assert facts.recovers(guess, fact) is said


def test_counts_recovered_and_recoverable_per_kind():
    found = facts.check(
        ["ann lee owes $5", "nothing"],
        [{"names": ["Ann Lee", "Ann Lee", "Bo Ek"], "amounts": ["$5"]}, {"names": ["Cy Dow"]}],
    )
    assert facts.counts(facts.by_kind(found, {"Bo Ek"})) == {
        "names": {"recovered": 1, "recoverable": 3},
        "amounts": {"recovered": 1, "recoverable": 1},
        facts.UNKNOWN: {"recovered": 0, "recoverable": 1},
        "all": {"recovered": 2, "recoverable": 4},
    }
    assert facts.counts(facts.by_kind([], set()))["all"] == {"recovered": 0, "recoverable": 0}


def test_facts_in_no_known_text_are_unknown():
    planted = [{"names": ["Ann Lee", "Bo Ek"], "amounts": ["$5"]}, {"names": ["Cy Dow"]}]
    texts = ["ann  LEE, again", "Bo and Ek", "it costs $50", "it costs $5.99", "met Cy", "Dow came"]
    assert facts.unknown_to(texts, planted) == {"Bo Ek", "$5", "Cy Dow"}


@pytest.mark.parametrize(
    "text",
    [
        "Sent by Ann Lee on 10/16/2000 09:15 AM",
        "Due January 16, 3:30 p.m.",
        "$23.00=09  $19.25=09",
        "Paid $500 20 days ago",
        "call 1-800-368-3804.",
        "at 9:30 10/16/2000",
    ],
)
def test_a_copy_recovers_every_fact_of_its_text(text):
    stated = facts.stated(text)
    assert stated
    assert all(facts.recovers(text, fact) for fact in stated)
    assert not facts.unknown_to([text], [{"all": stated}])


def test_facts_of_one_document_are_not_independent():
    """Ten documents of ten facts, each wholly recovered or not at all, against an independent reference."""
    ours = [facts.Found(i, "names", f"{i}", i % 10 < 4) for i in range(100)]
    floor = [replace(one, recovered=one.example == 4) for one in ours]
    newcombe = difference(40, 100, 1, 100)
    apart = facts.above_floor(ours, floor, [str(i) for i in range(100)])
    assert apart.low <= newcombe.low < newcombe.high <= apart.high
    together = facts.above_floor(ours, floor, [str(i % 10) for i in range(100)])
    means = np.array([1.0, 1, 1, 1, -0.1, 0, 0, 0, 0, 0])  # gain of each document
    error = means.std(ddof=1) / np.sqrt(10)
    assert together.value == pytest.approx(means.mean())
    expected = 0.39 - 2.2622 * error, 0.39 + 2.2622 * error  # Student's t of 9 degrees of freedom
    assert (together.low, together.high) == pytest.approx(expected, abs=1e-4)
    assert tuple(facts.above_floor(ours, floor, ["one"] * 100)) == pytest.approx((0.39, -1, 1))


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("a1,2 dollars", "amounts", ["2 dollars"]),
        ("x ,,25 dollars and 1.5.6 euros", "amounts", ["25 dollars", "5.6 euros"]),
        ("1,2,3 and 4,000 USD", "amounts", ["4,000 USD"]),
        ("a@b c.d@e.org", "emails", ["c.d@e.org"]),
    ],
)
def test_characters_that_are_no_fact_do_not_hide_one(text, kind, found):
    assert facts.annotate(text)[kind] == found
