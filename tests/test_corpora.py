"""Corpora of every kind, from files, vectors, docstrings and the hub; draws and splits; hostile files."""

import gzip
import json
import mailbox
import os
import random
import re
import shutil
import string
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpora import core
from pipelines.corpora.core import collect
from pipelines.corpora.core.chunk import cut
from pipelines.corpora.kinds import probes, tweets
from pipelines.corpora.kinds.tweets import TOPICS, named
from pipelines.corpora.sources import library
from pipelines.runtime.store import check_corpus
from pipelines.study import Chunk, HubCorpus, LibraryCorpus, PathCorpus, VectorsCorpus
from pipelines.study import corpora as study_corpora
from pipelines.study.corpora import KINDS
from tests.small import ROOT, blocks, completed, put, refusal

pytestmark = pytest.mark.usefixtures("own_folder")
TEXTS = [f"text number {i} of the file" for i in range(20)]


def file(path, kind="passages", **more):
    return PathCorpus(source="path", kind=kind, path=str(path), **more)


def collected(columns, **keys):
    """Return the corpus of a parquet file with these columns."""
    pl.DataFrame(columns).write_parquet("t.parquet")
    return read("t.parquet", **keys)


def by_id(frame, column):
    return dict(frame.select("id", column).iter_rows())


def read(*path, **more):
    """Return the corpus of a file or folder."""
    return collect(file(*path, **more))


def texts_of(*path, **more):
    return read(*path, **more)["text"].to_list()


def refused(row, says):
    with refusal(says) as caught:
        collect(row)
    return str(caught.value)


# ---------------------------------------------------------------- path


WRITTEN_AS = {
    "parquet": pl.DataFrame.write_parquet,
    "csv": pl.DataFrame.write_csv,
    "tsv": lambda table, path: table.write_csv(path, separator="\t"),
    "jsonl": pl.DataFrame.write_ndjson,
}


@pytest.mark.parametrize("suffix", WRITTEN_AS)
def test_tables_are_read_with_a_column_mapping(suffix):
    theirs = Path(f"t.{suffix}")
    table = pl.DataFrame({"note": range(20), "body": TEXTS, "topic": ['["a", "b"]'] * 20})
    WRITTEN_AS[suffix](table, theirs)
    row = file(theirs, columns={"id": "note", "text": "body", "labels": "topic"})
    frame = collect(row)
    check_corpus("t", frame)
    assert frame.columns == ["id", "text", "split", "labels", "document", "same_as"]
    assert by_id(frame, "text") == {str(i): text for i, text in enumerate(TEXTS)}
    assert frame["labels"][0].to_list() == ["a", "b"]  # written as JSON
    if suffix == "jsonl":
        theirs.write_bytes(b"\xef\xbb\xbf" + theirs.read_bytes())  # it may begin with a byte order mark
        assert collect(row).equals(frame)


@pytest.mark.parametrize("kind", ["passages", "notes"])
def test_signs_of_a_pattern_in_a_name_are_no_pattern(kind):
    put("NOTEEVENTS1.csv", "ROW_ID,text,TEXT\n1,another file,another file\n")
    put("NOTEEVENTS[1].csv", "ROW_ID,text,TEXT\n1,this file,this file\n")
    assert texts_of("NOTEEVENTS[1].csv", kind) == ["this file"]


def test_txt_is_a_text_per_line_paragraph_or_file():
    put("a/lines.txt", "one\ntwo\nthree\n")
    put("paragraphs.txt", "one\nstill one\n\n\ntwo\n")
    assert texts_of("a/lines.txt") == ["one", "two", "three"]
    assert texts_of("paragraphs.txt") == ["one\nstill one", "two"]
    assert read(".")["id"].to_list() == ["a/lines.txt", "paragraphs.txt"]


def message(body):
    return f"From: ann@x.com\nContent-Type: text/plain; charset=utf-8\n\n{body}\n".encode()


@pytest.mark.filterwarnings("error")  # such as of a file that nobody closed
def test_mbox_and_mail_trees():
    box, bodies = mailbox.mbox("m.mbox"), ("Gas costs 5 £.", "Oil, too.")
    for body in bodies:
        box.add(message(body))
    box.close()
    frame = read("m.mbox", "emails", columns={"sender": "from"})
    assert frame.select("text", "sender").rows() == [(body, "ann@x.com") for body in bodies]
    for owner in ("allen-p", "bass-e"):
        folder = Path("tree", owner, "inbox")
        put(folder / "1.", message(f"Mail of {owner}"))
    frame = read("tree", "emails", columns={"labels": "owner", "folder": "folder"})
    assert frame.select("labels", "folder").rows() == [(["allen-p"], "inbox"), (["bass-e"], "inbox")]
    unknown = (
        b"To: a\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/html; charset=x-y\n\n"
    )
    put(folder / "1.", unknown + b"<p>Gas</p>\n--b--")
    assert texts_of("tree", "emails") == ["Mail of allen-p", "Gas"]


