"""The installed command: every subcommand, its exit codes, and what importing it does not import."""

import errno
import io
import json
import shlex
import shutil
import signal
import subprocess
from argparse import Namespace
from dataclasses import asdict
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import SafetensorError

from pipelines.aligners import wasserstein_procrustes
from pipelines.aligners.core.parts import Parts
from pipelines.aligners.core.translator import Identity
from pipelines.aligners.core.verdict import Verdict
from pipelines.corpora.sources.vectors import limits
from pipelines.fitting import arrays, fits
from pipelines.fitting.fits import write_verdicts
from pipelines.runtime.device import resolve
from pipelines.runtime.files import MACHINE
from pipelines.study.encoders import PACKAGED
from pipelines.study.expand import expand
from pipelines.study.reading import read
from pipelines.tool import Answer, audit, doctor, encoders, translate, validate
from pipelines.tool.__main__ import commands, main
from pipelines.tool.files import two_files
from tests.small import ROOT, completed, put, refusal, two_encoders, write_yaml

PARTS = Parts(torch.zeros(64), torch.eye(2, 64), torch.tensor([True, False]))
FIT_QUICKLY = dict(clusters=40, repeats=[30], rounds=[500] * 5, refinements=20, passes=2, rotations=0)
COMMANDS = ("audit", "identify", "translate", "migrate", "validate", "ls", "doctor")


def fits_with(monkeypatch, d, *verdict, parts=None):
    """Let every fit return the identity of `d` dimensions with this verdict."""
    found = Identity(d, d), Verdict(*verdict), parts
    monkeypatch.setattr(arrays, "fit_parts", lambda *_, **__: found)


def fit_quickly(monkeypatch):
    """Let commands fit their maps in few steps."""
    monkeypatch.setattr(arrays, "fit_parts", partial(arrays.fit_parts, **FIT_QUICKLY))


def said(capsys, command):
    """Return the exit code and the JSON of a command, as a shell reads it."""
    code = main([*shlex.split(command), "--json"])
    return code, json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    """Return the one line of a command that ends with exit code 2."""
    capsys.readouterr()
    assert main(arguments) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_the_command_imports_neither_dagster_nor_dvc_nor_mlflow():
    code = (
        "import pkgutil, importlib, sys, pipelines.tool as tool\n"
        "for m in pkgutil.iter_modules(tool.__path__): importlib.import_module(f'pipelines.tool.{m.name}')\n"
        "print({'dagster', 'dvc', 'mlflow', 'ruamel'} & {name.partition('.')[0] for name in sys.modules})"
    )
    assert completed("python", "-c", code).stdout.strip() == "set()"


