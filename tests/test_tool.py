"""The installed command: every subcommand, its exit codes, and what importing it does not import."""

import errno
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from pipelines.aligners.core.parts import Parts
from pipelines.fitting import arrays
from pipelines.runtime.errors import BadInput
from pipelines.tool import __main__ as command_line
from pipelines.tool import doctor, encoders, translate

COMMANDS = ("audit", "identify", "translate", "migrate", "validate", "ls", "doctor")


def said(capsys, *arguments):
    """Return the exit code and the JSON of a command."""
    code = command_line.main([*arguments, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


def test_the_command_imports_neither_dagster_nor_dvc_nor_mlflow():
    code = (
        "import pkgutil, importlib, sys, pipelines.tool as tool\n"
        "for m in pkgutil.iter_modules(tool.__path__): importlib.import_module(f'pipelines.tool.{m.name}')\n"
        "print({'dagster', 'dvc', 'mlflow', 'ruamel'} & {name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example_and_exit_codes(command, capsys):
    with pytest.raises(SystemExit) as ended:
        command_line.main([command, "--help"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"example: universal-geometry {command}" in out
    assert "--json" in out
    assert "exit codes:" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "no.npy"),
        ("audit", "here.npy", "--limit", "3"),
        ("audit", "here.npy", "--defences", "magic"),
        ("audit", "here.npy", "--encoders", "nobody"),
        ("translate", "apply", "no", "here.npy", "--out", "x.parquet"),
        ("translate", "apply", "no", "here.npy", "--out", "x.txt"),
        ("validate", "no.yaml"),
        ("identify", "no.npy"),
        ("identify", "here.npy", "--encoders", "nobody"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    np.save("here.npy", np.eye(9, dtype=np.float32))
    assert command_line.main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_map_is_fitted_applied_and_judged_on_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    topics, shares = random.normal(size=(40, 64)), np.linspace(1, 4, 40)
    of = random.choice(40, 3000, p=shares / shares.sum())
    texts = (topics[of] + 0.5 * random.normal(size=(3000, 64))) * np.linspace(2, 0.5, 64)
    turned = texts @ np.linalg.qr(random.normal(size=(64, 64)))[0]
    np.save("old.npy", texts[:1500])
    np.save("new.npy", turned[1500:])
    quick = {"clusters": 40, "repeats": 10, "rounds": (500, 500), "refinements": 20, "passes": 2}
    monkeypatch.setattr(translate.arrays, "fit", partial(arrays.fit, **quick))
    code, fitted = said(capsys, "translate", "fit", "old.npy", "new.npy", "--out", "map")
    assert (code, fitted["verdict"]["agreement"] > 0.5) == (0, True)
    frame = pl.DataFrame({"id": range(100), "embedding": texts[2900:].tolist()})
    frame.write_parquet("held.parquet")
    np.save("true.npy", turned[2900:])
    Parts(torch.zeros(64), torch.eye(2, 64), torch.tensor([True, False])).save(Path("map/parts.safetensors"))
    for name in ("moved.parquet", "moved.arrow", "moved.npy"):
        assert said(capsys, "translate", "apply", "map", "held.parquet", "--out", name)[1]["rows"] == 100
    assert pl.read_parquet("moved.parquet")["id"].to_list() == list(range(100))
    assert pl.read_parquet("moved.parquet")["vector"].to_numpy() == pytest.approx(np.load("moved.npy"))
    nearer = texts[2900:, 0] > texts[2900:, 1]
    for name in ("moved.parquet", "moved.arrow"):
        frame = pl.read_parquet(name) if name.endswith("parquet") else pl.read_ipc(name)
        assert (frame["aligned"].to_numpy() == nearer).all()
    assert said(capsys, "translate", "judge", "map", "held.parquet", "true.npy")[1]["top1"] > 0.9


def test_an_encoder_that_two_commands_open_at_once_is_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fetch(row, folder):
        folder.mkdir()
        (folder / "weights").write_text("mine")
        if fetches.append(row) is None and len(fetches) == 1:
            other = encoders.folder_of(row)  # the other command is faster
            (other / "weights").write_text("the other's")

    fetches = []
    monkeypatch.setattr(encoders.sources, "fetch", fetch)
    folder = encoders.folder_of(encoders.row_of("minilm"))
    assert ((folder / "weights").read_text(), len(fetches)) == ("the other's", 2)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, number):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fetch(row, folder):
        raise OSError(number, "")

    monkeypatch.setattr(encoders.sources, "fetch", fetch)
    with pytest.raises(BadInput, match=r"minilm.*(no space left|permission denied)"):
        encoders.folder_of(encoders.row_of("minilm"))


def test_what_there_is_to_choose_from(tmp_path, monkeypatch, capsys):
    found = said(capsys, "ls")[1]
    assert set(found["encoders"]) == set(encoders.PACKAGED)
    assert "procrustes" in found["aligners"]
    assert "core" not in found["aligners"]
    assert "sample" in found["studies"]
    assert said(capsys, "validate", "studies/sample.yaml")[1]["study"] == "sample"
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "ls", "studies")[1] == {"studies": {}}


def test_the_doctor_names_the_command_that_mends(monkeypatch, capsys):
    code, found = said(capsys, "doctor")
    assert (code, found["missing"]) == (0, [])
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: ["a-package-that-is-not>=2"])
    code, found = said(capsys, "doctor")
    assert (code, found["missing"]) == (
        1,
        ["a-package-that-is-not is missing: pip install a-package-that-is-not"],
    )


def test_the_doctor_reads_the_installed_metadata(monkeypatch, capsys):
    needed = ["torch>=2", "universal-geometry[x]; extra == 'dev'", 'not-there[all]>=1; extra == "x"']
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: needed)
    code, found = said(capsys, "doctor")
    assert code == 0
    assert found["optional"] == {"x": "not-there (not installed: pip install 'universal-geometry[x]')"}


def test_a_study_is_validated_outside_of_its_checkout(tmp_path, monkeypatch, capsys):
    study = Path("studies/sample.yaml").resolve()
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "validate", str(study))[0] == 0
