"""Short rows become full ones; params.yaml keeps its form when DVC writes it."""

import re

import pytest
from dvc.utils.hydra import apply_overrides

from pipelines.study import activate, params
from pipelines.study.expand import TABLES, expand
from pipelines.study.reading import read
from tests.small import STUDIES

STUDY = {
    "corpora": {
        "passages": {"source": "synthetic"},
        "mails": {"source": "synthetic", "kind": "emails"},
        "mails-v2": {},
    },
    "encoders": {"minilm": {"source": "wheel"}, "use": {"source": "wheel"}, "v2-use": {}},
    "align": {"a": {"source": "passages-use", "target": "passages-minilm", "aligner": "identity"}},
    "align_jointly": {"j": {"spaces": ["passages-use", "passages-minilm"], "aligner": "vec2vec"}},
    "inverters": {"mails": {"space": "mails-minilm"}},
}


def row(table, name, keys):
    return expand(STUDY | {table: STUDY.get(table, {}) | {name: keys}})[table][name]


@pytest.mark.parametrize(
    ("table", "name", "short", "full"),
    [
        ("encoders", "other", {"source": "wheel"}, {"model": "other", "path": "constraints.txt"}),
        ("finetune", "f", {"network": {}}, {"start": "pipelines/contrastive/scratch.py"}),
        ("align_jointly", "k", {"aligner": "vec2vec"}, {"start": "pipelines/aligners/vec2vec"}),
        ("evaluate", "a", {}, {"translator": "a", "aligner": "identity", "source": "passages-use"}),
        ("embed", "mails-v2-use", {"corpus": "mails", "encoder": "v2-use"}, {"corpus": "mails"}),
        ("evaluate", "c", {"translator": "j/passages-minilm/passages-use"}, {"target": "passages-use"}),
        ("attributes", "a", {}, {"corpus": "passages", "source_encoder": "use", "target_encoder": "minilm"}),
        ("inverters", "i", {"corpus": "mails", "encoder": "use"}, {"space": "mails-use"}),
        ("inverters", "mails-use", {}, {"corpus": "mails", "encoder": "use"}),
        (
            "invert",
            "mails",
            {"translator": "a"},
            {
                "source": "mails-use",
                "target": "mails-minilm",
                "aligner": "identity",
                "corpus": "mails",
                "encoder": "minilm",
            },
        ),
        ("bulk", "b", {"model": "data/translators/a"}, {"aligner": "identity"}),
        ("bulk", "b", {"model": "data/encoders/use"}, {"aligner": "core"}),
    ],
)
def test_keys_follow_from_others(table, name, short, full):
    assert full.items() <= row(table, name, short).items()


def test_every_table_is_expanded():
    assert {*TABLES} == {*params.Study.table_by_verb().values(), "published"}


def test_slots_make_several_rows_and_embeddings_are_added():
    assert set(expand(STUDY)["embed"]) == {"passages-use", "passages-minilm", "mails-minilm"}
    matrix = {"a b": [["use", "minilm"], ["minilm", "use"]], "n": [5, 10]}
    keys = {"source": "mails-{a}", "target": "mails-{b}", "limit": ["{n}", 9], "aligner": "identity"}
    study = STUDY | {"align": STUDY["align"] | {"{a}-{b}-{n}": keys | {"matrix": matrix}}}
    study["evaluate"] = {"{align}": {"pictures": False}, "use-minilm-5": {}}
    full = expand(study)
    assert list(full["align"]) == ["a", "use-minilm-5", "use-minilm-10", "minilm-use-5", "minilm-use-10"]
    own = {"source": "mails-minilm", "target": "mails-use", "limit": [10, 9]}
    assert full["align"]["minilm-use-10"] == keys | own
    plain = {name for name, row in full["evaluate"].items() if "pictures" not in row}
    assert (set(full["evaluate"]), plain) == (set(full["align"]), {"use-minilm-5"})


@pytest.mark.parametrize(
    ("table", "name", "keys", "line"),
    [
        ("evaluate", "b", {"translator": "aa"}, "evaluate.b.translator: there is no row 'aa'; did you mean"),
        ("evaluate", "a", {"aligner": "vec2vec"}, "evaluate.a.aligner: vec2vec, but a is fitted by identity"),
        ("inverters", "i", {"space": "mails-use", "corpus": "passages"}, "inverters.i.corpus: passages, but"),
        ("align", "{x}", {"matrix": {"y": [1]}}, "align.{x}: there is no slot or table 'x'"),
        ("align", "{x}", {"matirx": {"x": [1]}}, ": there is no table 'x', and the row has no `matrix`"),
        (
            "align",
            "{evaluate}",
            {},
            "align.{evaluate}: table evaluate does not stand before align",
        ),
        ("align", "{x}", {"matrix": {"x,y": [[1, 2]]}}, ".matrix.x,y: a slot has letters, digits and '_'"),
        ("bulk", "b", {"model": "data/translators/a", "aligner": "core"}, "bulk.b.aligner: core, but"),
        ("align", "{x}", {"matrix": {"x": []}}, "align.{x}.matrix.x: a list of values is needed"),
        ("align", "{x}", {"matrix": {"x y": [[1, 2], [3]]}}, ".matrix.x y: each line needs 2 values"),
        ("align", "{x}", {"matrix": {"x": ["b"], "x y": [[1, 2]]}}, ".matrix.x y: a slot is listed twice"),
        ("align", "{x}", {"matrix": {"x": ["b"], "y": [1, 2]}}, "two rows are called b"),
        ("embed", 3, 3, "embed.3: a mapping of keys is needed"),
        ("embed", "mails-v2-use", {}, "mails-v2-use: several corpora and encoders fit"),
    ],
)
def test_what_contradicts_itself_or_is_missing_is_refused(table, name, keys, line):
    with pytest.raises(ValueError, match=re.escape(line)):
        row(table, name, keys)


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_dvc_changes_one_line_of_params_yaml(path, tmp_path):
    text, file = activate.full_text(path), tmp_path / "params.yaml"
    file.write_text(text)
    assert params.load(file) == params.load(path)
    assert expand(read(file)) == read(file)
    assert not activate.edited(file)
    apply_overrides(file, ["study=another"])
    assert file.read_text() == text.replace(f"\nstudy: {path.stem}\n", "\nstudy: another\n")
    assert activate.edited(file)
