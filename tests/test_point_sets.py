"""Image and text encoders of weighted point sets: training, ranks, resumption, measures."""

import errno
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
import torch
from torch.testing import assert_close

from pipelines import evaluate_image_text, train_image_text
from pipelines.contrastive import towers
from pipelines.contrastive.losses import finite_losses
from pipelines.contrastive.pairs import by_image, check_images, pairs
from pipelines.contrastive.pairs import generator as keyed
from pipelines.contrastive.point_sets import DualEncoder, activate, load, save, symmetric_info_nce
from pipelines.measures import image_text
from pipelines.runtime.files import load_state
from pipelines.study import EvaluateImageText, TextTower, TrainImageText
from tests.small import IMAGE_TEXT, refusal, scenes


def row(**more):
    head = IMAGE_TEXT["head"] | more.pop("head", {})
    return TrainImageText.model_validate(IMAGE_TEXT | {"head": head, "steps": 6, "warmup": 2} | more)


@pytest.fixture(scope="module")
def frame():
    return scenes()


def prepared(frame, row):
    train = frame.filter(pl.col("split") == "train")
    words = towers.Words.of(train["captions"].explode(), row.text)
    return pairs(train, row.image.size, words), words


def train(*arguments, log=lambda *_: None):
    return train_image_text.train(*arguments, log)


def test_point_sets_and_clip_have_as_many_parameters():
    points, vector = (DualEncoder(row(head={"kind": kind}), 50).parameters() for kind in ("points", "vector"))
    assert sum(p.numel() for p in points) == sum(p.numel() for p in vector)


def test_every_token_gives_a_unit_point_and_a_weight(frame):
    model = DualEncoder(row(), 80)
    images, ids = prepared(frame, row())[0].batch(torch.arange(3), keyed(0))
    for sets, tokens in ((model.image_sets(images), 16), (model.text_sets(ids), 16)):
        assert sets.points.shape == (3, tokens, 4)
        assert_close(sets.points.norm(dim=2), torch.ones(3, tokens))
    assert DualEncoder(row(head={"points": 5}), 80).image_sets(images).points.shape == (3, 5, 4)


@pytest.mark.parametrize("weight", ["tanh", "sigmoid", "scaled-sigmoid"])
def test_a_weight_is_bounded_and_starts_at_two(weight):
    raw = torch.linspace(-1e4, 1e4, 101)
    bounded = {
        "tanh": 100 * torch.tanh(raw / 100),
        "sigmoid": 100 / (1 + (-raw).exp()),
        "scaled-sigmoid": 100 / (1 + (-raw / 100).exp()),
    }
    assert torch.allclose(activate(raw, weight), bounded[weight])
    head = DualEncoder(row(head={"weight": weight}), 80).image_head
    assert activate(head.weight.bias, weight).item() == pytest.approx(2, rel=1e-3)


def test_words_are_spelt_and_cut(monkeypatch):
    monkeypatch.setattr(towers, "CONTEXT", 4)
    words = towers.Words.of(["a red cat", "a cat", "tac der"], TextTower(vocabulary=64))
    ids, cut = words(["A cat", "a cat a cat", "dare"])
    assert cut == 2
    assert ids[0].tolist()[3] == 0
    assert [words.words[i] for i in ids[2]] == ["<start>", "#d", "#a", "#r"]


def test_info_nce_is_the_mean_of_both_cross_entropies():
    logits = torch.randn(5, 5, dtype=torch.float64)
    expected = -(logits.log_softmax(0) + logits.log_softmax(1)).diagonal().mean() / 2
    assert_close(symmetric_info_nce(logits), expected)


def test_the_scale_has_a_start_and_bounds():
    model = DualEncoder(row(), 9)
    assert model.scale.item() == pytest.approx(1 / 0.07, rel=1e-5)
    for raw, bound in ((1e6, 100), (-1e6, 1)):
        model.raw_scale.data.fill_(raw)
        model.clamp_scale()
        assert model.scale.item() == pytest.approx(bound, rel=1e-5)


def test_convolutions_and_their_gradients_are_in_float32(frame):
    model, seen = DualEncoder(row(), 80), []
    data, _ = prepared(frame, row())
    patches = model.image.patches
    patches.register_forward_hook(lambda *_: seen.append(torch.backends.cudnn.allow_tf32))
    patches.weight.register_hook(lambda _: seen.append(torch.backends.cudnn.allow_tf32))
    train_image_text.step(model, train_image_text.optimiser_of(model, row()), row(), data, 0, 0)
    model.image_sets(data.batch(torch.arange(3), keyed(0))[0])
    assert seen == [False, False, False]


def test_training_resumes_to_the_same_bits_and_is_saved(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(train_image_text, "CHECKPOINT", 3)
    settings = row(head={"kernel": "imq"})
    data, words = prepared(frame, settings)

    def kill(metrics, step):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings, data, words, 0, tmp_path, log=kill)
    assert load_state(tmp_path / "seed-0.pt")["step"] == 3
    resumed, _ = train(settings, data, words, 0, tmp_path)
    (tmp_path / "seed-0.pt").unlink()
    whole, _ = train(settings, data, words, 0, tmp_path)
    assert_close(resumed.state_dict(), whole.state_dict(), atol=0, rtol=0)
    other, _ = train(settings, data, words, 1, tmp_path)
    assert not torch.equal(whole.image_head.point.weight, other.image_head.point.weight)
    save(whole, words, tmp_path / "m")
    again, again_words = load(tmp_path / "m")
    assert again_words.words == words.words
    assert_close(again.state_dict(), whole.state_dict(), atol=0, rtol=0)
    with refusal("no image and text encoder"):
        load(tmp_path / "none")


