"""Run studies paper and paper-mimic from fetch to report. Tiny models and sets replace those of the hub.

`small` shrinks sizes; the rows are those of the studies. A study has up to 650 rows of some 150 kinds: rows
that differ only in encoders of equal dimension are of one kind, and the first of them is run.
"""

import json
import shutil
from graphlib import TopologicalSorter
from pathlib import Path

import datasets
import numpy as np
import polars as pl
import pytest
import torch
from dvc.repo import Repo

from pipelines.study import activate, params
from pipelines.study.expand import expand
from pipelines.study.reading import read
from tests import test_encoders as tiny
from tests.small import QUICK, ROOT, put, run_stage, upstream_of, write_report
from tests.test_inversion import tiny_model

DIMENSIONS = {"clip": 512, "qwen": 2560}  # of the paper's encoders; all others have 768


# ---------------------------------------------------------------- a small study


CLUSTERS = {"clusters": 4, "repeats": 2, "assignment_restarts": 2}
ALIGNERS = {
    "vec2vec": QUICK["vec2vec"]
    | {"steps": 4, "min_steps": 4, "log_every": 2, "checkpoint_every": 2, "precision": "float32"},
    "wasserstein_procrustes": {**CLUSTERS, "repeats": [2], "rounds": [40], "refinements": 2, "passes": 1},
    "mini_vec2vec": {**CLUSTERS, "neighbours": 5, "refine_steps": 2},
    "rosetta": {"clusters": 4, "repeats": 2, "refine_steps": 2},
    "transport": {"points": 40},
}
SEARCH = {"samples": 2, "beams": 2, "branches": 2, "stride": 4, "corrections": 2, "rounds": 1}
INVERTER = {"vocabulary": 320, "tokens": 12, "width": 16, "layers": 1, "heads": 2, "epochs": 1}


def small(study, language_model):
    """Return the study with few texts, few steps, narrow networks, two seeds and a local language model.

    Precision is float32, as a CPU has no fp16. Rows, sources, references and measures stay as they are.
    """
    changes = {
        "corpora": lambda row: least(row, rows=600, test=100),
        "encoders": lambda row: row | {"precision": "float32", "max_tokens": 24},
        "finetune": lambda row: least(row, batch=8, steps=2, every=1) | {"max_tokens": 16},
        "geometry": lambda row: least(row, limit=60),
        "align": small_fit,
        "evaluate": lambda row: row | {"batch": 50},
        "inverters": lambda row: row | {"known": 60, "inverter": small_inverter(row, language_model)},
        "invert": lambda row: least(row, texts=4) | {"search": least(row["search"], **SEARCH)},
    }
    for table, change in changes.items():
        study = study | {table: {name: change(row) for name, row in study[table].items()}}
    return study


def least(row, **sizes):
    return row | {key: min(row[key], size) for key, size in sizes.items() if key in row}


def small_fit(row):
    row = row | ALIGNERS.get(row["aligner"], {})
    if limit := row.get("limit"):
        row["limit"] = [fewer(n) for n in limit] if isinstance(limit, list) else fewer(limit)
    if "seeds" in row:
        row["seeds"] = row["seeds"][:2]
    return row


