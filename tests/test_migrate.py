"""migrate: an index is moved, measured on known pairs and by judged queries, or refused; mteb runs it."""

import json
import re
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
import torch

from pipelines.aligners.core.translator import Identity
from pipelines.corpora.sources.vectors import Stored
from pipelines.fitting import arrays
from pipelines.tool import __main__ as command
from pipelines.tool import migrate
from pipelines.tool.benchmark import Moved
from pipelines.tool.files import cloud
from tests.small import put, two_encoders
from tests.test_tool import PARTS, fit_quickly, fits_with, refused, said

TEXTS, TURNED = two_encoders()
QRELS = "--qrels qrels.tsv"
QUERIES = f"{QRELS} --queries"
COMMAND = "migrate old.parquet new.npy --out moved.parquet"


def write(name, ids, vectors, **more):
    """Write a table of vectors, and of `more` columns."""
    pl.DataFrame({"id": ids, "vector": vectors.tolist()} | more).write_parquet(f"{name}.parquet")


@pytest.fixture(autouse=True)
def files(own_folder, monkeypatch):
    """Write an index of 1,500 texts, and new vectors of 1,500 others and, first, of 100 of the index."""
    fit_quickly(monkeypatch)
    write("old", [f"d{i}" for i in range(1500)], TEXTS[:1500], page=range(1500))
    np.save("new.npy", np.concatenate([TURNED[:100], TURNED[1500:]]))
    write("queries", ["q0", "q1", "q2"], TURNED[:3])
    write("before", ["q0", "q1", "q2"], TEXTS[7:10])
    put("qrels.tsv", "query-id\tcorpus-id\tscore\nq0\td0\t2\nq1\td1\t1\nq2\td2\t1\nq2\td9\t0\n")


def write_pairs(name, old, new):
    pl.DataFrame({"old": [f"d{i}" for i in old], "new": new}).write_csv(name)


def index(name):
    return migrate.Index(Path(name), cloud(Stored(Path(name))))


def moved(capsys, options=""):
    """Return the exit code and the JSON of `migrate`."""
    return said(capsys, f"{COMMAND} --restarts 0 {options}")


def not_moved(capsys, options):
    return refused(capsys, *COMMAND.split(), *options.split())


def test_an_index_is_moved_without_pairs(capsys):
    code, found = moved(capsys, "--seed 2")
    frame = pl.read_parquet("moved.parquet")
    assert code == 0
    assert found["map"] == "unpaired"
    assert frame["page"].to_list() == list(range(1500))
    vectors = torch.tensor(frame["vector"].to_numpy())
    assert torch.cosine_similarity(vectors, torch.tensor(TURNED[:1500])).mean() > 0.9


@pytest.mark.parametrize(("label", "code"), [("doubtful", 0), ("failed", 3)])
def test_a_doubtful_map_moves_and_a_failed_one_does_not(capsys, monkeypatch, label, code):
    fits_with(monkeypatch, 64, 0.3, label, 0.3, 100)
    assert moved(capsys)[0] == code
    assert Path("moved.parquet").exists() == (code == 0)


def test_the_better_map_by_pairs_or_queries_moves(capsys, monkeypatch):
    monkeypatch.setattr(arrays, "fit_parts", fit := Mock(side_effect=arrays.fit_parts))
    queries = f"{QUERIES} queries.parquet --old-queries before.parquet"
    write_pairs("pairs.csv", range(100), range(100))
    other = pl.read_parquet("queries.parquet").rename({"vector": "new"})
    other.with_columns(vector=pl.lit([0.0])).write_parquet("queries.parquet")
    code, found = moved(capsys, f"{queries} --pairs pairs.csv --column vector,new")
    assert code == 0
    assert len(fit.call_args.args[1]) == 1600 - 20  # without the pairs that measure it
    assert set(found["top1"]) == {"unpaired", "procrustes"}
    assert found["top1"]["procrustes"] == 1  # 80 pairs are enough for a rotation of 64 dimensions
    assert found["top1"][found["map"]] == 1
    assert found["retrieval"]["moved"]["ndcg10"] == pytest.approx(1)
    assert found["retrieval"]["before"]["ndcg10"] < 0.5