def test_a_full_disk_leaves_no_half_of_an_encoder(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(errno.ENOSPC, "")))
    with refusal("no space left"):
        save(DualEncoder(row(), 9), towers.Words(["a"]), tmp_path / "m")
    assert not [*tmp_path.iterdir()]


def test_a_repeated_batch_is_learnt(frame, tmp_path):
    settings = row(steps=300, head={"dim": 16})
    few = frame.head(8).with_columns(captions=pl.Series([[f"scene {letter}"] for letter in "abcdefgh"]))
    _, curve = train(settings, *prepared(few, settings), 0, tmp_path)
    assert curve[-1]["loss"] < 0.5 * np.log(8) < curve[0]["loss"]


def test_images_without_captions_are_refused(frame):
    assert check_images("c", frame) is frame
    for column in ("image", "captions"):
        with refusal("corpus c: it has no images with captions"):
            check_images("c", frame.drop(column))


def test_rows_of_one_image_are_one_image_of_a_batch(frame):
    assert by_image(frame).select(frame.columns).equals(frame)
    rows = pl.concat([frame, frame.with_columns(id="again-" + pl.col("id"))])
    images, _ = prepared(rows, row())
    assert len(images) == 24
    assert (images.starts.diff() == 2 * frame["captions"].list.len()[0]).all()


def test_an_infinite_loss_and_a_single_image_are_named(frame):
    data, _ = prepared(frame, row())
    model = DualEncoder(row(), 80)
    model.image_head.point.weight.data.fill_(torch.nan)
    loss = train_image_text.step(model, train_image_text.optimiser_of(model, row()), row(), data, 0, 0)
    with refusal("step 0: the loss is nan"):
        finite_losses([loss], 0)
    for rows in (0, 1):
        with refusal("at least two"):
            prepared(frame.head(rows), row())


def test_retrieval_counts_any_right_partner():
    similarity = torch.tensor([[0.9, 0.1, 0.5], [0.2, 0.3, 0.8]])
    right = torch.tensor([[True, True, False], [False, False, True]])
    scores = image_text.retrieval(similarity, right)
    assert scores["image_to_text_r1"].tolist() == [1, 1]
    assert scores["text_to_image_r1"].tolist() == [1, 0, 1]


def test_a_tie_of_classes_is_not_right():
    similarity = torch.tensor([[0.5, 0.1, 0.4], [0.5, 0.5, 0.5], [0.5, 0.1, 0.5]])
    assert image_text.top1(similarity, torch.zeros(3, dtype=torch.long)).tolist() == [1, 0, 0]


def test_agreement_with_a_known_pmi_is_that_of_scipy():
    from scipy import stats

    a, b = torch.randint(0, 5, (2, 15, 20), generator=keyed(0)).double()
    found = image_text.pmi_agreement(a, b, 4)
    assert found["pmi_correlation"] == pytest.approx(stats.pearsonr(a.ravel(), b.ravel())[0])
    assert found["pmi_rank_correlation"] == pytest.approx(stats.spearmanr(a.ravel(), b.ravel())[0])
    assert image_text.pmi_agreement(a, 3 * a + 1, 4)["pmi_unexplained"] == pytest.approx(0, abs=1e-9)


def test_no_inner_product_beats_the_rank_limit():
    pmi = torch.randn(30, 40, generator=keyed(0), dtype=torch.float64)
    u, s, v = torch.linalg.svd(pmi)
    best = (u[:, :5] * s[:5]) @ v[:5]  # rank 4 + 1
    reached = ((pmi - best).square().sum() / (pmi - pmi.mean()).square().sum()).item()
    assert image_text.rank_limit(pmi, 4) == pytest.approx(reached)
    assert image_text.rank_limit(best, 4) < 1e-20


def test_measures_of_an_untrained_model(frame):
    settings = row()
    _, words = prepared(frame, settings)
    model = DualEncoder(settings, len(words.words)).eval()
    seen, test = (frame.filter(pl.col("split") == split) for split in ("train", "test"))
    measures = EvaluateImageText(encoders="e", corpus="scenes", templates=("a {}", "a small {}"), features=8)
    numbers, (scores, pmi) = evaluate_image_text.measure(model, words, measures, seen, test)
    assert {"zero_shot", "linear", "image_to_text_r5", "rank_limit"} <= set(numbers)
    assert numbers["classified"] == (test["labels"].list.len() == 1).sum()
    assert numbers["linear_width"] == settings.head.dim + measures.features
    assert numbers["pmi_correlation"] == pytest.approx(np.corrcoef(scores.flatten(), pmi.flatten())[0, 1])
    one_class = test.with_columns(labels=pl.lit(["cat"]))
    with refusal("1 class among"):
        evaluate_image_text.measure(model, words, measures, seen, one_class)
    repeated = frame.with_columns(document=pl.lit("one image"))
    for own, given in ((True, repeated), (False, repeated.with_columns(split=pl.lit("dev")))):
        _, one = evaluate_image_text.images_of(given, own)
        _, texts, right = evaluate_image_text.similarities(model, words, one)
        assert right.shape == (1, len(texts))
        assert right.all()


def test_a_rate_below_the_last_one_never_grows_again():
    low = row(lr=1e-6)
    rates = [train_image_text.rate(low, step) for step in range(low.warmup - 1, low.steps)]
    assert rates == sorted(rates, reverse=True)
