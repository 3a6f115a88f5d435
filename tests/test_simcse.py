"""SimCSE: the loss against its formula, the views, the network from nothing, and the whole stage: resumed,
and on two ranks.
"""

import copy
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import get_linear_schedule_with_warmup

from pipelines import distributed, finetune
from pipelines.contrastive import losses, scratch, simcse
from pipelines.encoders import pooling
from pipelines.encoders.loading import load
from pipelines.encoders.sources import fetch
from pipelines.runtime import store
from pipelines.runtime.errors import BadInput
from pipelines.study import Encoder, Finetune, Network, params

WHO, DOES = ("the heart", "a river", "the king", "my dog"), ("moves", "was late", "sees a fish")
TEXTS = [
    f"{who} {does} {where}"
    for who in WHO
    for does in DOES
    for where in ("in winter", "near the old bridge", "today")
]
SHAPE = {"layers": 2, "width": 16, "heads": 2, "vocabulary": 150, "positions": 16}


def formula(h, p, n, temperature, weight):
    """Equation 8 of the paper, one row and one exponential at a time, in float64."""
    unit = [
        [x / np.linalg.norm(x) for x in m.double().numpy()] for m in (h, p, *([n] if n is not None else []))
    ]
    each = []
    for i, a in enumerate(unit[0]):
        below = sum(math.exp(a @ b / temperature) for b in unit[1])
        if n is not None:
            below += sum(
                (weight if i == j else 1) * math.exp(a @ b / temperature) for j, b in enumerate(unit[2])
            )
        each.append(-math.log(math.exp(a @ unit[1][i] / temperature) / below))
    return sum(each) / len(each)


def vectors(count=3, n=6, d=5, dtype=torch.float32):
    return list(torch.randn(count, n, d, generator=torch.Generator().manual_seed(0)).to(dtype))