def test_draw_is_seeded_and_keeps_the_order(monkeypatch):
    Path("root").mkdir()
    pl.DataFrame({"id": [f"{i:02d}" for i in range(20)], "text": TEXTS}).write_parquet("root/t.parquet")
    monkeypatch.setenv("CORPORA_ROOT", "root")
    frame, again, other = (read("t.parquet", rows=8, test=3, seed=s) for s in (1, 1, 2))
    assert frame["split"].value_counts(sort=True).rows() == [("train", 5), ("test", 3)]
    assert frame["id"].is_sorted()
    assert frame.equals(again)
    assert frame["id"].to_list() != other["id"].to_list()


PRIVATE = "my secret diagnosis"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.csv", "prose,title\nx,y\n", "no column 'text'; there are: prose, title; rename one to 'text'"),
        ("t.csv", "text\na\n \nb\n", "empty, the first is row 1"),
        ("t.csv", "text\na\nb\na\n", "2 rows share their text, the first is row 0"),
        ("t.csv", "text\n", "no rows"),
        ("x.odt", "", ".odt is none of"),
        ("few.txt", "one\n", "leaves no row"),
        ("latin.csv", b"text\nfine\ncaf\xe9\n", "line 3 is not UTF-8"),
        ("quote.csv", f'text,id\nfine,1\n"{PRIVATE}\nmore,2\n', "line 3: unexpected end of data"),
        ("header.csv", f"{PRIVATE},{PRIVATE} of 1 May\nb,c\n", "no column 'text'; there are: 2, whose names"),
        ("semicolon.csv", f"{PRIVATE};note\na;b\n", "there are: 1 column, not shown because its name looks"),
        ("ragged.csv", f"text,id\na,1\n{PRIVATE},2,{PRIVATE}\n", "line 3 has 3 fields, the header 2"),
        ("cut.jsonl", f'{{"text": "a"}}\n{{"text": "{PRIVATE}\n', "line 2 is not JSON"),
        (
            "ragged.csv",
            f"text,id\n{'long ' * 30_000},1\n{PRIVATE},2,3\n",
            "line 3 has 3 fields, the header 2",
        ),
        ("five.jsonl", '{"text": "a"}\n5\n', "line 2 is no mapping of columns"),
        ("nan.jsonl", f'{{"text": "{PRIVATE}", "score": NaN}}\n', "line 1 is not JSON"),
        ("none.jsonl", "\n", "none.jsonl: no rows"),
        ("score.jsonl", f'{{"text": "a", "pair": "b", "score": "{PRIVATE}"}}\n', "a score is not a number"),
    ],
)
def test_a_bad_file_gets_one_line_without_a_word_of_its_texts(capsys, name, content, says):
    put(name, content)
    line = refused(file(name, "sts" if name == "score.jsonl" else "passages", test=1), says)
    assert name in line
    assert "secret" not in line + "".join(capsys.readouterr())


def test_absent_files_and_bad_vectors_are_named():
    refused(file("gone.csv"), "no such file")
    refused(file("gone" * 99), "gone: file name too long")
    np.save("v.npy", [[1, 1], [1, 1], [1, np.nan]])
    refused(vectors("v.npy"), "not finite, the first in row 2")
    pl.DataFrame({"id": ["a", None], "vector": [[1.0, 2.0]] * 2}).write_parquet("v.parquet")
    refused(vectors("v.parquet"), "1 rows have no id, the first is row 1")
    refused(vectors("v.parquet", columns={"id": "key"}), "found no column 'key'; there are: id, vector")
    put("v.jsonl", '{"id": "a", "vector": [1, 2]}\n' * 2)
    refused(
        vectors("v.jsonl", columns={"id": "id"}), "found no column 'id'; only parquet, Arrow and npz files"
    )


