"""SimCSE: the loss, two views, a new network, and the stage with its continuation after a kill."""

import copy
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from transformers import (
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    get_linear_schedule_with_warmup,
)

from pipelines import finetune
from pipelines.contrastive import scratch, simcse
from pipelines.encoders import pooling
from pipelines.encoders.loading import load
from pipelines.encoders.sources import fetch
from pipelines.measures.similarity import sts
from pipelines.runtime import store
from pipelines.runtime.errors import BadInput
from pipelines.study import Encoder, Network
from tests.small import (
    FINETUNE,
    NETWORK,
    TEXTS,
    normal,
    put,
    refusal,
    run_stage,
    study_of,
    write_corpus,
    write_model,
    write_pairs,
)

SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize("weight", [None, 0.0, 2.0])
def test_info_nce_is_its_formula(weight):
    """Compute equation 8 of the paper without a logarithm of a sum."""
    h, p, n = normal(3, 6, 5, dtype=torch.float64)
    mine = simcse.info_nce(
        h, p, None if weight is None else n, temperature=0.1, negative_weight=weight or 0.0
    )
    anchors, positives, negatives = (torch.nn.functional.normalize(m).numpy() for m in (h, p, n))
    right, hard = (np.exp(anchors @ others.T / 0.1) for others in (positives, negatives))
    below = right.sum(1)
    if weight is not None:
        below += hard.sum(1) + (weight - 1) * hard.diagonal()
    assert mine.item() == pytest.approx(-np.log(right.diagonal() / below).mean(), abs=1e-9)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    transformer = scratch.network(TEXTS, Network(**NETWORK), 0, tmp_path_factory.mktemp("network"))
    return SentenceTransformer(modules=[transformer, pooling.pooler("mean", 16)], device="cpu")


@pytest.mark.parametrize(
    ("dropout", "mask", "differ"),
    [(0.3, "independent", True), (0.3, "fixed", False), (0.0, "independent", False)],
)
def test_two_views_differ_by_independent_dropout_masks_only(model, dropout, mask, differ):
    noisy = copy.deepcopy(model).train()
    simcse.set_dropout(noisy, dropout)
    a, b = simcse.embed_columns(noisy, [TEXTS[:5], TEXTS[:5]], 16, mask)
    assert (not torch.allclose(a, b, atol=1e-5)) == differ


def test_dropout_is_also_set_where_attention_keeps_it_as_a_number():
    config = ModernBertConfig(vocab_size=9, pad_token_id=0, attention_dropout=0.9, **SIZES)
    network, ids = ModernBertModel(config).train(), torch.arange(1, 9)[None]
    simcse.set_dropout(network, 0.0)
    assert torch.equal(*(network(ids).last_hidden_state for _ in range(2)))


def test_augmentations_leave_out_their_share_and_keep_the_order():
    rng, text = np.random.default_rng(0), "one two three four five six seven eight nine ten"
    crop, deleted = (simcse.augment(text, kind, 0.3, rng) for kind in ("crop", "delete"))
    assert crop in text
    assert len(crop.split()) == len(deleted.split()) == 7
    assert " ".join(w for w in text.split() if w in deleted.split()) == deleted
    assert [simcse.augment(text, "crop", 0.9, rng) for text in ("word", "\x1f")] == ["word", "\x1f"]


def test_masking_spares_what_is_not_allowed():
    torch.manual_seed(0)
    ids = torch.arange(10, 2010).reshape(20, 100)
    allowed = torch.rand(20, 100) < 0.5
    out, targets = simcse.mask_words(ids, allowed, mask_id=4, vocabulary=3000)
    assert torch.equal(out[~targets], ids[~targets])
    assert not targets[~allowed].any()
    assert 0.1 < targets[allowed].float().mean() < 0.2
    assert 0.7 < (out[targets] == 4).float().mean() < 0.9


# ---------------------------------------------------------------- the stage


@pytest.fixture
def corpora(own_folder):
    """Write a corpus of texts, one of triples and one of pairs."""
    write_corpus("nq", TEXTS)
    write_corpus("nli", TEXTS, positive=TEXTS[1:] + TEXTS[:1], negative=TEXTS[7:] + TEXTS[:7])
    write_pairs()


def study(**row):
    corpora = {name: {"source": "path", "path": "x"} for name in ("nq", "nli", "sts")}
    finetune = {"row": FINETUNE | {"steps": 6, "lr": 1e-3} | row}
    return study_of("", "", corpora=corpora, finetune=finetune)


def test_halves_share_no_document(corpora):
    documents = [f"d{i // 3}" for i in range(len(TEXTS))]
    write_corpus("nq", TEXTS, document=documents)
    of = dict(zip(TEXTS, documents, strict=True))

    def texts_of(half):
        whole = study(half=half, batch=2)
        return finetune.read_texts(whole.finetune["row"], whole)[0]

    first, second = texts_of("first"), texts_of("second")
    assert sorted(first + second) == sorted(TEXTS)
    assert first
    assert not {of[text] for text in first} & {of[text] for text in second}


def run(**row):
    """Run the stage; return its weights, metrics and curve."""
    metrics = run_stage("finetune", study(**row))
    curve = pl.read_csv(store.tables_path("finetune", "row") / "curve.csv")
    return load_file(store.trained_path("row") / "model.safetensors"), metrics, curve


def trained():
    return pooling.open_model(store.trained_path("row"))


