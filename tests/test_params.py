"""A right study loads; a wrong one gets one line with what is wrong and where."""

import errno
import random
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import align, fetch, report
from pipelines.runtime import stage, store
from pipelines.runtime.errors import BadInput
from pipelines.study import activate, params
from pipelines.study.__main__ import main
from tests.drills.inputs import bytes_changed, mutated
from tests.small import ROOT, put, read_yaml, refusal, run_command, study_of, write_yaml

TEXTS = {"corpus": "passages", "encoder": "minilm"}
MADE, WHEEL = {"source": "synthetic", "path": "x"}, {"source": "wheel", "path": "c"}
ALIGN = {"source": "a", "target": "b", "aligner": "wasserstein_procrustes"}
STUDY = {
    "study": "t",
    "corpora": {
        "passages": MADE,
        "leak": {"source": "vectors", "path": "y"},
        "s": {"kind": "sts"} | MADE,
        "nli": {"kind": "nli", "source": "path", "path": "x"},
    },
    "encoders": {"minilm": WHEEL, "wordllama": WHEEL, "dump": {"source": "given", "path": "y"}},
    "embed": {"a": TEXTS | {"encoder": "wordllama"}, "b": TEXTS},
    "align": {"ab": ALIGN | {"aligner": "identity"}},
    "evaluate": {"ab": {}},
}


def refused(wrong):
    """Return the line that a file gets, or STUDY with these tables."""
    put("params.yaml", wrong if isinstance(wrong, bytes) else yaml.safe_dump(STUDY | wrong))
    with refusal(r"^params\.yaml: ") as error:
        params.load("params.yaml")
    return str(error.value).removeprefix("params.yaml: ")


def test_the_committed_study_is_the_sample_study():
    if params.load(ROOT / "params.yaml").study != "sample" or activate.edited(ROOT / "params.yaml"):
        pytest.skip("another study, or an experiment, is active")
    assert (ROOT / "params.yaml").read_text() == activate.full_text(ROOT / "studies/sample.yaml")


FINETUNE = {"corpus": "passages", "dev": "s", "start": "scratch.py", "steps": 1}
PAPER = {"what": "w", "value": 1, "by": "b"}