def test_a_kind_is_a_package_of_kinds_and_names_its_sources(monkeypatch):
    with pytest.raises(ValueError, match="'poems' is no kind of corpus; there are: emails, images"):
        file(".", "poems")
    with pytest.raises(ValueError, match=r"^: scenes has no source path; its sources are synthetic$"):
        file(".", "scenes").check(Mock())
    monkeypatch.setattr(tweets, "rows", lambda p, source: pl.DataFrame({"text": ["x"]}))
    refused(file(".", "tweets"), "kind tweets: `rows` returns no column id")
    monkeypatch.setattr(study_corpora, "_PACKAGES", Path("kinds"))
    for code in ("", "SOURCES = 'path'\n", "SOURCES = ('path')\n", "SOURCES = ()\n"):
        put("kinds/tweets/__init__.py", code)
        with pytest.raises(
            ValueError, match=r"kind tweets: its file needs a line such as SOURCES = \('path',\)$"
        ):
            file(".", "tweets").check(Mock())


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "returns NoneType, not a polars DataFrame"),
        (pl.LazyFrame({"id": ["a"], "text": ["x"]}), "returns LazyFrame, not a polars DataFrame"),
        (pl.DataFrame({"id": [], "text": []}), "returns no rows"),
        (
            pl.DataFrame({"id": ["a", "b"], "text": ["x", None]}),
            "1 rows have no id or no text, the first is row",
        ),
        (pl.DataFrame({"id": ["a"], "text": [["x"]]}), "the column for text is List.String., not text"),
        (
            pl.DataFrame({"id": ["a"], "text": ["x y"]}),
            "ignores `chunk`; it must call texts.rows",
        ),
    ],
)
def test_what_rows_of_a_kind_returns_is_checked(monkeypatch, returned, says):
    monkeypatch.setattr(tweets, "rows", lambda p, source: returned)
    refused(file(".", "tweets", chunk=Chunk(size=1)), says)


def test_the_example_of_contributing_is_a_kind(monkeypatch):
    code, _ = blocks("CONTRIBUTING.md", "python")
    example = ModuleType("example")
    exec(code, vars(example))
    monkeypatch.setitem(sys.modules, "pipelines.corpora.kinds.tweets", example)
    poems = {"text": ["roses are red", "violets are blue"], "themes": ["love;flowers", None]}
    frame = collected(poems, kind="tweets", chunk=Chunk(size=2, first=True))
    assert frame["text"].to_list() == ["roses are", "violets are"]
    assert frame["labels"].to_list() == [["love", "flowers"], []]