def same(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


def test_the_stage_leaves_an_encoder_a_curve_and_metrics(corpora):
    _, metrics, curve = run(mlm=0.1, pooling="cls")
    assert [type(m).__name__ for m in trained()] == ["Transformer", "Pooling"]  # the head was for training
    assert curve["step"].to_list() == [0, 2, 4, 6]
    best = curve.filter(pl.col("step") > 0)["spearman"].max()
    assert metrics["dev"]["spearman"] == pytest.approx(best)
    dev = store.read_corpus("sts")
    first, second = (torch.from_numpy(trained().encode(dev[c].to_list())) for c in ("text", "pair"))
    again = sts(first, second, dev["score"].to_torch())["spearman"]
    assert again == pytest.approx(best, abs=0.1)  # padding may swap near ties
    assert not Path(store.WORK, "finetune", "row").exists()


def test_a_killed_run_continues_bit_for_bit(corpora, monkeypatch):
    whole, _, whole_curve = run()
    dies = [DEFAULT] * 3 + [KeyboardInterrupt] + [DEFAULT] * 6
    step = Mock(wraps=finetune.step, side_effect=dies)
    monkeypatch.setattr(finetune, "step", step)
    with pytest.raises(KeyboardInterrupt):
        run()
    again, _, curve = run()
    assert same(whole, again)
    assert curve.equals(whole_curve, null_equal=True)
    assert step.call_count == 4 + 4  # it went on from step 2


def test_a_run_leaves_the_random_state_as_it_was(corpora):
    before = torch.get_rng_state()
    run(steps=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_seeds_halves_and_settings_matter(corpora):
    first = run(steps=1)[0]
    assert same(first, run(steps=1)[0])
    augment = {"augment": "delete", "augment_share": 0.4}
    for change in ({"seed": 1}, {"half": "first"}, {"mask": "fixed"}, augment, {"dropout": 0.0}):
        assert not same(first, run(steps=1, **change)[0]), change
    assert not same(run(steps=1, **augment)[0], run(steps=1, **augment, augment_views="both")[0])


@pytest.mark.parametrize(
    ("width", "activation", "is_head"), [(16, "Tanh", 1), (8, "Tanh", 0), (16, "GELU", 0)]
)
def test_only_a_layer_of_the_same_width_with_tanh_is_a_head(model, tmp_path, width, activation, is_head):
    layer = Dense(16, width, activation_function=getattr(torch.nn, activation)())
    write_model(tmp_path, *model, layer)
    row = Mock(start=str(tmp_path), from_scratch=False, network=None)
    assert bool(finetune.start(row, [], tmp_path)[1]) == is_head


def test_head_and_start_from_a_trained_folder(corpora):
    run(corpus="nli", head="always", pooling="first-last", negative_weight=0.5)
    model = trained()
    assert [type(m).__name__ for m in model] == ["Transformer", "FirstLast", "Dense"]
    model.save("start", create_model_card=False)
    start = {"corpus": "nli", "start": "start", "network": None, "steps": 0}
    run(**start, head="none")
    assert same(model[0].model.state_dict(), trained()[0].model.state_dict())
    run(**start, head="always")
    assert same(model[2].state_dict(), trained()[2].state_dict())  # it goes on with the head that was kept


def test_a_plain_checkpoint_is_a_start_and_an_encoder(corpora):
    """Without modules.json, the pooling is the mean of the tokens, or the one that a row names."""
    transformer = scratch.network(TEXTS, Network(**NETWORK), 0, Path("plain"))
    run(start="plain", network=None, steps=0, head="none", pooling="mean")
    hidden = transformer.model.eval()(**trained().tokenizer(TEXTS[:1], return_tensors="pt"))
    mean, cls = hidden.last_hidden_state[0].mean(0), hidden.last_hidden_state[0, 0]
    torch.testing.assert_close(torch.from_numpy(trained().encode(TEXTS[0])), mean)
    for kind, expected in ((None, mean), ("cls", cls)):
        encoder, folder = Encoder(source="path", path="plain", pooling=kind), Path("fetched", str(kind))
        fetch(encoder, folder)
        loaded = load(folder, encoder)
        assert loaded.pooling == (kind or "mean")
        torch.testing.assert_close(torch.from_numpy(loaded.model.encode(TEXTS[0])), expected)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"max_tokens": 17}, "beyond the 16 positions"),
        ({"batch": 64}, "do not fill a batch of 64"),
        ({"start": "nowhere", "network": None}, "nowhere: no sentence-transformers model"),
        ({"start": "nowhere"}, "describes a new network"),
        ({"lr": 1e30, "head": "none"}, "the loss is"),
    ],
)
def test_bad_rows_are_named(corpora, row, message):
    with pytest.raises((BadInput, ValueError), match=message):
        run(**row)


def test_mlm_needs_embeddings_as_wide_as_the_layers(corpora):
    scratch.network(TEXTS, Network(**NETWORK), 0, Path("narrow"))  # for its tokenizer
    ElectraModel(ElectraConfig(embedding_size=8, vocab_size=300, **SIZES)).save_pretrained("narrow")
    with refusal("mlm 0.1: narrow has embeddings of 8 dimensions, but layers of 16"):
        run(start="narrow", network=None, mlm=0.1)


def test_a_damaged_start_is_refused(corpora):
    put("start/model.safetensors", "damaged")
    put("dvc.lock", "stages: {finetune@first: {outs: [{path: start, md5: another}]}}")
    with refusal("start: not the bytes that dvc.lock names"):
        run(start="start", network=None)


@pytest.mark.parametrize("warmup", [0, 7])
def test_the_rate_is_transformers_linear_schedule(warmup):
    row = study(steps=20, warmup=warmup).finetune["row"]
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=row.lr)
    schedule = get_linear_schedule_with_warmup(optimiser, row.warmup, row.steps)
    for step in range(row.steps):
        assert row.lr * finetune.rate_factor(step, row) == pytest.approx(
            optimiser.param_groups[0]["lr"], rel=1e-12
        )
        optimiser.step()
        schedule.step()