@pytest.mark.parametrize("temperature", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("weight", [None, 0.0, 0.5, 1.0, 2.0])
def test_info_nce_is_its_formula(temperature, weight):
    h, p, n = vectors(dtype=torch.float64)
    hard = None if weight is None else n
    mine = losses.info_nce(h, p, hard, temperature, weight or 0.0)
    assert mine.item() == pytest.approx(formula(h, p, hard, temperature, weight), abs=1e-9)


def test_a_batch_of_one_is_named():
    with pytest.raises(BadInput, match="batch of one"):
        losses.info_nce(torch.ones(1, 3), torch.ones(1, 3))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    transformer = scratch.network(TEXTS, Network(**SHAPE), 0, tmp_path_factory.mktemp("network"))
    return SentenceTransformer(modules=[transformer, pooling.pooler("mean", 16)], device="cpu")


@pytest.mark.parametrize("columns", [2, 3])
def test_it_is_the_loss_of_sentence_transformers_where_that_says_the_same(model, columns):
    features = [simcse.tokenize(model, TEXTS[i : i + 6], 16) for i in range(0, 6 * columns, 6)]
    theirs = MultipleNegativesRankingLoss(model.eval(), scale=20.0)(
        [dict(f) for f in features], torch.zeros(6)
    )
    vectors = [model(dict(f))["sentence_embedding"] for f in features]
    torch.testing.assert_close(losses.info_nce(*vectors, temperature=0.05), theirs)


def test_two_dropout_masks_tell_views_apart_and_a_fixed_one_does_not(model):
    noisy = copy.deepcopy(model).train()
    simcse.set_dropout(noisy, 0.3)
    a, b = simcse.embed_columns(noisy, [TEXTS[:5], TEXTS[:5]], 16, "independent")
    assert (a - b).abs().max() > 0.01
    a, b = simcse.embed_columns(noisy, [TEXTS[:5], TEXTS[:5]], 16, "fixed")
    torch.testing.assert_close(a, b)
    simcse.set_dropout(noisy, 0.0)
    a, b = simcse.embed_columns(noisy, [TEXTS[:5], TEXTS[:5]], 16, "independent")
    torch.testing.assert_close(a, b)


def test_the_random_state_of_an_accelerator_is_restored_too(monkeypatch):
    device, own = torch.device("cuda", 0), torch.Generator().manual_seed(7)
    module = SimpleNamespace(
        get_rng_state=lambda device: own.get_state(),
        set_rng_state=lambda state, device: own.set_state(state),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    state, first = simcse.random_state(device), torch.rand(3, generator=own)
    simcse.set_random_state(state, device)
    assert torch.equal(torch.rand(3, generator=own), first)


def test_augmentations_leave_out_their_share_and_keep_the_order():
    rng = np.random.default_rng(0)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    crop = simcse.augment(" ".join(words), "crop", 0.3, rng).split()
    assert len(crop) == 7
    assert " ".join(crop) in " ".join(words)
    deleted = simcse.augment(" ".join(words), "delete", 0.3, rng).split()
    assert len(deleted) == 7
    assert [w for w in words if w in deleted] == deleted
    assert simcse.augment("word", "crop", 0.9, rng) == "word"


def test_masking_spares_what_is_not_allowed():
    torch.manual_seed(0)
    ids = torch.arange(10, 2010).reshape(20, 100)
    allowed = torch.rand(20, 100) < 0.5
    out, targets = simcse.mask_words(ids, allowed, mask_id=4, vocabulary=3000)
    assert torch.equal(out[~targets], ids[~targets])
    assert not targets[~allowed].any()
    assert 0.1 < targets[allowed].float().mean() < 0.2
    assert 0.7 < (out[targets] == 4).float().mean() < 0.9


VOCABULARY = """
import sys
from pipelines.contrastive.scratch import vocabulary
print(sorted(vocabulary(sys.stdin.read().split("|"), 150).items()))
"""


def test_the_vocabulary_is_the_same_in_every_process():
    other = subprocess.run(
        [sys.executable, "-c", VOCABULARY], input="|".join(TEXTS), text=True, capture_output=True, check=True
    )
    here = scratch.vocabulary(TEXTS, 150)
    assert other.stdout == f"{sorted(here.items())}\n"
    assert "[MASK]" in here


# ---------------------------------------------------------------- the stage


class Quiet:
    """A run that nobody watches."""

    def log(self, *_): ...
    def input(self, *_): ...
    def artifact(self, *_): ...


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A folder with a corpus of texts, one of triples and one of pairs."""
    monkeypatch.chdir(tmp_path)
    ids = [str(i) for i in range(len(TEXTS))]
    base = {"id": ids, "text": TEXTS, "split": "train", "labels": [[] for _ in ids]}
    schema = {"labels": pl.List(pl.String)}
    store.write_corpus("nq", pl.DataFrame(base, schema_overrides=schema))
    triples = base | {"positive": TEXTS[1:] + TEXTS[:1], "negative": TEXTS[7:] + TEXTS[:7]}
    store.write_corpus("nli", pl.DataFrame(triples, schema_overrides=schema))
    scores = [5.0 - i % 6 for i in range(len(TEXTS))]
    dev = base | {
        "split": "dev",
        "pair": [TEXTS[(i + i % 6 * 5) % len(TEXTS)] for i in range(len(TEXTS))],
        "score": scores,
    }
    store.write_corpus("sts", pl.DataFrame(dev, schema_overrides=schema))
    return tmp_path


def study(**row):
    corpora = {name: {"source": "synthetic", "path": "x"} for name in ("nq", "nli", "sts")}
    usual = {
        "corpus": "nq",
        "dev": "sts",
        "start": "scratch.py",
        "network": SHAPE,
        "batch": 8,
        "steps": 6,
        "every": 2,
    }
    row = usual | {"lr": 1e-3, "max_tokens": 12} | row
    return params.Study.model_validate({"study": "t", "corpora": corpora, "finetune": {"row": row}})


def test_halves_share_no_document(house):
    frame = store.read_corpus("nq")
    documents = [f"d{i // 3}" for i in range(len(frame))]
    store.write_corpus("nq", frame.with_columns(document=pl.Series(documents)))
    of = dict(zip(frame["text"], documents, strict=True))
    halves = {}
    for half in ("first", "second", None):
        whole = study(half=half, batch=2)
        [halves[half]] = finetune.read_texts(whole.finetune["row"], whole)
    first, second = ({of[text] for text in halves[half]} for half in ("first", "second"))
    assert first
    assert not first & second
    assert sorted(halves["first"] + halves["second"]) == sorted(halves[None]) == sorted(frame["text"])


def run(**row):
    """The stage's folder, metrics and curve."""
    whole = study(**row)
    finetune.finetune("row", whole.finetune["row"], whole, Quiet())  # pyright: ignore[reportArgumentType]
    return (
        weights(),
        store.read_metrics("finetune")["row"],
        pl.read_csv(store.plots_path("finetune", "row") / "curve.csv"),
    )


def weights():
    from safetensors.torch import load_file

    return load_file(store.trained_path("row") / "model.safetensors")


def same(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


def test_the_stage_leaves_an_encoder_a_curve_and_metrics(house):
    _, metrics, curve = run(mlm=0.1, pooling="cls")
    model = pooling.open_model(store.trained_path("row"))
    assert [type(m).__name__ for m in model] == ["Transformer", "Pooling"]  # the head was for training only
    assert curve["step"].to_list() == [0, 2, 4, 6]
    best = curve.filter(pl.col("step") > 0)["spearman"].max()
    assert metrics["dev"]["spearman"] == pytest.approx(best)
    dev = store.read_corpus("sts")
    first, second = (torch.from_numpy(model.encode(dev[c].to_list())) for c in ("text", "pair"))
    from pipelines.measures.similarity import sts

    assert sts(first, second, dev["score"].to_torch())["spearman"] == pytest.approx(
        best, abs=0.1
    )  # padding may swap near ties
    assert not Path(store.WORK, "finetune", "row").exists()


def test_spectra_of_fewer_texts_than_dimensions_have_a_rank_for_each_text(house):
    run(network=SHAPE | {"width": 64}, steps=2)
    spectrum = pl.read_csv(store.plots_path("finetune", "row") / "spectrum.csv")
    assert len(TEXTS) < 64
    assert spectrum["rank"].to_list() == list(range(1, len(TEXTS) + 1))
    assert (spectrum["before"][0], spectrum["after"][0]) == (1, 1)


def test_a_killed_run_continues_bit_for_bit(house, monkeypatch):
    whole, _, whole_curve = run()
    real, calls = finetune.step, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(finetune, "step", dies)
    with pytest.raises(KeyboardInterrupt):
        run()
    again, _, curve = run()
    assert same(whole, again)
    assert curve.equals(whole_curve, null_equal=True)
    assert len(calls) == 4 + 4  # it went on from step 2


def test_seeds_halves_and_settings_matter(house):
    first = run(steps=1)[0]
    assert same(first, run(steps=1)[0])
    augment = {"augment": "delete", "augment_share": 0.4}
    for change in ({"seed": 1}, {"half": "first"}, {"mask": "fixed"}, augment, {"dropout": 0.0}):
        assert not same(first, run(steps=1, **change)[0]), change
    assert not same(run(steps=1, **augment)[0], run(steps=1, **augment, augment_views="both")[0])


def test_head_and_start_from_a_trained_folder(house):
    run(corpus="nli", head="always", pooling="first-last", negative_weight=0.5)
    model = pooling.open_model(store.trained_path("row"))
    assert [type(m).__name__ for m in model] == ["Transformer", "FirstLast", "Dense"]
    model.save("start", create_model_card=False)
    before = model[0].model.state_dict()
    run(corpus="nli", start="start", network=None, steps=0, head="none")
    after = pooling.open_model(store.trained_path("row"))[0].model.state_dict()
    assert same(before, after)
    run(corpus="nli", start="start", network=None, steps=0, head="always")
    kept = pooling.open_model(store.trained_path("row"))
    assert same(model[2].state_dict(), kept[2].state_dict())  # it goes on with the head that was kept


def test_a_plain_checkpoint_of_transformers_is_a_start_and_an_encoder(house):
    """No modules.json: the mean of the tokens, or the pooling that a row names."""
    transformer = scratch.network(TEXTS, Network(**SHAPE), 0, Path("plain"))
    Path("plain", "sentence_bert_config.json").unlink()
    run(start="plain", network=None, steps=0, head="none", pooling="mean")
    trained = pooling.open_model(store.trained_path("row"))
    hidden = transformer.model.eval()(**trained.tokenizer(TEXTS[:1], return_tensors="pt")).last_hidden_state[
        0
    ]
    expected = {"mean": hidden.mean(0), "cls": hidden[0]}
    torch.testing.assert_close(torch.from_numpy(trained.encode(TEXTS[0])), expected["mean"])
    for kind in (None, "mean", "cls"):
        encoder = Encoder.model_validate({"source": "path", "path": "plain", "pooling": kind})
        fetch(encoder, Path("fetched") / str(kind))
        loaded = load(Path("fetched") / str(kind), encoder)
        assert loaded.pooling == (kind or "mean")
        torch.testing.assert_close(torch.from_numpy(loaded.model.encode(TEXTS[0])), expected[kind or "mean"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"max_tokens": 17}, "beyond the 16 positions"),
        ({"batch": 64}, "do not fill a batch of 64"),
        ({"start": "nowhere", "network": None}, "neither modules.json nor config.json"),
        ({"start": "nowhere"}, "describes a new network"),
        ({"lr": 1e30, "head": "none"}, "the loss is"),
    ],
)
def test_bad_rows_are_named(house, row, message):
    with pytest.raises(BadInput, match=message):
        run(**row)


def test_empty_sentences_and_missing_negatives_are_named(house):
    frame = store.read_corpus("nli")
    blank = pl.when(pl.col("id") == "3").then(pl.lit(" ")).otherwise("negative")
    frame.with_columns(negative=blank).write_parquet(store.corpus_path("nli"))
    with pytest.raises(BadInput, match="1 rows have no negative, the first with id '3'"):
        run(corpus="nli")
    frame.drop("negative").write_parquet(store.corpus_path("nli"))
    with pytest.raises(BadInput, match="no column 'negative'"):
        run(corpus="nli")


def test_dev_must_be_pairs():
    with pytest.raises(ValueError, match="nq is of kind passages, not sts"):
        study(dev="nq")


# ---------------------------------------------------------------- two ranks


def test_one_process_needs_no_group():
    x = torch.ones(3, 2, requires_grad=True)
    assert distributed.all_gather(x) is x
    assert distributed.shard([1, 2, 3]) == [1, 2, 3]
    assert (distributed.rank(), distributed.world_size(), distributed.broadcast("a")) == (0, 1, "a")


@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_the_learning_rate_is_that_of_transformers_linear_schedule(warmup):
    row = Finetune.model_validate(
        {"corpus": "a", "dev": "b", "start": "scratch.py", "steps": 20, "warmup": warmup, "lr": 2e-3}
    )
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=row.lr)
    schedule = get_linear_schedule_with_warmup(optimiser, row.warmup, row.steps)
    for step in range(row.steps):
        assert row.lr * finetune.rate(step, row) == pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-12)
        optimiser.step()
        schedule.step()


@pytest.mark.parametrize("corpus", ["nli", "nq"])
def test_words_are_masked_in_anchors(house, monkeypatch, corpus):
    masked, real = [], finetune.word_loss
    monkeypatch.setattr(
        finetune, "word_loss", lambda training, row, texts: masked.append(texts) or real(training, row, texts)
    )
    run(corpus=corpus, mlm=0.1, steps=1)
    assert len(masked[0]) == 8
    assert set(masked[0]) <= set(TEXTS)