def test_configuration_lists_every_kind():
    page = (ROOT / "docs/configuration.md").read_text("utf-8")
    [listed] = re.findall(r"`kind` says what the texts are: (.+?)\. It decides", page, re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", listed)) == [*KINDS]


def test_numbers_of_a_kind_become_text(monkeypatch):
    made = pl.DataFrame({"id": [1, 2], "text": TEXTS[:2], "split": [0, 1], "labels": [3, 4]})
    monkeypatch.setattr(tweets, "rows", lambda p, source: made)
    frame = read(".", "tweets")
    check_corpus("t", frame)
    assert frame.select("id", "split", "labels").rows() == [("1", "0", ["3"]), ("2", "1", ["4"])]


# ---------------------------------------------------------------- hostile folders, private texts


def test_names_of_columns_are_escaped_and_few(tmp_path):
    names = ["body", "\x1b[31m\nVerdict: aligned", *(f"c{i}" for i in range(10**3))]
    wide = pl.DataFrame({name: ["x"] for name in names})
    for where in ("a.parquet", "b.parquet"):
        wide.rename({"body": f"{where[0]}\n"}).write_parquet(tmp_path / where)
    for row in (file(tmp_path / "a.parquet"), vectors(tmp_path / "a.parquet"), file(tmp_path)):
        line = refused(row, "column")
        assert len(line) < 600
        assert line.isprintable()


def test_links_that_leave_a_folder_and_pipes_are_not_read(capsys):
    put("outside.txt", "not mine")
    put("folder/a.txt", "mine")
    Path("folder/link.txt").symlink_to("../outside.txt")
    Path("folder/inner.png").symlink_to("a.txt")
    os.mkfifo("folder/pipe.txt")
    assert texts_of("folder") == ["mine"]
    assert "1 links lead out of the folder" in capsys.readouterr().out
    refused(file("folder/pipe.txt"), "neither a regular file nor a folder")


def test_a_folder_of_documents_is_read_and_says_what_it_skips(capsys):
    page = "<title>T</title><script>no()</script><p>one<br>two &amp; <b>three</b></p>"
    page += "<table><tr><th>Invoice</th><td>4711</td></tr></table><pre>x</pre>y<hr>z"
    files = {"a.md": "# A", "B.TXT": "bee", "c/a.html": page, "n.csv": "x", ".git/x.md": "no"}
    for name, content in files.items():
        put(name, content)
    frame = read(".", test=1)
    shown = {
        "B.TXT": "bee",
        "a.md": "# A",
        "c/a.html": "T\n\none\n\ntwo & three\n\nInvoice 4711\n\nx\n\ny\n\nz",
    }
    assert by_id(frame, "text") == shown
    assert "1 txt, 1 md, 1 html read; skipped 1 md, 1 csv" in capsys.readouterr().out
    put("latin.md", b"caf\xe9")
    refused(file(".", test=1), r"latin\.md: not UTF-8")


def test_a_folder_of_tables_is_one_table(capsys):
    for name in ("a", "b"):
        put(f"{name}.csv", f"body,owner\nmail {name},x\n")
    assert texts_of(".", test=1) == ["mail a", "mail b"]
    assert "the text is column 'body'" in capsys.readouterr().out
    put("c.csv", "body\nmore\n")
    refused(file(".", test=1), "column 'owner' is either only here or only in a.csv")
    for name, value in (("a", "1"), ("b", "{}")):
        put(f"mails.2024/{name}.jsonl", f'{{"text": "{name}", "n": {value}}}\n')
    refused(file("mails.2024"), "mails.2024: cannot be read as a folder: ")


def test_folders_without_texts_and_missing_packages_are_named(monkeypatch):
    Path("mine").mkdir()
    Path("raw").symlink_to("mine")
    refused(file("raw"), "mine: an empty folder")
    put("mine/x.png", b"\x89PNG\n")
    refused(file("raw"), "nothing in it can be read: 1 png; what can: parquet")
    monkeypatch.setitem(sys.modules, "docx", None)
    Path("x.docx").touch()
    refused(file("x.docx"), "docx files need the package python-docx")


def test_an_unreadable_mail_is_named_and_others_are_read(capsys):
    put("bad", b"From: " + b"(" * 10_000 + b"\n\nbody\n")
    put("good", message("Fine."))
    assert texts_of(".", "emails") == ["Fine."]
    assert "1 mails cannot be read and are left out, the first is bad" in capsys.readouterr().out


def test_texts_that_invite_quadratic_time_are_read_fast():
    """The child may use 20 s of CPU time; with the square of 10^5 steps it would need many minutes."""
    code = """
import resource; resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from pipelines.corpora.sources.path import formats
assert formats.shown("a<b>c" + "<" * 10**6) == "ac" + "<" * 10**6
assert formats.shown("a<!-- b" + "<script" * 10**6) == "a"
from pipelines.measures import facts
for pattern in (*facts.PATTERNS.values(), facts.NAME):
    for piece in ("1,", "1 ", "1.", "$1 ", "a", "a.", "a@", "a@b.", "A", "Aa ", "(1", "+1", "May ", ",,1"):
        pattern.findall(piece * 10**5)
"""
    completed("python", "-c", code, cwd=ROOT)


def test_notes_that_unpack_to_far_more_than_text_are_refused():
    row = b'1,"' + bytes(2**24) + b'"\n'
    put("NOTEEVENTS.csv.gz", gzip.compress(b"ROW_ID,TEXT\n" + row))
    refused(file(".", "notes"), "unpacks to more than 50 times its size")


# ---------------------------------------------------------------- chunks


@given(st.integers(0, 60), st.integers(1, 12), st.none() | st.integers(1, 12), st.integers(1, 12))
def test_a_stride_cuts_at_every_offset_and_drops_short_tails(count, size, stride, least):
    size = max(size, least, stride or 1)
    words = [str(i) for i in range(count)]
    pieces = [piece.split() for piece in cut(" ".join(words), Chunk(size=size, stride=stride, least=least))]
    starts = range(0, count, stride or size)
    assert pieces == [words[i : i + size] for i in starts if count - i >= least]


def test_chunks_longer_than_every_text_are_refused():
    put("short.csv", "text\nof four words only\n")
    refused(file("short.csv", chunk={"least": 12}), "short.csv, in chunks of 12 to 45 words: no text is left")


def test_token_chunks_keep_the_characters():
    text = "Unbelievable embeddings of Zürich; " * 60
    pieces = list(cut(text, Chunk(unit="tokens", size=64)))
    assert len(pieces) > 5
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("chunk", "texts"),
    [
        ({"size": 2}, {"p#0": "a b", "p#1": "c d", "p#2": "e", "r#1": "x", "s#0": "f"}),  # r begins as p does
        ({"size": 2, "first": True}, {"p#0": "a b", "s#0": "f"}),
    ],
)
def test_chunks_have_ids_and_labels_of_their_text_and_none_twice(capsys, chunk, texts):
    columns = {"id": list("pqrs"), "text": ["a b c d e", "", "a b x", "f"], "labels": [["l"], [], [], []]}
    frame = collected(columns, chunk=chunk)
    assert by_id(frame, "text") == texts
    assert frame["labels"].to_list() == [["l"] if name[0] == "p" else [] for name in texts]
    assert "1 empty or repeated texts of 4 dropped" in capsys.readouterr().out