@pytest.mark.parametrize(
    ("table", "row", "line"),
    [
        ("encoders", WHEEL | {"batchtokens": 3},
         ".batchtokens: unknown key; did you mean 'batch_tokens'?"),
        ("encoders", {"source": "given"}, ".path: missing"),
        ("encoders", {"source": "hub", "path": "x", "model": "a/b/c"}, ".model: "),
        ("encoders", WHEEL | {"model": "minilm+minillm"},
         ".model: there is no packaged encoder 'minillm'; did you mean 'minilm'?"),
        ("encoders", WHEEL | {"model": "minilm+minilm"}, ".model: 'minilm+minilm' names a model twice"),
        ("encoders", {"source": "path", "path": "a\0b"}, ".path: 'a\\x00b'... is no path"),
        ("encoders", {"source": "path", "path": "data/trained/x"}, ".path: there is no row 'x'"),
        ("encoders", {"source": "path", "path": "./data//trained/x/"}, ".path: there is no row 'x'"),
        ("encoders", {"source": "path", "path": "data/${study}"}, ".path: DVC replaces ${...}"),
        ("corpora", {"source": "hub", "id": "a/b", "data_files": "/x.csv"}, ": data_files: a path"),
        ("corpora", {"source": "vectors", "path": "y", "columns": {"text": "x"}}, ": columns: vector, id"),
        ("corpora", MADE | {"grid": 3}, ": grid: only scenes"),
        ("corpora", MADE | {"rows": 9, "test": 9}, ": test: 9 leaves no row of 9 to train on"),
        ("corpora", MADE | {"kind": "nli"}, ": nli has no source synthetic; its sources are hub, path"),
        ("corpora", {"source": "path", "path": "x", "kind": "images", "document": "author"},
         ": kind images has no `chunk` and no `document`"),
        ("corpora", {}, ".source: missing"),
        ("corpora", {"source": "libary"}, ".source: 'libary' is none of 'library', "),
        ("embed", TEXTS | {"encoder": "miniml"},
         ".encoder: there is no row 'miniml'; did you mean 'minilm'?"),
        ("embed", TEXTS | {"corpus": "leak"},
         ": a corpus of vectors takes an encoder with `source: given`"),
        ("align", ALIGN | {"splittings": 1}, ".splittings: unknown key; did you mean 'splits'?"),
        ("align", ALIGN | {"aligner": "magic"}, ": there is no aligner 'magic'; there are: identity"),
        ("align", ALIGN | {"aligner": "vec2vek"}, ": there is no aligner 'vec2vek'; did you mean 'vec2vec'?"),
        ("align", ALIGN | {"limit": [1, 5]}, ".limit: [1, 5]: a number of at least 2"),
        ("align", ALIGN | {"clusters": 10**30}, ".clusters: a number of more than 18 digits"),
        ("align", ALIGN | {"aligner": "procrustes", "pairs": 9}, ": pairs: procrustes cannot use"),
        ("align", ALIGN | {"pairs": True}, ".pairs: true is no number"),
        ("align", ALIGN | {"aligner": "identity", "restarts": 1}, ": restarts: identity gets no verdict"),
        ("align", ALIGN | {"device": "gpu"}, ".device: 'gpu' is none of auto, cpu, mps, cuda, cuda:<number>"),
        ("align", ALIGN | {"seeds": 3}, ".seeds: must be a list, such as [3, ...]"),
        ("align", ALIGN | {"splits": "test"}, ".splits: must be a list, such as [test, ...]"),
        ("align", ALIGN | {"splits": "a\nb"}, ".splits: must be a list, such as [a b, ...]"),
        ("align", ALIGN | {"seeds": [0, 0]}, ".seeds: 0 stands twice"),
        ("align", ALIGN | {"seeds": []}, ".seeds: Tuple should have at least 1 item"),
        ("evaluate", {"translator": "ab", "source": "b", "target": "b"},
         ".source: b is of encoder minilm, but ab was fitted on wordllama"),
        ("finetune", FINETUNE | {"lr": float("nan")}, ".lr: "),
        ("finetune", FINETUNE | {"corpus": "leak"}, ".corpus: leak has vectors and no texts"),
        ("finetune", FINETUNE | {"corpus": "nli", "augment": "crop"},
         ".augment: nli has triplets; only single texts lose words"),
        ("finetune", FINETUNE | {"dev": "passages"}, ".dev: passages is of kind passages, not sts"),
        ("geometry", {"corpus": "s", "spaces": ["a"]}, ".spaces: a has texts of passages"),
        ("inverters", {"space": "b", "inverter": {"epoch": 1}},
         ".inverter.epoch: unknown key; did you mean 'epochs'?"),
        ("invert", {"translator": "ab", "inverter": "i", "judge": {"endpoint": "here:80/v1", "model": "m"}},
         ".judge: endpoint: here:80/v1: an http(s) address was expected"),
        ("published", PAPER | {"of": "study.sample.top1"}, ".of: there is no verb 'study'"),
        ("published", PAPER | {"of": "evaluate.ba.top1"}, ".of: there is no row 'ba'"),
        ("published", PAPER | {"of": "evaluate.ab"}, ".of: 'evaluate.ab' is not `verb.row.measure`"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_one_line(own_folder, table, row, line):
    rows = STUDY.get(table, {}) | {"r": row}
    assert refused({table: rows}).startswith(f"{table}.r{line}")


def test_an_inverter_needs_texts(own_folder):
    given = {"encoders": {"theirs": {"source": "given", "path": "c"}}}
    given["embed"] = {"dump": {"corpus": "leak", "encoder": "theirs"}}
    given["inverters"] = {"r": {"space": "dump", "corpus": "leak", "encoder": "theirs"}}
    line = "inverters.r.corpus: leak has vectors and no texts"
    assert refused({table: STUDY.get(table, {}) | rows for table, rows in given.items()}) == line


def test_nothing_in_place_of_a_list_is_no_example_of_one(own_folder):
    rows = STUDY["align"] | {"r": ALIGN | {"seeds": None}}
    assert refused({"align": rows}) == "align.r.seeds: must be a list"


def test_one_mistake_of_several_rows_counts_once(own_folder):
    rows = {"{a}": ALIGN | {"matrix": {"a": ["one", "two"]}, "seeds": ["x"]}}
    line = "align.one.seeds.0: Input should be a valid integer, unable to parse string as an integer"
    assert refused({"align": rows, "evaluate": {}}) == line
    rows["{a}"]["splits"] = 3
    assert refused({"align": rows, "evaluate": {}}).endswith(" (and 1 more)")


ALIASES = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"study": None}, "study: "),
        ({"alignn": {}}, "alignn: unknown key; did you mean 'align'?"),
        ({"alignn": STUDY["align"], "align": {}}, "alignn: unknown key; did you mean 'align'?"),
        ({"align": {5: ALIGN}}, "align: 5 is no row name"),
        ({"align": {5: ALIGN}, "evaluate": {"{align}": {}}}, "align: 5 is no row name"),
        ({"align": {None: ALIGN}, "evaluate": {"{align}": {}}}, "align: None is no row name"),
        ({"align": STUDY["align"] | {5: ALIGN}}, "align: 5 is no row name"),
        ({"finetune": {"f": FINETUNE | {"start": "data/trained/f"}}}, "finetune.f: is made from itself"),
        ({"study": ""}, "study: "),
        ({"study": 'a"b'}, "study: 'a\"b' has a double quote"),
        ({"embed": [1, 2]}, "embed: a mapping of rows is needed"),
        ({"similarity": None}, "similarity: a mapping of rows is needed"),
        ({"embed": {"a\n": TEXTS}}, "embed: 'a\\n' is no row name"),
        ({"embed": {"1e5": TEXTS}}, "embed: 100000.0 is no row name"),
        ({"embed": {"0x10": TEXTS}}, "embed: '0x10' is no row name"),
        ({"embed": {"Mails": TEXTS, "mails": TEXTS}}, "embed: 'Mails' and 'mails' differ only in case"),
        ({"align_jointly": {"ab": {}}}, "align_jointly.ab"),
        (
            {"align_jointly": {"ab": {"spaces": ["a", "b"], "aligner": "vec2vec"}}},
            "align_jointly.ab: a row of align has this name",
        ),
        (
            {
                "embed": STUDY["embed"] | {"p-image": TEXTS},
                "train_image_text": {"p": {"corpus": "passages", "head": {"kind": "vector", "dim": 16}}},
            },
            "train_image_text.p: its embeddings and a row of embed are both called p-image",
        ),
        (b"study: t\ncorpora:\n  a: {}\n  b: {}\n  a: {}\n", "corpora.a stands twice: lines 3 and 5"),
        (b"study: caf\xe9\n", "not YAML: 'utf-8' codec can't decode byte 0xe9"),
        (b"study: t\nabout: {[1]: 2}\n", "not YAML"),
        (
            b"study: t\nevaluate:\n  {align}: {}\n",
            "not YAML: while constructing a mapping found unhashable key in line 3, column 3; put text",
        ),
        (b"study: t\nalign:\n  '{a}': {source: x-{a}}\n", "not YAML: while parsing a flow mapping in line 3"),
        (b"study: t\nabout: !!bool maybe\n", "not YAML"),
        (b"study: t\nabout: !!timestamp maybe\n", "not YAML"),
        (b"study: t\nabout: " + b"[" * 3000 + b"]" * 3000 + b"\n", "not YAML"),
        (b"study: t\nembed: &a {b: *a}\n", "embed.b: an alias of a node that contains it"),
        (
            "\n".join(["a0: &a0 [1, 1, 1]", *ALIASES]).encode(),
            "its aliases stand for more than 100,000 values",
        ),
        (b"", "a mapping of keys is needed"),
    ],
)
def test_what_is_wrong_with_a_table_or_a_file_is_one_line(own_folder, wrong, line):
    assert refused(wrong).startswith(line)


