"""Study paper and study paper-mimic from fetch to report, on stand-ins: tiny models and sets in the place of the hub's.

The rows are those of the studies; `small` says which sizes are others. Of rows that differ in encoders of equal dimension alone
the first is run (a study has 650 rows, of some 150 kinds); that all of them load, refer to rows that are there and are read by
DVC is held by test_params.py and test_studies.py.
"""

import importlib
import json
import shutil
from collections.abc import Callable
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import polars as pl
import pytest
import torch
import yaml
from transformers import BertConfig, BertModel, T5Config, T5ForConditionalGeneration

from pipelines.corpora.sources import hub
from pipelines.runtime import track
from pipelines.study import params
from pipelines.study.expand import expand
from pipelines.study.reading import read
from pipelines.study.row import Ref, Row
from tests import test_encoders as tiny

ROOT = Path(__file__).parents[1]
DIMENSIONS = {"clip": 512, "qwen": 2560}  # of the paper's encoders; all others have 768
MODELS = {"gtr": tiny.t5, "clip": tiny.clip, "qwen": tiny.qwen}  # stand-ins; all others are BERTs


# ---------------------------------------------------------------- a small study


ALIGNERS: dict[str, dict[str, Any]] = {
    "vec2vec": {"steps": 4, "min_steps": 4, "log_every": 2, "checkpoint_every": 2, "width": 16, "disc_width": 16, "batch": 16,
                "precision": "float32"},
    "wasserstein_procrustes": {"clusters": 4, "repeats": 2, "assignment_restarts": 2, "rounds": [40], "refinements": 2,
                               "passes": 1},
    "mini_vec2vec": {"clusters": 4, "repeats": 2, "assignment_restarts": 2, "neighbours": 5, "refine_steps": 2},
    "transport": {"points": 40},
}  # fmt: skip
SEARCH = {"samples": 2, "beams": 2, "branches": 2, "stride": 4, "corrections": 2, "rounds": 1}
INVERTER = {"vocabulary": 320, "tokens": 12, "width": 16, "layers": 1, "heads": 2, "epochs": 1, "prefix": 2}


def small(study: dict[str, Any], language_model: Path) -> dict[str, Any]:
    """The study with a few hundred texts, a few steps, narrow networks, float32 (a CPU has no fp16), at most two seeds, and a
    local language model. Nothing else is changed: no row, no source, no reference, no measure."""
    least = lambda row, **sizes: row | {k: min(row[k], v) for k, v in sizes.items() if k in row}  # noqa: E731
    changes: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "corpora": lambda row: least(row, rows=600, test=100),
        "encoders": lambda row: row | {"precision": "float32", "max_tokens": 24},
        "finetune": lambda row: least(row, batch=8, steps=2, every=1) | {"max_tokens": 16},
        "geometry": lambda row: least(row, limit=60),
        "align": _small_fit,
        "evaluate": lambda row: least({"batch": 50} | row, batch=50),
        "inverters": lambda row: (
            row | {"known": 60, "inverter": _small_inverter(row["inverter"], language_model)}
        ),
        "invert": lambda row: least(row, texts=4) | {"search": least(row["search"], **SEARCH)},
    }
    rows = {
        table: {name: change(row) for name, row in study[table].items()}
        for table, change in changes.items()
        if table in study
    }
    return study | rows