def test_rows_far_off_do_not_make_a_right_map_failed(capsys):
    old, new = TEXTS[:1500].copy(), np.concatenate([TURNED[:100], TURNED[1500:]])
    old[3] *= 1e9  # 3 and 8 are training pairs, 4 and 9 are test pairs
    old[4] = new[8] = new[-1] = 0
    new[[9, 700]] *= 1e9
    write("old", [f"d{i}" for i in range(1500)], old)
    np.save("new.npy", new)
    code, found = moved(capsys, "--pairs 100")
    assert code == 0
    assert found["top1"] == {"unpaired": 1, "procrustes": 1}
    assert "8 usable known pairs; at least 10 are needed" in not_moved(capsys, "--pairs 12")


@pytest.mark.parametrize("name", ["new.jsonl", "new.csv"])
def test_ids_of_lines_and_tables_are_those_of_the_file(name):
    ids = [str(1000 - i) for i in range(20)]  # not the numbers of the rows
    vectors = TURNED[:20].tolist()
    if name == "new.csv":
        table = pl.DataFrame({"id": ids, "vector": [json.dumps(v) for v in vectors]}).write_csv()
        put(name, table.replace("\n995", "\n\n995"))  # a blank line is no row
    else:
        pl.DataFrame({"id": ids, "vector": vectors}).write_ndjson(name)
    assert index(name).rows(["999", "990"], "pairs") == [1, 10]


def test_rows_of_bare_lists_are_numbered():
    put("new.jsonl", "\n".join(map(json.dumps, TURNED[:20].tolist())))
    assert index("new.jsonl").rows(["9", "0"], "pairs") == [9, 0]


def test_pairs_are_the_first_rows_or_a_table_of_ids():
    old, new = map(index, ("old.parquet", "new.npy"))
    write_pairs("pairs.csv", range(50, 60), range(10))
    assert migrate.known_pairs("10", old, new).tolist() == [[i, i] for i in range(10)]
    assert migrate.known_pairs("pairs.csv", old, new).tolist() == [[i + 50, i] for i in range(10)]


def test_a_text_that_is_there_twice_is_not_found():  # as in `translation.top1`
    np.save("twice.npy", TEXTS[[*range(20), 0]])
    pairs = torch.arange(20)[:, None].expand(-1, 2)
    top1, _ = migrate.measure(Identity(64, 64), index("old.parquet"), index("twice.npy"), pairs)
    assert top1 == pytest.approx(0.95)


@pytest.mark.parametrize("pairs", ["", "--pairs 200"])
def test_a_wrong_map_moves_nothing(capsys, pairs):
    np.save("new.npy", np.random.default_rng(1).normal(size=(1500, 64)))
    code, found = moved(capsys, pairs)  # pairs of texts that do not belong together show that, too
    assert (code, found["out"]) == (3, None)
    assert pairs or found["verdict"]["label"] == "failed"
    assert not Path("moved.parquet").exists()


@pytest.mark.parametrize(
    ("foscttm", "pairs", "verdict", "label"),
    [
        (0.0, 29, "failed", "aligned"),
        (0.0, 28, "failed", "failed"),
        (0.0, 28, None, "doubtful"),
        (0.0, 2, "aligned", "aligned"),
        (0.0, 2, "doubtful", "doubtful"),
        (0.3, 2, None, "failed"),
        (0.09, 1000, None, "doubtful"),
        (0.5, 2, "aligned", "doubtful"),
        (0.5, 6, "aligned", "failed"),
        (1.0, 2, "doubtful", "failed"),
    ],
)
def test_only_enough_pairs_show_that_a_map_is_right_or_wrong(foscttm, pairs, verdict, label):
    assert migrate.label_by_pairs(foscttm, pairs, verdict)[0] == label


def test_a_wrong_map_is_rarely_called_right_by_its_pairs():
    random = np.random.default_rng(0)
    for pairs in (2, 8, 29, 40, 160):
        means = (random.random((2000, pairs)) < 0.101).mean(1)  # of all values with this mean, they vary most
        right = [migrate.label_by_pairs(mean, pairs, "failed")[0] == "aligned" for mean in means.tolist()]
        assert np.mean(right) < 0.05


@pytest.mark.parametrize(("label", "code"), [("doubtful", 0), ("failed", 3)])
def test_few_pairs_do_not_overrule_a_verdict(capsys, monkeypatch, label, code):
    fits_with(monkeypatch, 64, 0.9, label, 0.9, 100)
    np.save("new.npy", TEXTS[:1500])  # the map is right
    assert command.main([*COMMAND.split(), "--pairs", "10"]) == code
    said = "2 held-out pairs do not prove it right or wrong: name more, if you can"
    assert said in capsys.readouterr().out


