"""How far a loop is, as a log shows it: whole lines, and of a short loop none."""

from pipelines.runtime import progress as module
from pipelines.runtime.progress import progress


def test_a_short_loop_says_nothing_and_a_long_one_lines_without_carriage_returns(capsys, monkeypatch):
    assert list(progress(range(3), what="count", unit="steps")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(module, "SECONDS", 0.0)
    assert list(progress(range(3), what="count", unit="steps")) == [0, 1, 2]
    with progress(what="write", unit="texts", total=8) as bar:
        bar.update(5)
    assert list(progress(iter("ab"), what="read")) == ["a", "b"]
    out, err = capsys.readouterr()
    assert (out, "\r" in err) == ("", False)
    said = [line.partition(",")[0] for line in err.splitlines()]
    assert {"count: 2 of 3 steps", "write: 5 of 8 texts", "read: 1"} <= set(said)