@pytest.fixture
def folder(own_folder):
    """Make the folder that a command runs in, with the files that STUDY names."""
    for name in ("x", "y", "c"):
        Path(name).touch()
    return own_folder


def test_a_right_study_is_activated_and_a_wrong_one_is_not(folder, capsys, monkeypatch):
    active = Path("params.yaml")
    active.write_text("study: before\n")
    put("wrong.yaml", "study: x\nnonsense: 1\n")
    Path("studies").mkdir()
    write_yaml("studies/mine.yaml", STUDY)
    assert main(["activate", "wrong.yaml"]) == 2
    assert "nonsense: unknown key" in capsys.readouterr().err
    assert active.read_text() == "study: before\n"
    assert main(["activate", "mine"]) == 0
    kept = "; the edited one is kept in params.yaml.bak"
    assert capsys.readouterr().out == f"params.yaml is now studies/mine.yaml{kept}\n"
    assert set(read_yaml(active)) == set(params.Study.model_fields)
    assert read_yaml(active)["study"] == STUDY["study"]  # not the edited one
    active.write_text("study: later\n")
    assert main(["activate", "mine"]) == 0
    assert Path("params.yaml.bak").read_text() == "study: before\n"  # an earlier edit is not lost
    assert Path("params.yaml.bak2").read_text() == "study: later\n"
    assert not list(Path().glob(".*"))
    assert main(["activate", "params.yaml"]) == 0
    assert capsys.readouterr().out.endswith("params.yaml is filled in\n")
    assert main(["activate", "mien"]) == 2
    assert capsys.readouterr().err == "studies: there is no study 'mien'; did you mean 'mine'?\n"
    assert main(["activate", 300 * "x"]) == 2
    assert capsys.readouterr().err.startswith("studies: there is no study 'xxx")
    active.write_text("study: edited\n")
    monkeypatch.setattr("shutil.copyfile", Mock(side_effect=OSError(errno.EROFS, "x")))
    assert main(["activate", "mine"]) == 2
    assert capsys.readouterr().err == "params.yaml.bak3: read-only file system\n"