def fewer(texts):
    return max(30, texts // 4000)


def small_inverter(row, language_model):
    inverter = row["inverter"]
    if "model" not in inverter:
        return inverter | INVERTER
    return inverter | {"model": language_model, "tokens": 12, "epochs": 1}


# ---------------------------------------------------------------- one row of each kind


def kept(study, upstream):
    """Return the first stage of each kind and all stages upstream of it, upstream first."""
    verbs = {table: verb for verb, table in params.Study.table_by_verb().items()}
    first = {}
    for where, row in study.rows():
        table, name = where.split(".")
        if table in verbs:
            first.setdefault(kind(where, row, study), f"{verbs[table]}@{name}")
    keep, order = set(first.values()), list(TopologicalSorter(upstream).static_order())
    for stage in reversed(order):
        keep |= upstream[stage] if stage in keep else set()
    return [stage for stage in order if stage in keep]


def graph(path):
    """Return the stages upstream of each stage, as DVC reads them from dvc.yaml and a study."""
    put("params.yaml", activate.full_text(path))
    shutil.copy(ROOT / "dvc.yaml", ".")
    with Repo.init(no_scm=True) as repo:
        return upstream_of(repo)


def kind(where, row, study):
    """Return what tells kinds apart: table and settings of a row and of its fit, dimensions of both sides."""
    table = where.split(".")[0]
    if table in ("corpora", "encoders", "embed", "finetune", "geometry"):
        return where
    said = row.model_dump()
    names = {"source", "target", "translator", "inverter", "space"}
    names |= {"encoder", "source_encoder", "target_encoder"}
    settings = {k: v for k, v in said.items() if k not in names or (table == "inverters" and k == "inverter")}
    if table == "similarity":
        settings |= {"trained": study.encoders[said["encoder"]].path, "corpus": None}
    fitted = {}
    if "translator" in said:
        fitted = study.align[said["translator"]].model_dump(exclude={"source", "target"})
    sides = [study.spaces()[said[k]] for k in ("source", "target") if k in said]
    corpora = {side.corpus for side in sides}
    dimensions = [DIMENSIONS.get(side.encoder, 768) for side in sides]
    learnt = study.inverters[said["inverter"]].corrector if table == "invert" else None
    return f"{table} {settings} {fitted} {corpora} {dimensions} {learnt}"


def of_rows_that_run(published, tree):
    """Drop the reference of a published number to a row that is not run here."""
    verb, row = published.get("of", "evaluate.").split(".")[:2]
    return published if row in tree[params.Study.table_by_verb()[verb]] else published | {"of": None}


# ---------------------------------------------------------------- stand-ins for the hub


def words(n, length, seed):
    """Return n texts of `length` words that the tiny models know."""
    return [" ".join(text) for text in np.random.default_rng(seed).choice(tiny.WORDS, (n, length))]


def load_dataset(name, config, *, data_files, streaming, **_):
    """Return a set with the columns that the studies name. An unknown set is a KeyError."""
    simcse, topics = "princeton-nlp/datasets-for-simcse", np.eye(19, dtype=int)[np.arange(40) % 19].tolist()
    sts = {"sentence1": words(20, 6, 1), "sentence2": words(20, 6, 2), "score": np.linspace(0, 5, 20)}
    nli = {"sent0": words(20, 6, 6), "sent1": words(20, 6, 7), "hard_neg": words(20, 6, 8)}
    sets = {
        ("jxm/nq_corpus_dpr", None, None): {"title": ["t"] * 800, "text": words(800, 100, 0)},
        ("cardiffnlp/tweet_topic_multilingual", "en", None): {"text": words(40, 12, 3), "label": topics},
        ("snoop2head/enron_aeslc_emails", None, None): {"text": words(70, 30, 4)},
        (simcse, None, "wiki1m_for_simcse.txt"): {"text": words(40, 10, 5)},
        (simcse, None, "nli_for_simcse.csv"): nli,
    }
    for task in ("sts12", "sts13", "sts14", "sts15", "sts16", "sickr", "stsbenchmark"):
        sets[f"mteb/{task}-sts", None, None] = sts
    dataset = datasets.Dataset.from_dict(sets[name, config, data_files])
    return dataset.to_iterable_dataset() if streaming else dataset


def plain_bert(folder):
    """Return a checkpoint without a sentence-transformers folder, as bert-base-uncased is."""
    return tiny.bert(folder).with_name("transformer")


MODELS = {"gtr": tiny.t5, "clip": tiny.clip, "qwen": tiny.qwen, "bert": plain_bert}  # all others: tiny.bert


def models_in_cache(study, cache, work):
    """Write a snapshot of a tiny model for each encoder of the hub."""
    for name, row in study.encoders.items():
        if row.source == "hub":
            tiny.cached(MODELS.get(name, tiny.bert)(work / name), cache, row.model)


def mimic(folder):
    """Write notes in PhysioNet's format, and MedCAT's annotations of them."""
    annotations = {str(i): {"entities": {"0": {"pretty_name": f"condition {i % 12}"}}} for i in range(1, 41)}
    put(folder / "annotations.json", json.dumps(annotations))
    columns = {"ROW_ID": range(1, 41), "CATEGORY": ["Nursing"] * 40, "ISERROR": [None] * 40}
    pl.DataFrame(columns | {"TEXT": words(40, 30, 9)}).write_csv(folder / "NOTEEVENTS.csv")


@pytest.fixture
def offline(monkeypatch, own_folder):
    """Provide an empty working folder, a model cache, and stand-ins for data sets."""
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(own_folder / "cache"))
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return own_folder


@pytest.mark.parametrize("name", [pytest.param("paper", marks=pytest.mark.slow), "paper-mimic"])
def test_every_kind_of_row_runs_and_published_numbers_show(name, offline):
    path, verbs = ROOT / "studies" / f"{name}.yaml", params.Study.table_by_verb()
    tree = expand(read(path))
    stages = [stage.split("@") for stage in kept(params.Study.model_validate(tree), graph(path))]
    for verb, table in verbs.items():
        tree[table] = {row: tree[table][row] for of, row in stages if of == verb}
    torch.manual_seed(0)
    tree = small(tree, tiny_model(offline / "t5"))
    tree["published"] = {name: of_rows_that_run(row, tree) for name, row in tree["published"].items()}
    study = params.Study.model_validate(tree)
    models_in_cache(study, offline / "cache", offline / "models")
    mimic(offline / "data/raw/mimic")
    for verb, row in stages:
        run_stage(verb, study, row)
    write_report(study)
    lines = Path("report/report.md").read_text().splitlines()
    for row in study.published.values():
        shown = [line for line in lines if row.what in line and row.by in line]
        assert shown, row.what
        assert not row.of or "not measured" not in shown[0], row.what
    assert sum(bool(row.of) for row in study.published.values()) >= 5