def test_no_document_is_on_both_sides_of_a_split_of_the_source(capsys):
    words = " ".join(f"w{i}" for i in range(40))
    texts = [words, f"{words} again", "of another kind", "the last one"]
    frame = collected({"id": range(4), "text": texts, "split": ["train", "test"] * 2})
    assert by_id(frame, "split") == {"1": "test", "2": "train", "3": "test"}
    assert "1 train texts of documents in another split dropped" in capsys.readouterr().out
    unknown = collected({"id": range(4), "text": texts, "split": [None, "test"] * 2})
    assert unknown["split"].null_count() == 2


def test_tasks_keep_validation_rows_and_refuse_chunks():
    columns = {"text": TEXTS, "labels": [["l"]] * 20, "task": ["T"] * 20}
    columns["split"] = ["train", "validation", "test", "train"] * 5
    assert set(collected(columns, kind="tasks")["split"]) == {"train", "dev", "test"}
    with pytest.raises(ValueError, match=r"^: kind tasks has no `chunk` and no `document`$"):
        file("t.parquet", "tasks", chunk={"size": 4}).check(Mock())


def test_held_out_documents_have_texts_that_can_be_held_out():
    assert core._held_out(np.array([0, 500, 600]), 400, 0).tolist() == [False, True, False]


def test_overlapping_chunks_are_on_one_side_of_the_split():
    texts = [" ".join(f"{i}{c}" for c in "abcdefghij") for i in range(30)]

    def cut_to(stride):
        return collected({"text": texts}, chunk={"size": 4, "stride": stride}, test=21)

    def side(frame, split):
        return frame.filter(pl.col("split") == split)["text"].to_list()

    plain, frame, uneven = map(cut_to, (4, 2, 3))
    sides = frame.group_by("document").agg(pl.col("split").unique())
    assert sorted(sides["split"].to_list()) == [["test"]] * 7 + [["train"]] * 23
    assert side(frame, "test") == side(plain, "test")
    assert set(side(frame, "train")) > set(side(plain, "train"))
    words = " ".join(side(uneven, "test")).split()
    assert len(words) == len(set(words))


# ---------------------------------------------------------------- documents


def sentence(*seed):
    """Return forty words that share no sequence of five with those of another seed."""
    rng = random.Random(repr(seed))
    return " ".join(rng.choice(string.ascii_letters) + str(rng.randrange(10_000)) for _ in range(40))


def test_a_column_names_documents_and_test_documents_are_whole():
    columns = {"text": [sentence(i) for i in range(40)], "title": [f"t{i // 4}" for i in range(40)]}
    frame = collected(columns, document="title", test=10)
    sides = frame.group_by("document").agg(pl.col("split").n_unique())
    assert (sides["split"] == 1).all()
    assert (frame["split"] == "test").sum() == 10
    assert len(frame) == 38  # two texts of the third test document are dropped
    refused(file("t.parquet", document="name"), "there is no column 'name'")


def test_chunks_of_a_text_without_a_document_stay_together():
    columns = {"id": list("abc"), "text": [sentence(i) for i in range(3)], "thread": [None, "a", None]}
    frame = collected(columns, document="thread", chunk={"size": 10, "least": 5})
    assert frame["document"].to_list() == ["a"] * 8 + ["c"] * 4


def test_a_mail_and_its_reply_are_one_document():
    mail = sentence(0)
    reply, part = f"Yes. > {mail.upper()!r} Best, Ann", " ".join(mail.split()[:20])
    texts = [mail, sentence(1), reply, sentence(2), part]
    frame = collected({"id": list("abcde"), "text": texts})
    assert frame["document"].to_list() == ["a", "b", "a", "d", "a"]
    assert frame["same_as"].to_list() == ["a", "b", "a", "d", "a"]


@pytest.mark.parametrize(
    "texts",
    [
        [f"{' '.join(sentence(0).split()[:16])} {sentence(i)}" for i in range(1, 9)],
        [f"{sentence(0)} {i}" for i in range(300)],
    ],
    ids=["words in common", "boilerplate of many"],
)
def test_shared_boilerplate_makes_no_near_duplicates(texts):
    assert collected({"text": texts})["document"].n_unique() == len(texts)