def test_the_garbage_collector_stays_on_in_programs_of_others(own_folder):
    put("mine/__init__.py", "import gc, pipelines; print(gc.isenabled())")
    put("mine/__main__.py", "")
    assert completed("python", "-m", "mine").stdout == "True\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    out = capsys.readouterr().out
    assert f"example: universal-geometry {command}" in out
    assert "exit codes:" in out
    example = out.partition("\nexample: ")[2].partition("\n")[0]
    assert ("--out" in example) == (command in ("audit", "translate", "migrate"))  # which write files
    assert ("FIRST,SECOND" in out) == (command == "migrate")  # the others read one file


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("audit no.npy", "no.npy: there is no such file"),
        ("audit here.npy --limit 3", "--limit 3: at least 100"),
        ("audit here.npy --defences magic", "magic"),
        ("audit here.npy --defences 'round inf'", "round inf"),
        ("audit here.npy --defences 'noise inf'", "noise inf"),
        ("audit here.npy --encoders nobody", "encoder 'nobody'"),
        ("audit here.npy --encoders use+use", "encoder 'use+use': neither one of"),
        ("audit here.npy --encoders ''", "--encoders: at least one"),
        ("audit here.npy --labels ''", "--labels: at least one"),
        ("audit here.npy --seed -1", "--seed -1"),
        ("translate fit here.npy here.npy --out map --seed -1", "--seed -1: a number from 0 to"),
        ("translate fit here.npy no.npy --out map", "no.npy: there is no such file"),
        ("translate apply no here.npy --out x.parquet", "no: no translators there"),
        ("translate apply no here.npy --out x.txt", "vectors are written to files"),
        ("translate fit here.npy here.npy --out here.npy", "here.npy/seed-0.safetensors: cannot be written"),
        ("translate judge no here.npy two.npy", "here.npy: 9 vectors, and two.npy 2: rows must be pairs"),
        ("translate judge no here.npy same.npy", "same.npy: all 9 vectors are the same"),
        ("validate no.yaml", "no.yaml: "),
        ("identify no.npy", "no.npy: there is no such file"),
        ("identify here.npy --texts no.txt", "no.txt: there is no such file"),
        (f"identify {'x' * 300}.npy", "file name too long"),
        ("identify ''", "a path is empty"),
        ("identify here.npy --no-fit --texts here.npy --seed 0", "--texts --seed: only fits use this"),
        ("identify here.npy --no-fit --limit 100 --known 100 --quick", "--limit --known --quick: only fits"),
        ("translate fit here.npy same.npy --out map", "same.npy: all 9 vectors are the same"),
        ("translate fit one.npy here.npy --out map", "one.npy: 1 vectors, but at least 2"),
        ("migrate one.npy here.npy --out x.npy", "one.npy: 1 vectors, but at least 2"),
        ("identify here.npy --device warp", "'warp' is none of"),
        ("identify here.npy --no-fit --device cpu", "--device: only fits use this"),
        ("identify here.npy --seed 0", "--seed: only fits use this, and 9 distinct vectors get one"),
        ("identify here.npy --encoders ''", "--encoders: at least one"),
        ("identify here.npy --column a", "--column: no column can be chosen in here.npy"),
        ("audit here.npy --collection a", "--collection: no collection can be chosen in here.npy"),
        ("translate judge no here.npy two.npy --column a,b", "can be chosen in here.npy or two.npy"),
        ("translate apply no here.npy --out x.npy --column a", "--column: no column can be chosen in here"),
        ("translate fit here.npy two.npy --out map --restarts -1", "--restarts -1: a number from 0 to"),
        ("migrate here.npy two.npy --out x.npy --column ,b", "can be chosen in here.npy or two.npy"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(own_folder, capsys, command, says):
    np.save("here.npy", np.eye(9))
    np.save("two.npy", np.eye(2, 9))
    np.save("same.npy", np.ones((9, 9)))
    np.save("one.npy", np.eye(1, 9))
    assert says in refused(capsys, *shlex.split(command))
    assert not Path("map").exists()


def test_a_name_in_quotes_may_have_a_comma():
    args = commands().parse_args(["audit", "dump.npy", "--labels", 'law,\n"tax, customs",', "--defences", ""])
    assert (args.labels, args.defences) == (("law", "tax, customs"), ())
    assert audit.plain(args.labels) == 'law, "tax, customs"'  # as the page shows it


@pytest.mark.parametrize(
    ("column", "chosen"),
    [
        ("a", ["a", "a"]),
        ("a, b", ["a", "b"]),
        (",b", [None, "b"]),
        ('"a, b"', ["a, b", "a, b"]),
        ('"a, b",c', ["a, b", "c"]),
        (None, [None, None]),
    ],
)
def test_columns_of_two_files_are_chosen_apart(column, chosen):
    given = Namespace(column=column, collection=None)
    assert [side.column for side in two_files(given, ".", ".")] == chosen
    with refusal("--collection a,b,c: more than FIRST,SECOND"):
        two_files(Namespace(column=None, collection="a,b,c"), ".", ".")


def test_a_map_is_fitted_applied_and_judged_on_files(own_folder, monkeypatch, capsys):
    texts, turned = two_encoders()
    np.save("old.npy", texts[:1500])
    np.save("new.npy", turned[1500:])
    fit_quickly(monkeypatch)
    code, fitted = said(capsys, "translate fit old.npy new.npy --out map --restarts 0")
    assert (code, fitted["verdict"]["agreement"] > 0.5) == (0, True)
    held = texts[2900:]
    pl.DataFrame({"id": range(100), "embedding": held.tolist()}).write_parquet("held.parquet")
    np.save("held.npy", held)
    PARTS.save(Path("map/parts.safetensors"))
    np.save("true.npy", turned[2900:])
    draft = Path(f".moved.parquet.{MACHINE}.{2**22 + 1}.part")  # of a command that was killed
    draft.touch()
    for name in ("moved.parquet", "moved.arrow", "moved.npy", "upper.PARQUET", "upper.NPY"):
        assert said(capsys, f"translate apply map held.parquet --out {name}")[1]["rows"] == 100
    assert not draft.exists()
    alone = "only vectors; other columns"
    for output, source, lost in (
        ("m.arrow", "moved.arrow", 1),
        ("m.npy", "held.npy", 0),
        ("m.npy", "held.parquet", 1),
        ("m.arrow", "held.parquet", 0),
    ):
        assert main(["translate", "apply", "map", source, "--out", output]) == 0
        assert (f"{output}: {alone}" in capsys.readouterr().out) == lost
    for frame in (pl.read_parquet("moved.parquet"), pl.read_ipc("moved.arrow")):
        assert frame["id"].to_list() == list(range(100))
        assert frame["vector"].to_numpy() == pytest.approx(np.load("moved.npy"))
        assert (frame["aligned"].to_numpy() == (held[:, 0] > held[:, 1])).all()
    assert pl.read_parquet("upper.PARQUET").equals(pl.read_parquet("moved.parquet"))
    assert np.array_equal(np.load("upper.NPY"), np.load("moved.npy"))
    for names in ("", "--column embedding,any"):
        assert said(capsys, f"translate judge map held.parquet true.npy {names}")[1]["top1"] > 0.9
    Path("map/parts.safetensors").unlink()
    Path("held").mkdir()
    pl.read_parquet("held.parquet").select("embedding", "id").write_parquet("held/b.parquet")
    Path("held.parquet").rename("held/a.parquet")  # the other columns of any parquet are kept
    assert main(["translate", "--json", "apply", "map", "held", "--out", "m.parquet"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 200
    assert pl.read_parquet("m.parquet").columns == ["id", "vector"]
    assert main(["translate", "apply", "map", "moved.parquet", "--out", "m.parquet"]) == 0
    assert pl.read_parquet("m.parquet").columns == ["id", "vector"]  # `aligned` was of another map
    assert main(["translate", "apply", "map", "missing.npy", "--out", "new/m.parquet"]) == 2
    assert not Path("new").exists()
    doubtful = Verdict(0.3, "doubtful", 0.1, 50)
    for file in Path("map").glob("seed-0.*"):
        shutil.copy(file, file.with_stem("seed-1"))
    for verdicts in ({0: doubtful}, {0: doubtful, 1: Verdict(0.9, "aligned", 0.9, 50)}):
        write_verdicts(Path("map"), verdicts)
        assert main(["translate", "apply", "map", "held", "--out", "m.parquet"]) == 0
        told = "the verdict on the map is doubtful: it may be wrong" in capsys.readouterr().out
        assert told == (len(verdicts) == 1)
        label = said(capsys, "translate apply map held --out m.parquet")[1]["verdict"]
        assert (label == "doubtful") == told
    whole = pa.array((held * 2**26).astype(int).tolist())  # integers that float32 rounds
    for names in (["vector"], ["vector", "a", "a"]):
        pq.write_table(pa.table([whole] * len(names), names), f"{len(names)}.parquet")
    assert main(["translate", "apply", "map", "1.parquet", "--out", "m.parquet"]) == 0
    pq.write_table(pa.table([whole, whole], ["a", "vector"]), "both.parquet")
    apply = ["translate", "apply", "map", "both.parquet", "--column", "a", "--out"]
    assert "its column `vector` would be lost" in refused(capsys, *apply, "m.parquet")
    assert main([*apply, "m.npy"]) == 0  # holds vectors alone
    np.save("nan.npy", np.append(np.zeros((limits.BLOCK, 64)), np.full((1, 64), np.nan), 0))
    told = refused(capsys, *["translate", "apply", "map", "nan.npy", "--out", "m.npy"])
    at = f"the first in row 0 (counted from row {limits.BLOCK})\n"
    assert f"nan.npy: 1 vectors are too large or not finite, {at}" in told
    ids, rows = [str(i) for i in range(100)], [*held.tolist()[:70], None, *held.tolist()[71:]]
    for size in (64, -1):  # lists of a fixed size, or of any
        gap = pa.table({"id": ids, "vector": pa.array(rows, pa.list_(pa.float32(), size))})
        pq.write_table(gap, "gap.parquet", row_group_size=60)
        told = refused(capsys, *["translate", "apply", "map", "gap.parquet", "--out", "m.parquet"])
        assert (
            "gap.parquet: 1 vectors are not of dimension 64, the first in row 10 (counted from row 60)\n"
            in told
        )
    np.save("thin.npy", turned[:100, :3])
    told = refused(capsys, *["translate", "judge", "map", "thin.npy", "true.npy"])
    assert "thin.npy: vectors of 3 dimensions; the map reads 64" in told
    for wrong in (
        "apply map thin.npy --out x.npy",
        "fit old.npy new.npy --out map --seed 1",  # the folder has seed 0
        "fit old.npy new.npy --out old.npy",
        "apply map held --out held/c.parquet",
        "apply map 3.parquet --out x.parquet",
    ):
        refused(capsys, "translate", *wrong.split())
    put("stopped/verdicts.json", json.dumps({0: asdict(doubtful)}))
    monkeypatch.setattr(translate, "save", Mock(side_effect=KeyboardInterrupt))
    assert main(["translate", "fit", "old.npy", "new.npy", "--out", "stopped", "--restarts", "0"]) == 130
    assert json.loads(Path("stopped/verdicts.json").read_bytes()) == {}  # it was of the map before


def test_a_failed_fit_advises_what_its_user_can_do(own_folder, monkeypatch, capsys):
    np.save("a.npy", np.eye(9))
    fits_with(monkeypatch, 9, 0.0, "failed", 0.1, 50, 0.0)
    assert main(["translate", "fit", "a.npy", "a.npy", "--out", "map"]) == 0
    out = capsys.readouterr().out
    assert "failed (agreement 0.10); to try: more texts on both sides, more --restarts" in out
    assert "match_in" not in out


def test_a_map_that_another_command_wrote_meanwhile_stays(own_folder, monkeypatch, capsys):
    def fit_parts(*_, **__):
        put("map/seed-1.json", "{}")
        return Identity(9, 9), Verdict(0.9, "aligned", 0.9, 50), None

    np.save("a.npy", np.eye(9))
    monkeypatch.setattr(arrays, "fit_parts", fit_parts)
    told = refused(capsys, "translate", "fit", "a.npy", "a.npy", "--out", "map")
    assert "the map of seed-1 is there" in told


def test_parts_of_a_map_are_written_and_removed_by_the_next_fit(own_folder, monkeypatch, capsys):
    np.save("a.npy", np.eye(64))
    full = Mock(side_effect=SafetensorError("I/O error: No space left on device (os error 28)"))
    found = Identity(64, 64), Verdict(0.9, "partial", 0.6, 100, 0.5)
    made = [(*found, parts) for parts in (PARTS, None, Mock(save=full))]
    monkeypatch.setattr(arrays, "fit_parts", Mock(side_effect=made))
    for parts in (True, False):
        assert said(capsys, "translate fit a.npy a.npy --out map")[0] == 0
        assert Path("map/parts.safetensors").exists() == parts
    line = refused(capsys, "translate", "fit", "a.npy", "a.npy", "--out", "map")
    assert "map/parts.safetensors: no space left on the disk" in line


@pytest.mark.slow
def test_ctrl_c_ends_a_fit(own_folder):
    for name in ("a.npy", "b.npy"):
        np.save(name, np.random.default_rng(0).normal(size=(3000, 128)))
    command = ["python", "-m", "pipelines.tool", "translate", "fit", "a.npy", "b.npy", "--out", "m"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as fit:
        next(line for line in fit.stderr if "candidates" in line)
        fit.send_signal(signal.SIGINT)
        assert fit.stderr.read().endswith("translate: stopped\n")
    assert fit.returncode == 130


@pytest.mark.parametrize(
    ("command", "label", "repeats"),
    [
        ("audit", "failed", [(30,), (30, 240)]),
        ("audit --quick", "failed", [(30,)]),
        ("identify --fit", "partial", [(30,), (30, 240)]),
        ("identify --fit", "aligned", [(30,)]),
    ],
)
def test_all_maps_are_compared_only_if_the_first_fail(own_folder, monkeypatch, command, label, repeats):
    np.save("old.npy", np.random.default_rng(0).normal(size=(200, 16)))
    put("texts.txt", "\n\n".join(f"text number {i}" for i in range(200)))
    fit = Mock(side_effect=lambda source, target, *_: Identity(source.shape[1], target.shape[1]))
    monkeypatch.setattr(wasserstein_procrustes, "fit", fit)
    share = 0.0 if label == "failed" else 1.0
    monkeypatch.setattr(fits, "judge", lambda *_: Verdict(0.5, label, 0.5, 20.0, share))
    more = ["old.npy", "--texts", "texts.txt", "--encoders", "wordllama"]
    assert main([*command.split(), *more]) == 0
    assert [*dict.fromkeys(call.args[2].repeats for call in fit.call_args_list)] == repeats


def test_from_python_a_device_is_named_as_on_the_command_line_and_a_path_as_text(own_folder, monkeypatch):
    with refusal("device: 'warp' is none of auto, cpu, cuda"):
        encoders.opened("wordllama", "warp")
    monkeypatch.setattr(encoders, "folder_of", lambda row: Path())
    monkeypatch.setattr(encoders.query, "as_function", lambda folder, row, device, queries: device)
    assert encoders.opened("wordllama", "auto") == encoders.opened("wordllama") == resolve()
    put("texts.txt", "a\n\nb")
    assert encoders.texts_of("texts.txt") == ["a", "b"]


def test_this_folder_may_be_an_encoder():
    assert encoders.row_of(".").path == "."


def test_an_encoder_opened_twice_is_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fetch(row, folder):
        put(folder / "weights", "mine")
        fetches.append(row)
        if len(fetches) == 1:  # the other command is faster
            put(encoders.folder_of(row) / "weights", "the other's")

    fetches = []
    monkeypatch.setattr(encoders.sources, "fetch", fetch)
    folder = encoders.folder_of(encoders.row_of("minilm"))
    assert ((folder / "weights").read_text(), len(fetches)) == ("the other's", 2)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, number):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    monkeypatch.setattr(encoders.sources, "fetch", Mock(side_effect=OSError(number, "")))
    with refusal(r"minilm.*(no space left|permission denied)"):
        encoders.folder_of(encoders.row_of("minilm"))


def test_what_there_is_to_choose_from(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    for e5 in (False, True):
        monkeypatch.setattr(encoders, "find_spec", lambda name, e5=e5: e5)
        found = said(capsys, "ls")[1]
        assert ("e5" in found["encoders"]) == e5
    assert set(found["encoders"]) == set(PACKAGED)
    assert "sample" in found["studies"]
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "ls studies")[1] == {"studies": {}}


def test_an_answer_is_printed_wherever_it_can_be(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "ls", lambda args: Answer(["± 1"], {"error": float("nan")}))
    assert said(capsys, "ls") == (0, {"error": None})  # JSON has no NaN
    with io.TextIOWrapper(io.BytesIO(), "ascii") as ascii, open("/dev/full", "w") as full:
        for code, stdout in enumerate((ascii, full)):
            monkeypatch.setattr("sys.stdout", stdout)
            assert main(["ls"]) == code
    monkeypatch.setattr("sys.stdout", None)  # closed: >&-
    assert main(["ls"]) == 0
    assert capsys.readouterr().err.endswith("printed: [Errno 28] No space left on device\n")
    monkeypatch.undo()
    monkeypatch.setattr("sys.stderr", None)
    assert main(["validate", "gone"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", ["tool ls encoders", "fetch --help", "report"])
def test_a_reader_that_ends_early_is_no_error(own_folder, command):
    put("params.yaml", "study: t\n")
    done = completed("bash", "-c", f"python -m pipelines.{command} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize("here", [True, False])
def test_a_study_is_validated_inside_and_outside_of_its_checkout(tmp_path, monkeypatch, capsys, here):
    monkeypatch.chdir(ROOT if here else tmp_path)
    code, found = said(capsys, f"validate '{ROOT}/studies/sample.yaml'")
    assert (code, found["study"]) == (0, "sample")
    assert main(["validate", "sample"]) == (0 if here else 2)  # a name in studies/


def test_a_short_row_of_params_yaml_is_refused(tmp_path):
    study = expand(read(ROOT / "studies/sample.yaml"))
    own = {"source": "docstrings-wordllama", "target": "docstrings-minilm", "aligner": "identity"}
    study["align"]["own"] = own
    study["evaluate"]["own"] = {}
    path = tmp_path / "params.yaml"
    write_yaml(path, study)
    with refusal("evaluate.own lacks aligner, source, target, translator: `make study STUDY="):
        validate.run(Namespace(study=path))
    del study["transfer"], study["evaluate"]["own"]
    write_yaml(path, study)
    with refusal("lacks table transfer: `make study STUDY="):
        validate.run(Namespace(study=path))


def test_the_doctor_names_the_command_that_mends(monkeypatch, capsys):
    code, found = said(capsys, "doctor")
    assert (code, found["missing"]) == (0, [])
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: ["absent>=2"])
    code, found = said(capsys, "doctor")
    assert (code, found["missing"]) == (1, ["absent is missing: pip install absent"])
    needed = ["torch>=2", "universal-geometry[x]; extra == 'dev'", 'not-there[all]>=1; extra == "x"']
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: needed)
    code, found = said(capsys, "doctor")
    assert code == 0
    assert found["optional"] == {"x": "not-there (not installed: pip install 'universal-geometry[x]')"}