def _small_fit(row: dict[str, Any]) -> dict[str, Any]:
    limit = row.get("limit")
    sizes = [max(30, n // 4000) for n in (limit if isinstance(limit, list) else [limit or 4000])]
    more = {} if limit is None else {"limit": sizes if isinstance(limit, list) else sizes[0]}
    return (
        row
        | ALIGNERS.get(row["aligner"], {})
        | more
        | ({"seeds": row["seeds"][:2]} if "seeds" in row else {})
    )


def _small_inverter(row: dict[str, Any], language_model: Path) -> dict[str, Any]:
    if "model" not in row:
        return row | INVERTER
    return row | {"model": str(language_model), "tokens": 12, "prefix": 2, "epochs": 1}


# ---------------------------------------------------------------- one row of each kind


def kept(study: params.Study, tree: dict[str, Any]) -> dict[str, Any]:
    """The first row of each kind, and every row that one of these names."""
    first = {}
    for where, row in study.rows():
        if not where.startswith("published."):
            first.setdefault(kind(where, row, study), where)
    keep = set(first.values())
    while more := {named for where in keep for named in references(where, study)} - keep:
        keep |= more
    return tree | {
        table: {name: row for name, row in rows.items() if f"{table}.{name}" in keep}
        for table, rows in tree.items()
        if isinstance(rows, dict) and table != "published"
    }


def kind(where: str, row: Row, study: params.Study) -> str:
    """What makes a stage another one: its table and settings, its fit's settings, the dimensions on its two sides."""
    table = where.split(".")[0]
    if table in ("corpora", "encoders", "embed", "finetune", "geometry"):
        return where
    said = row.model_dump()
    fit = study.align[said["translator"]] if "translator" in said else row
    names = {
        "source",
        "target",
        "translator",
        "inverter",
        "space",
        "encoder",
        "source_encoder",
        "target_encoder",
    }
    settings = {k: v for k, v in said.items() if k not in names or (table == "inverters" and k == "inverter")}
    settings |= (
        {"trained": study.encoders[said["encoder"]].path, "corpus": None} if table == "similarity" else {}
    )
    fitted = fit.model_dump(exclude={"source", "target"}) if "translator" in said else {}
    sides = [study.spaces()[said[k]] for k in ("source", "target") if k in said]
    corpora, dimensions = (
        {side.corpus for side in sides},
        [DIMENSIONS.get(side.encoder, 768) for side in sides],
    )
    learnt = study.inverters[said["inverter"]].corrector if table == "invert" else None
    return f"{table} {settings} {fitted} {corpora} {dimensions} {learnt}"


def references(where: str, study: params.Study) -> set[str]:
    """Rows that a row names, and the row whose folder its path lies in."""
    table, name = where.split(".")
    table = "align" if table == "translators" else table  # none of these studies fits several spaces at once
    row, rows = getattr(study, table)[name], set()
    for field, info in type(row).model_fields.items():
        value = getattr(row, field)
        for mark in info.metadata:
            if isinstance(mark, Ref) and mark.table and value is not None:
                rows |= {f"{mark.table}.{v}" for v in ([value] if isinstance(value, str) else value)}
            elif isinstance(mark, Ref) and str(value).startswith(("data/trained/", "data/encoders/")):
                rows.add(f"{'finetune' if 'trained' in value else 'encoders'}.{Path(value).name}")
        if field in ("encoder", "source_encoder", "target_encoder"):
            rows.add(f"encoders.{value}")
    return rows


def of_rows_that_run(published: dict[str, Any], tree: dict[str, Any]) -> dict[str, Any]:
    """A published number without the cell beside it, where the cell's row is not run here."""
    verb, row = published.get("of", "evaluate.").split(".")[:2]
    return published if row in tree[params.Study.tables()[verb]] else published | {"of": None}


# ---------------------------------------------------------------- stages in the order of dvc.yaml


def stages(study: params.Study) -> list[tuple[str, str]]:
    """(verb, row) of each stage, after the stages that make what it depends on, as dvc.yaml has it."""
    templates = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    deps, makers = {}, {}
    for verb, table in params.Study.tables().items():
        body = templates.get(verb, {}).get("do")
        for name, row in getattr(study, table).items() if body else ():
            filled = lambda text, row=row, name=name: _filled(text, name, row)  # noqa: E731
            deps[verb, name] = [filled(dep) for dep in body["deps"]]
            outputs = [
                path for entry in body["outs"] for path in ([entry] if isinstance(entry, str) else entry)
            ]
            makers |= {filled(path): (verb, name) for path in outputs}
    before = {
        stage: {
            maker
            for path, maker in makers.items()
            for dep in needed
            if _inside(path, dep) or _inside(dep, path)
        }
        - {stage}
        for stage, needed in deps.items()
    }
    return list(TopologicalSorter(before).static_order())


def _filled(text: str, name: str, row: Row) -> str:
    text = text.replace("${key}", name)
    for field in type(row).model_fields:
        text = text.replace(f"${{item.{field}}}", str(getattr(row, field)))
    return text


def _inside(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


# ---------------------------------------------------------------- stand-ins for the hub


def words(n: int, length: int, seed: int) -> list[str]:
    """n texts of `length` of the words that the tiny models know."""
    return [" ".join(text) for text in np.random.default_rng(seed).choice(tiny.WORDS, (n, length))]


def pairs(n: int) -> dict[str, list]:
    return {"sentence1": words(n, 6, 1), "sentence2": words(n, 6, 2), "score": np.linspace(0, 5, n).tolist()}


def load_dataset(name: str, config: str | None, *, data_files: str | None, streaming: bool, **_: Any) -> Any:
    """Sets of the ids, files and columns that the studies name; an unknown one is a KeyError."""
    n = 20
    topics = np.eye(19, dtype=int)[np.arange(40) % 19]
    sets: dict[tuple[str, str | None, str | None], dict[str, list]] = {
        ("jxm/nq_corpus_dpr", None, None): {"title": ["t"] * 800, "text": words(800, 100, 0)},
        ("cardiffnlp/tweet_topic_multilingual", "en", None): {"text": words(40, 12, 3), "label": topics.tolist()},
        ("snoop2head/enron_aeslc_emails", None, None): {"text": words(70, 30, 4)},
        ("princeton-nlp/datasets-for-simcse", None, "wiki1m_for_simcse.txt"): {"text": words(40, 10, 5)},
        ("princeton-nlp/datasets-for-simcse", None, "nli_for_simcse.csv"): {
            "sent0": words(n, 6, 6), "sent1": words(n, 6, 7), "hard_neg": words(n, 6, 8),
        },
        **{(f"mteb/{task}-sts", None, None): pairs(n) for task in ("sts12", "sts13", "sts14", "sts15", "sts16", "sickr")},
        ("mteb/stsbenchmark-sts", None, None): pairs(n),
    }  # fmt: skip
    dataset = datasets.Dataset.from_dict(sets[name, config, data_files])
    return dataset.to_iterable_dataset() if streaming else dataset


def plain_bert(folder: Path) -> Path:
    """A checkpoint of transformers alone, as bert-base-uncased is."""
    return tiny.saved(
        folder,
        BertModel(BertConfig(**tiny.SIZES, max_position_embeddings=40)),
        tiny.tokenizer("[CLS] $A [SEP]"),
    )


def models_in_cache(study: params.Study, cache: Path, work: Path) -> None:
    """A snapshot of a tiny model for each encoder of the hub."""
    for number, (name, row) in enumerate((n, r) for n, r in study.encoders.items() if r.source == "hub"):
        torch.manual_seed(number)
        folder = (plain_bert if name == "bert" else MODELS.get(name, tiny.bert))(work / name)
        repository = cache / f"models--{str(row.model).replace('/', '--')}"
        shutil.copytree(folder, repository / "snapshots" / ("0" * 40))
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("0" * 40)


def language_model(folder: Path) -> Path:
    """A T5 that writes."""
    tokens = tiny.tokenizer("$A [SEP]", eos_token="[SEP]")
    sizes = {"vocab_size": 40, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    config = T5Config(**sizes, decoder_start_token_id=0, eos_token_id=3, pad_token_id=0)
    return tiny.saved(folder, T5ForConditionalGeneration(config), tokens)


def mimic(folder: Path) -> None:
    """Notes as PhysioNet gives them out, and MedCAT's annotations of them."""
    folder.mkdir(parents=True)
    notes = pl.DataFrame(
        {
            "ROW_ID": range(1, 41),
            "CATEGORY": ["Nursing"] * 40,
            "ISERROR": [None] * 40,
            "TEXT": words(40, 30, 9),
        }
    )
    notes.write_csv(folder / "NOTEEVENTS.csv")
    annotations = {str(i): {"entities": {"0": {"pretty_name": f"condition {i % 12}"}}} for i in range(1, 41)}
    (folder / "annotations.json").write_text(json.dumps(annotations))


class Quiet:
    """A run that nobody tracks."""

    def log(self, *_: Any, **__: Any) -> None: ...

    input = artifact = table = log


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """An empty working folder, a model cache, and the stand-ins for data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "_reachable", lambda *_: None)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(track, "took", lambda _: {})
    return tmp_path


@pytest.mark.parametrize("name", [pytest.param("paper", marks=pytest.mark.slow), "paper-mimic"])
def test_every_kind_of_row_runs_and_the_report_shows_every_published_number(name, offline):
    tree = expand(read(ROOT / "studies" / f"{name}.yaml"))
    whole = params.Study.model_validate(tree)
    torch.manual_seed(0)
    tree = small(kept(whole, tree), language_model(offline / "t5"))
    tree["published"] = {name: of_rows_that_run(row, tree) for name, row in tree["published"].items()}
    study = params.Study.model_validate(tree)
    models_in_cache(study, offline / "cache", offline / "models")
    mimic(offline / "data/raw/mimic")
    verbs = params.Study.tables()
    for verb, row in stages(study):
        getattr(importlib.import_module(f"pipelines.{verb}"), verb)(
            row, getattr(study, verbs[verb])[row], study, Quiet()
        )
    for verb in set(verbs) - {"fetch", "train_inverter", "audit"}:
        rows = getattr(study, verbs[verb])
        assert {path.stem for path in Path("results", verb).glob("*.json")} == set(rows), verb
    report = importlib.import_module("pipelines.report")
    report.report("report", None, study, Quiet())
    page = Path("report/report.md").read_text()
    lines = {
        row.what: [line for line in page.splitlines() if row.what in line and row.by in line]
        for row in study.published.values()
    }
    assert [what for what, shown in lines.items() if not shown] == []
    measured = [row.what for row in study.published.values() if row.of]
    assert len(measured) >= 5
    assert [what for what in measured if "not measured" in lines[what][0]] == []