def test_near_duplicates_of_large_documents_are_dropped(capsys):
    texts = [sentence(i) for i in range(60)]
    texts[45] = texts[5] + " again"
    owners = [f"o{i // 30}" for i in range(60)]
    frame = collected({"text": texts, "owner": owners}, document="owner")
    assert frame["document"].value_counts(sort=True)["count"].to_list() == [30, 29]
    assert "1 texts of 60 repeat texts of other documents: dropped" in capsys.readouterr().out


# ---------------------------------------------------------------- notes, tweets, hub


@pytest.fixture
def noteevents():
    lines = ['"ROW_ID","CATEGORY","ISERROR","TEXT"']
    lines += [f'{i},"Nursing","","Note {i}:\n he said ""hello""."' for i in range(30)]
    lines += ['30,"Nursing","1","an error"', lines[1].replace("0", "31", 1)]
    put("NOTEEVENTS.csv.gz", gzip.compress("\n".join(lines).encode()))


def test_noteevents_without_errors_and_repeats(noteevents):
    frame = read(".", "notes", test=3)
    assert frame["id"].to_list() == [str(i) for i in range(30)]
    assert frame["text"][4] == 'Note 4:\n he said "hello".'
    assert len(read(".", "notes", rows=6)) == 6


def test_medcat_annotations_become_labels(noteevents):
    entities = {str(i): {"pretty_name": name} for i, name in enumerate(["Fever", "Cough", "Fever"])}
    put("medcat.json", json.dumps({"4": {"entities": entities}, "7": {"entities": {}}}))
    frame = read(".", "notes", annotations="medcat.json")
    assert by_id(frame, "labels") == {"4": ["Fever", "Cough"], "7": []}
    refused(file(".", "notes", annotations="gone.json"), "no such file; `annotations`")
    refused(file("nowhere", "notes"), "credentialed")


def test_tweet_labels_get_their_names():
    hot = ["1" if topic in ("family", "sports") else "0" for topic in TOPICS]
    assert named(hot) == ["family", "sports"]
    assert named(["8", "16", "music"]) == ["food_&_dining", "sports", "music"]


def of_hub(name="some/set", **more):
    return HubCorpus(source="hub", path="x", id=name, **more)


def test_hub_without_network_is_one_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused(of_hub("nobody/no-such-set", rows=5), "hub nobody/no-such-set: .*'nobody/no-such-set' on the Hub")


def test_hub_rows_are_mapped(monkeypatch):
    sets = {"train": Dataset.from_dict({"passage": TEXTS}), "dev": Dataset.from_dict({"passage": ["other"]})}
    monkeypatch.setattr("datasets.load_dataset", lambda *_, split, **__: sets[split])
    frame = collect(of_hub(hub_split="train+dev"))
    assert frame["text"].to_list() == [*TEXTS, "other"]
    assert frame["split"].to_list() == ["train"] * 20 + ["dev"]


def test_a_hub_sets_own_column_split_may_be_its_labels(monkeypatch):
    held = Dataset.from_dict({"text": TEXTS[:2], "split": ["news", "sport"]})
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: held)
    assert collect(of_hub(columns={"labels": "split"}))["labels"].to_list() == [["news"], ["sport"]]


def test_one_file_of_a_hub_set_that_holds_several(monkeypatch, tmp_path):
    triple = ("None came.", "n/a", "All came.")
    put("wiki.txt", "one sentence\n")
    put("nli.csv", f"sent0,sent1,hard_neg\n{','.join(triple)}\n")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")

    def held(name, **more):
        return of_hub(str(tmp_path), data_files=name, **more)

    assert collect(held("wiki.txt"))["text"].to_list() == ["one sentence"]
    assert collect(held("nli.csv", kind="nli")).select("text", "positive", "negative").rows() == [triple]
    refused(held("none.txt"), "Unable to find .*none.txt")


def test_first_chunks_of_a_hub_set_are_as_many_as_were_asked_for(monkeypatch):
    texts = Dataset.from_dict({"text": [f"{i} a b c" if i % 5 else "short" for i in range(1000)]})
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: texts.to_iterable_dataset())
    assert len(collect(of_hub(rows=40, chunk={"size": 3, "least": 2, "first": True}))) == 40


# ---------------------------------------------------------------- vectors


def vectors(path, **more):
    return VectorsCorpus(source="vectors", path=str(path), **more)