def test_a_missing_file_is_named_before_anything_runs(folder, capsys):
    with refusal("No such file"):
        params.load("none.yaml")
    corpora = STUDY["corpora"] | {"mails": {"source": "path", "path": "data/raw/mails.mbox"}}
    write_yaml("s.yaml", STUDY | {"corpora": corpora})
    missing = "s.yaml: corpora.mails.path: data/raw/mails.mbox: there is no such file or folder"
    link = "; data/raw is not linked: `CORPORA_ROOT=/your/texts make study STUDY=...` links it"
    assert main(["activate", "s.yaml"]) == 2
    Path("data").mkdir()
    Path("data/raw").symlink_to("gone")
    assert main(["activate", "s.yaml"]) == 2
    Path("data/gone").mkdir()
    assert main(["activate", "s.yaml"]) == 2
    dangling = link.replace("is not linked", "links to gone")
    assert capsys.readouterr().err == f"{missing}{link}\n{missing}{dangling}\n{missing}\n"
    Path("data/raw/mails.mbox").touch()
    assert main(["activate", "s.yaml"]) == 0


def test_help_of_a_verb_lists_the_rows_and_their_keys(own_folder, monkeypatch, capsys):
    write_yaml("params.yaml", STUDY | {"align": {"ab": ALIGN}})
    run_command(align.align, monkeypatch, "--help")
    said = capsys.readouterr().out
    assert said.startswith("align: fit translators")
    lines = said.splitlines()
    assert lines[lines.index("Rows of align in params.yaml:") + 1] == "  ab"
    of_aligner = lines[lines.index("Keys of aligner wasserstein_procrustes:") :]
    clusters = "integer at least 2 and at most 6000, default 30"
    assert f"  clusters ({clusters}) of k-means, matched across the clouds" in of_aligner
    assert "  splits ([text, text] or null, default null) [split of the source" in said
    run_command(report.report, monkeypatch, "-h")
    assert capsys.readouterr().out.endswith("\nusage: python -m pipelines.report\n")
    assert not Path("report").exists()
    put("params.yaml", "study: x\nnonsense: 1\n")
    run_command(align.align, monkeypatch, "--help")
    said = capsys.readouterr().out
    assert "Rows of align in params.yaml:\n  params.yaml: nonsense: unknown key\n" in said
    assert "  pairs (integer at least 0, default 0) known pairs" in said


SETTINGS, CODE = "params.yaml", "pipelines/aligners/identity"


@pytest.mark.parametrize(
    ("path", "change", "code"),
    [
        (SETTINGS, {"about": "other"}, 0),
        (SETTINGS, {"align": {"ab": ALIGN | {"clusters": 40}}}, 2),
        # Of the row's target
        (SETTINGS, {"encoders": STUDY["encoders"] | {"minilm": WHEEL | {"max_tokens": 7}}}, 2),
        (SETTINGS, {"align": {}, "evaluate": {}}, 2),
        (SETTINGS, {"evaluate": {"half-typed": {"translator": "a"}}}, 2),
        (f"{CODE}/__init__.py", {}, 2),
        (f"{CODE}/words.yaml", {}, 2),
        ("pipelines/aligners/procrustes/__init__.py", {}, 0),  # of other rows
    ],
)
def test_what_changes_while_a_stage_runs_is_not_locked_with_its_results(
    path, change, code, own_folder, monkeypatch, capsys
):
    """DVC reads params.yaml and code at the end of a stage."""

    def align(name, row, study, run):
        write_yaml(path, STUDY | change)

    write_yaml("params.yaml", STUDY)
    deps = ["data", "pipelines/aligners/${item.aligner}"]
    write_yaml("dvc.yaml", {"stages": {"align": {"foreach": "${align}", "do": {"deps": deps}}}})
    for aligner in ("identity", "procrustes"):
        put(f"pipelines/aligners/{aligner}/__init__.py", "")
    monkeypatch.setattr(store, "__file__", "pipelines/runtime/store.py")
    monkeypatch.setenv("DVC_STAGE", "align@ab")
    monkeypatch.setattr(stage, "_end_with_dvc", lambda: None)
    with pytest.raises(SystemExit) if code else nullcontext() as ended:
        run_command(align, monkeypatch, "align@ab")
    assert not code or ended.value.code == code
    path = path if path == SETTINGS else CODE
    assert (f"{path} changed while this ran" in capsys.readouterr().err) == bool(code)


