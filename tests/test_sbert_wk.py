"""SBERT-WK against a per-token reference in float64, and poolings as modules of sentence-transformers."""

import copy

import pytest
import reference_sbert_wk as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from pipelines.contrastive import scratch
from pipelines.encoders import layers, pooling, sbert_wk
from pipelines.encoders.loading import load
from pipelines.study import Encoder, Network
from tests.small import TEXTS, refusal, seeded, write_model


def hidden(layers, batch, tokens, dim, seed=0, change=0.4):
    """Layers that change little from one to the next, as a transformer's."""
    generator = seeded(seed)
    out = [torch.randn(batch, tokens, dim, generator=generator)]
    for _ in range(layers - 1):
        out.append(0.9 * out[-1] + change * torch.randn(batch, tokens, dim, generator=generator))
    return out


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    shape = Network(width=32, heads=2, vocabulary=200, positions=24)
    return scratch.network(TEXTS, shape, 0, tmp_path_factory.mktemp("network"))


def pooled(transformer, kind, **keys):
    model = SentenceTransformer(modules=[transformer], device="cpu")
    return pooling.compose(model, Encoder(path="x", source="path", pooling=kind, **keys))


@settings(max_examples=25)
@given(
    count=st.integers(3, 8),
    window=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    change=st.sampled_from([0.05, 0.4, 2.0]),
    left=st.booleans(),
    omega=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_sbert_wk_is_its_reference_in_any_batch_and_window(count, window, lengths, seed, change, left, omega):
    tokens = max(lengths)
    layers = [x.double() for x in hidden(count, len(lengths), tokens, 20, seed, change)]
    mask = (torch.arange(tokens) < torch.tensor(lengths)[:, None]).long()
    mask = mask.flip(1) if left else mask
    mine = sbert_wk.pool(layers, mask, 0, window, omega)
    theirs = reference.pool(torch.stack(layers).numpy(), mask.numpy(), window, omega)
    assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_a_device_without_float64_is_refused(transformer, tmp_path):
    write_model(tmp_path, transformer)
    row = Encoder(path="x", source="path", pooling="sbert-wk")
    with refusal("mps has no float64, which sbert-wk needs; take cpu or cuda$"):
        load(tmp_path, row, torch.device("mps"))


def test_padding_never_matters():
    layers, mask = hidden(6, 2, 8, 16), torch.tensor([[1] * 5 + [0] * 3, [1] * 3 + [0] * 5])
    spoilt = [torch.where(mask.bool()[..., None], layer, torch.nan) for layer in layers]
    alone = sbert_wk.pool([layer[1:, :3] for layer in layers], mask[1:, :3], 0)
    torch.testing.assert_close(sbert_wk.pool(spoilt, mask, 0)[1], alone[0])


def test_layers_of_16_bits_are_pooled_without_overflow():
    layers, mask = [30 * layer for layer in hidden(6, 2, 400, 16)], torch.ones(2, 400)
    low = [layer.half() for layer in layers]
    for pool in (
        lambda layers: sbert_wk.pool(layers, mask, 0),
        lambda layers: pooling.token_mean(layers[0], mask),
    ):
        assert_allclose(pool(low).float(), pool([layer.float() for layer in low]), rtol=0.01, atol=0.05)
    flat = torch.full((1, 512, 2), 200.0).half()
    assert (pooling.token_mean(flat, torch.ones(1, 512)) == 200).all()


def test_tokens_count_alike_in_a_text_whose_cosines_do_not_vary():
    layers = [torch.stack([torch.eye(3, 8), layer[0]]) for layer in hidden(5, 1, 3, 8)]
    mask = torch.ones(2, 3)
    found = sbert_wk.pool(layers, mask, 0, separator=False)
    other = sbert_wk.pool([layer[1:] for layer in layers], mask[1:], 0, separator=False)
    torch.testing.assert_close(found, torch.cat([torch.eye(3, 8).mean(0)[None], other]))


def test_more_neighbours_than_dimensions_leave_no_novelty():
    flat = [layer[0] for layer in hidden(7, 1, 2, 3)]
    alpha, _ = sbert_wk.weights(flat, torch.arange(2), window=3, omega=0.0)
    torch.testing.assert_close(alpha.sum(1), torch.ones(2, dtype=alpha.dtype))


def test_sbert_wk_starts_at_a_third_of_the_layers(transformer):
    vectors = pooled(transformer, "sbert-wk").encode(TEXTS)
    third = transformer.model.config.num_hidden_layers // 3
    same = pooled(transformer, "sbert-wk", first_layer=third).encode(TEXTS[1:2])
    assert_allclose(same[0], vectors[1], atol=1e-5)


@pytest.mark.parametrize("kind", ["cls", "mean", "first-last", "pooler"])
def test_every_pooler_of_a_training_saves_and_opens(transformer, tmp_path, kind):
    model = pooled(transformer, kind)
    before = model.encode(TEXTS)
    model.save(str(tmp_path), create_model_card=False)
    again = pooling.open_model(tmp_path)
    assert_allclose(again.encode(TEXTS), before, atol=1e-6)
    assert_allclose(again.encode(TEXTS[1:2])[0], before[1], atol=1e-5)  # with and without padding


def test_first_last_is_the_mean_of_both_layers(transformer):
    features = transformer.tokenizer(TEXTS[:1], return_tensors="pt")
    layers = transformer.model.eval()(**features, output_hidden_states=True).hidden_states
    expected = (layers[1] + layers[-1])[0].mean(0) / 2
    vector = pooled(transformer, "first-last").encode(TEXTS[0])
    assert_allclose(vector, expected.detach().numpy(), atol=1e-6)


def test_neighbouring_layers_are_compared(transformer):
    model, text = pooled(transformer, "mean").eval(), TEXTS[0]
    cosines, words = layers.compare(model, [text] * 5)
    features = transformer.tokenizer([text], return_tensors="pt")
    with torch.inference_mode():
        hidden = torch.cat(transformer.model(**features, output_hidden_states=True).hidden_states)
    tokens = torch.nn.functional.normalize(hidden[:, 1:-1].double(), dim=2)  # without [CLS] and [SEP]
    expected = torch.einsum("itd,jtd->tij", tokens, tokens)
    torch.testing.assert_close(cosines, expected.mean(0), atol=1e-4, rtol=0)

    variance = expected.diagonal(offset=1, dim1=1, dim2=2).var(1)
    names = transformer.tokenizer.convert_ids_to_tokens(features["input_ids"][0, 1:-1])
    assert words["word"].to_list() == [names[i] for i in variance.argsort(descending=True)]
    assert words["count"].to_list() == [5] * len(names)


def test_layers_are_compared_with_the_prompt_and_a_single_one_has_no_table_of_words(transformer):
    model = pooled(copy.deepcopy(transformer), "mean").eval()
    with_prompt = layers.compare(model, TEXTS, "the old ")[0]
    assert torch.equal(with_prompt, layers.compare(model, ["the old " + text for text in TEXTS])[0])
    assert not torch.equal(with_prompt, layers.compare(model, TEXTS)[0])
    model[0].tokenizer.model_max_length = int(1e30)  # as tokenizers without a bound have it
    assert torch.equal(with_prompt, layers.compare(model, TEXTS, "the old ")[0])
    del model[0].model.encoder.layer[1:]
    cosines, words = layers.compare(model, TEXTS * 5)
    assert cosines.shape == (2, 2)
    assert (words.height, words.columns) == (0, ["word", "count", "variance"])


def test_pooler_is_the_transformers_own_output(transformer):
    features = transformer.tokenizer(TEXTS, return_tensors="pt", padding=True)
    own = transformer.model.eval()(**features).pooler_output.detach().numpy()
    assert_allclose(pooled(transformer, "pooler").encode(TEXTS), own, atol=1e-6)


def test_a_missing_pooler_and_too_few_layers_are_refused(transformer):
    bare = copy.deepcopy(transformer)
    bare.model.pooler = None
    with refusal("BertModel has no pooler"):
        pooling.trained_pooler(bare)
    with refusal("three are needed"):
        pooled(transformer, "sbert-wk", first_layer=3)


@pytest.mark.parametrize("weights", ["none", "zeros"])
def test_a_checkpoint_without_weights_of_the_pooler_is_refused(transformer, tmp_path, weights):
    pooled(transformer, "mean").save(str(tmp_path), create_model_card=False)
    state = load_file(tmp_path / "model.safetensors")
    weight = state.pop("pooler.dense.weight")
    if weights == "zeros":
        state["pooler.dense.weight"] = 0 * weight
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with refusal("pooling pooler: the checkpoint of this BertModel has no weights of the pooler"):
        pooled(pooling.open_model(tmp_path)[0], "pooler")