ARRAY = np.random.default_rng(0).standard_normal((50, 5)).astype(np.float32)
KEYS = [f"k{i}" for i in range(50)]
KEYED = pl.DataFrame({"id": KEYS, "vector": ARRAY})
SAVED = {
    "npy": lambda path: np.save(path, ARRAY),
    "npz": lambda path: np.savez(path, vectors=ARRAY, ids=np.array(KEYS)),
    "arrow": KEYED.write_ipc,
}


@pytest.mark.parametrize("suffix", SAVED)
def test_vectors_have_the_ids_of_their_file_or_are_numbered(suffix):
    SAVED[suffix](f"v.{suffix}")
    frame = collect(vectors(f"v.{suffix}", test=2))
    check_corpus("v", frame)
    assert frame["vector"].dtype == pl.Array(pl.Float32, 5)
    assert np.array_equal(frame["vector"].to_numpy(), ARRAY)
    assert frame["text"].is_null().all()
    assert frame["id"][3] == ("v-3" if suffix == "npy" else "k3")


def test_a_folder_of_shards_is_one_table():
    whole = KEYED.rename({"id": "key"})
    put("table/_temporary/0.parquet", b"half a file")
    whole.write_parquet("table.parquet")
    for number, shard in enumerate(whole.iter_slices(5)):
        shard.write_parquet(f"table/{number}.{('parquet', 'pq', 'PARQUET')[number % 3]}")
    for row, columns in ((vectors, {"id": "key"}), (file, {"text": "key"})):
        one, many = (collect(row(name, columns=columns)) for name in ("table.parquet", "table"))
        assert many.equals(one)


# ---------------------------------------------------------------- library

DOCSTRING = """Fit the model to the data and return the fitted estimator.

The algorithm of :class:`~pkg.Model` iterates until ``tolerance`` is reached.

>>> model.fit(x)

Parameters
----------
x : array
    The training data is described here.

Args:
    y: Another one.

Notes
-----
Convergence is guaranteed only for convex problems.

Licensed under the terms of a licence.
"""


def test_prose_is_what_is_left_of_a_docstring():
    assert library.prose(DOCSTRING) == [
        "Fit the model to the data and return the fitted estimator.",
        "The algorithm of pkg.Model iterates until tolerance is reached.",
        "Convergence is guaranteed only for convex problems.",
    ]


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(1, 20), st.integers(0, 30))
def test_sequences_have_their_length(lengths, shortest, more):
    sentences = [" ".join(["word"] * n) for n in lengths]
    found = [len(s.split()) for s in library.sequences(sentences, shortest, shortest + more)]
    assert all(shortest <= n <= shortest + more for n in found)
    assert sum(found) <= sum(lengths)


def test_library_reads_what_constraints_name_up_to_the_cap():
    put("constraints.txt", f"tqdm==0\nno-such-package==1\n# polars==1\nnumpy==0\n{library.END}\npolars==1\n")
    row = LibraryCorpus(source="library", path="constraints.txt", per_package=40, test=5)
    frame = collect(row)
    check_corpus("library", frame)
    assert set(frame["package"]) == {"tqdm", "numpy"}
    assert (frame["package"] == "numpy").sum() == 40
    assert frame["text"].str.split(" ").list.len().is_between(18, 45).all()
    assert frame.equals(collect(row))
    refused(row.model_copy(update={"path": "gone.txt"}), "no such file")


def test_pairs_may_repeat_and_triples_need_a_negative():
    twice = "a b,a c,4.5,validation\n" * 2
    put("t.csv", f"sentence1,sentence2,score,split\n{twice}d,e,0,test\n")
    frame = read("t.csv", "sts")
    assert frame.select("split", "score").rows() == [("dev", 4.5), ("dev", 4.5), ("test", 0.0)]
    put("t.csv", "anchor,pos,neg\na,b,c\nd,e,\n")
    refused(file("t.csv", "nli"), "1 rows have no negative, the first is row 1")
    put("t.csv", "sentence1,sentence2,score\na,b,1\nc,d,nan\n")
    refused(file("t.csv", "sts"), "1 scores are not finite, the first is row 1")
    put("t.csv", "sentence1,sentence2,score\na,b,1\nc,d,0.4\n")  # no pair would be a positive
    refused(file("t.csv", "sts"), "scores must go from 0 to 5: scale them")