def test_pairs_of_other_texts_contradict_an_aligned_verdict(capsys, monkeypatch):
    fits_with(monkeypatch, 64, 0.9, "aligned", 0.9, 100)
    np.save("new.npy", TEXTS[1500:])
    assert command.main([*COMMAND.split(), "--pairs", "100"]) == 3
    out = capsys.readouterr().out
    assert re.search(r"unpaired: 0 of 20 .* nearest of 1500; FOSCTTM 0\.\d{3} \(right: at most 0\.1\)", out)
    assert "the known pairs contradict the verdict" in out


def test_a_map_that_is_right_for_a_part_marks_it(capsys, monkeypatch):
    fits_with(monkeypatch, 64, 0.99, "partial", 0.6, 100, 0.5, parts=PARTS)
    assert moved(capsys)[0] == 0
    right = TEXTS[:1500, 0] > TEXTS[:1500, 1]
    assert (pl.read_parquet("moved.parquet")["aligned"].to_numpy() == right).all()


def test_judged_documents_need_ids_that_are_unique(capsys):
    write("old", ["d0"] * 1500, TEXTS[:1500])
    assert "old.parquet: ids are not unique" in not_moved(capsys, f"{QUERIES} queries.parquet")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--out new.npy", "new.npy: is an input of this command"),
        ("--out 7/new.npy --qrels 7", "7/new.npy: is an input of this command, or in one"),
        ("--out qrels.tsv/moved.npy", "cannot be written"),
        ("--pairs 9999", "1500 and 1600 vectors"),
        ("--pairs 3", "at least 10"),
        ("--pairs qrels.tsv", "two are needed"),
        ("--pairs holes.csv", "2 cells have no id"),
        ("--pairs twice.csv", "an id is in two pairs"),
        ("--pairs bare.csv", "its first line is a pair"),
        ("--qrels old.parquet --queries queries.parquet", "query, document, grade are needed, not lists"),
        ("--qrels bare.tsv --queries queries.parquet", "its first line is a judgement"),
        (f"{QUERIES} wide.parquet", "vectors of 3 dimensions; 64 are needed"),
        (f"{QUERIES} same.parquet", "ids are not unique"),
        (f"{QUERIES} nan.parquet", "nan.parquet: row 0 is not finite"),
        (f"{QUERIES} new.npy", "no vector 'q0'"),
        (QRELS, "needed together"),
    ],
)
def test_bad_input_is_one_line(capsys, options, says):
    Path("7").mkdir()
    write_pairs("twice.csv", range(20), [*range(19), 0])
    put("holes.csv", Path("twice.csv").read_text() + "30,\n,31\n\n")
    put("bare.csv", Path("twice.csv").read_text().partition("\n")[2])
    put("bare.tsv", Path("qrels.tsv").read_text().partition("\n")[2])
    write("wide", ["q0", "q1"], TEXTS[:2, :3])
    write("nan", ["q0", "q1", "q2"], TURNED[:3] * np.nan)
    write("same", ["q0", "q0"], TEXTS[:2])
    assert says in not_moved(capsys, options)


def test_mteb_runs_a_moved_index():
    mteb = pytest.importorskip("mteb")
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    words = ("cat", "dog", "fish")

    class Task(AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(
            name="Small",
            description="Three texts.",
            dataset={"path": "none", "revision": "1"},
            type="Retrieval",
            category="t2t",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, *args, **kwargs):
            texts = {f"d{i}": {"text": word, "title": ""} for i, word in enumerate(words)}
            self.corpus, self.queries = {"test": texts}, {"test": {"q": "dog"}}
            self.relevant_docs = {"test": {"q": {"d0": 1}}}
            self.convert_v1_dataset_format_to_v2(num_proc=None)
            self.data_loaded = True

    def new(texts):
        return torch.eye(3)[[words.index(text.strip()) for text in texts]]

    def old(texts):  # cats and dogs change places
        return new(texts)[:, [1, 0, 2]]

    model = Moved("small", old, new, Identity(3, 3))
    result = mteb.evaluate(model, [Task()], cache=None, show_progress_bar=False)
    assert isinstance(model, mteb.EncoderProtocol)
    assert result.task_results[0].get_score() == 1