def test_a_file_that_changes_while_it_is_read_is_not_locked(own_folder, monkeypatch, capsys):
    def collect(name, row, study, run):
        put("mine/b.csv", "text\nnew\n")

    put("mine/a.csv", "text\nold\n")
    mine = {"source": "path", "path": "mine"}
    write_yaml("params.yaml", {"study": "t", "corpora": {"mine": mine}})
    write_yaml("dvc.yaml", {"stages": {"collect": {"foreach": "${corpora}", "do": {"deps": []}}}})
    monkeypatch.setenv("DVC_STAGE", "collect@mine")
    monkeypatch.setattr(stage, "_end_with_dvc", lambda: None)
    with pytest.raises(SystemExit, match=r"^2$"):
        run_command(collect, monkeypatch, "../dvc.yaml:collect@mine")  # as dvc names it in another folder
    assert "mine changed while this ran" in capsys.readouterr().err


def test_the_model_of_bulk_is_of_its_settings():
    row = {"apply": "embed", "path": "in", "model": "data/encoders/minilm"}
    encoders = [{"minilm": WHEEL | {"prompt": prompt}} for prompt in ("", "query: ")]
    studies = [study_of("", "", encoders=of, bulk={"b": row}) for of in encoders]
    one, other = (stage._settings("bulk", "b", study) for study in studies)
    assert one != other


def test_a_newline_in_a_value_does_not_break_the_line(own_folder, monkeypatch, capsys):
    encoders = {"wordllama": WHEEL | {"model": "a\nb"}}
    write_yaml("params.yaml", {"study": "t", "encoders": encoders})
    with pytest.raises(SystemExit, match=r"^2$"):
        run_command(fetch.fetch, monkeypatch, "wordllama")
    assert capsys.readouterr().err.endswith(".model: there is no packaged encoder 'a\\nb'\n")


def test_command_names_checks_row_names_only(own_folder, capsys):
    put("params.yaml", "embed: {'a; touch x #': {}}\n")
    assert main(["names"]) == 2
    assert capsys.readouterr().err.startswith("params.yaml: embed: 'a; touch x #' is no row name")
    put("params.yaml", "embed: {a: {}}\n")
    assert main(["names"]) == 0
    assert main(["--help"]) == 0
    assert "pipelines.study activate STUDY" in capsys.readouterr().out


def test_make_repro_refuses_a_study_that_is_not_active(own_folder, capsys):
    for path, name in {"params": "mine", "my-file": "mine", "studies/other": "other"}.items():
        put(f"{path}.yaml", f"study: {name}\n")
    assert main(["names", "mine"]) == main(["names", "my-file.yaml"]) == 0
    assert main(["names", "other"]) == 2
    line = "make repro runs the active study: make study STUDY=other first\n"
    assert capsys.readouterr().err == line


SMOKE = (ROOT / "studies/smoke.yaml").read_bytes()


def garbage(rng):
    """As `python -m tests.drills hostile` damages files."""
    return bytes_changed(SMOKE, rng)


def another_value(rng):
    """As `python -m tests.drills studies` changes a study."""
    return mutated(yaml.safe_load(SMOKE), rng)[-1].encode()


@pytest.mark.parametrize("changed", [garbage, another_value])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_a_study_changed_anywhere_loads_or_gets_one_line(tmp_path, changed, seed):
    path = tmp_path / "params.yaml"
    path.write_bytes(changed(random.Random(seed)))
    said = f"{path}: right"
    try:
        params.load(path)
    except BadInput as error:
        said = str(error)
    assert said.startswith(f"{path}: ")
    assert len(said.splitlines()) == 1


def test_a_row_names_the_rows_that_decide_what_it_measures():
    study = params.load(ROOT / "studies/sample.yaml")
    named = study.named(study.evaluate["wasserstein"])
    assert sorted(named) == ["align", "source", "source.encoder", "target", "target.encoder"]
    assert named["target.encoder"] == study.encoders["minilm"]
    assert sorted(study.named(study.similarity["sts-minilm"])) == ["encoder"]