def test_labels_of_probes_are_what_the_texts_say(monkeypatch):
    draw = np.random.default_rng(0)
    words = [4 * letter for letter in "abcdefghijklmnopqrstuvwxyz"]
    texts = [" ".join(draw.permutation(words)[: draw.integers(2, 9)]) for _ in range(400)]
    frame = pl.DataFrame({"id": [str(i) for i in range(400)], "text": texts})
    bins = probes.length(frame).with_columns(words=pl.col("text").str.split(" ").list.len())
    assert bins.group_by("words").agg(pl.col("label").n_unique())["label"].max() == 1
    monkeypatch.setattr(probes, "WORDS", 3)
    found = probes.word(frame)
    chosen = set(found["label"])
    assert len(chosen) == 3
    assert all({label} == chosen & {*text.split()} for text, label in found["text", "label"].iter_rows())
    shifted = probes.shift(frame, draw)
    assert ((shifted["text"] != frame["text"]) == (shifted["label"] == 1)).all()
    assert shifted["label"].mean() == 0.5
    assert 50 < shifted["label"][::2].sum() < 150  # not every other text: texts may alternate themselves
    frame.write_parquet("texts.parquet")
    made = read("texts.parquet", "probes", rows=90, test=30)
    assert made["task"].value_counts()["count"].to_list() == [30, 30, 30]
    assert made["split"].value_counts(sort=True).rows() == [("train", 60), ("test", 30)]
    few = file("texts.parquet", "probes", rows=2, test=30)
    refused(few, "too few for three tasks: 397 texts, `rows` 2")


# ---------------------------------------------------------------- documents, queries and judgements

DOCUMENTS = pl.DataFrame(
    {
        "_id": ["4", "7", "9"],
        "title": ["On cats", "", "On fish"],
        "text": ["Cats sleep.", "Dogs bark.", "Fish swim."],
    }
)
CLAIMS = pl.DataFrame({"_id": ["1", "2", "3", "4"], "text": [f"claim {i}" for i in range(1, 5)]})
JUDGED = {"test/1": {"4": 2.0, "7": 1.0}, "test/2": {"9": 1.0}, "train/3": {"7": 1.0}}


def beir():
    """Write the folder `set` as BEIR has it."""
    head = "query-id\tcorpus-id\tscore\n"
    put("set/qrels/test.tsv", head + "1\t4\t2\n1\t7\t1\n2\t9\t1\n")
    put("set/qrels/train.tsv", head + "3\t7\t1\n5\t7\t1\n")
    DOCUMENTS.write_ndjson("set/corpus.jsonl")
    # What stands beside the texts has other keys in each line
    metadata = CLAIMS.select("_id", "text", metadata=pl.struct(pl.lit("x").alias("y")))
    metadata.write_ndjson("set/queries.jsonl")


def tables():
    """Write the same as two tables, but with grades of 1 alone."""
    Path("set").mkdir()
    DOCUMENTS.rename({"_id": "id"}).write_parquet("set/corpus.parquet")
    relevant = pl.Series("relevant", [["4", "7"], ["9"], ["7"], []])
    split = pl.Series("split", ["test", "test", "train", "train"])
    CLAIMS.select(relevant, split, "text", id=pl.col("_id").cast(int)).write_parquet("set/claims.parquet")


@pytest.mark.parametrize("write", [beir, tables])
def test_documents_queries_and_judgements_are_one_corpus(capsys, write):
    write()
    frame = read("set", "judged")
    assert ("1 judged queries are not in it and are left out" in capsys.readouterr().out) == (write is beir)
    check_corpus("set", frame)
    assert frame["id"].to_list() == ["4", "7", "9", "test/1", "test/2", "train/3"]
    assert frame["text"][:2].to_list() == ["On cats Cats sleep.", "Dogs bark."]
    assert frame["split"].to_list() == ["train"] * 3 + ["queries test"] * 2 + ["queries train"]
    judged = {i: json.loads(of) for i, of in frame.select("id", "judgements").drop_nulls().iter_rows()}
    assert judged == (JUDGED if write is beir else {i: dict.fromkeys(of, 1.0) for i, of in JUDGED.items()})


def test_a_folder_without_judgements_or_documents_is_refused():
    beir()
    folder = file("set", "judged")
    refused(file("set", "judged", rows=2), "no `rows`")
    for grade in ("good", "inf"):
        put("set/qrels/test.tsv", f"query-id\tcorpus-id\tscore\n1\t4\t{grade}\n")
        refused(folder, "grade of query '1' is no number")
    put("set/qrels/test.tsv", "1\t4\t1\n2\t9\t1\n")
    refused(folder, "its first line is a judgement")
    shutil.rmtree("set/qrels")
    refused(folder, r"or qrels/\*\.tsv")
    Path("set/corpus.jsonl").unlink()
    refused(folder, "no table `corpus`")
