"""Encoders: every source and kind, on tiny models made here; what `encode` returns is what the model itself
returns.
"""

import errno
import json
import shutil
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    GPT2Config,
    GPT2Model,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
    XLNetConfig,
    XLNetModel,
)

from pipelines.encoders import loading, pooling, sources
from pipelines.encoders.encode import Encoded, _concatenated, encode, group, plan
from pipelines.encoders.loading import load
from pipelines.encoders.sources import digest_of_weights, fetch
from pipelines.runtime.errors import BadInput
from pipelines.study import Encoder
from pipelines.study.encoders import PACKAGED
from tests.hostile import Code
from tests.small import put, refusal, write_model

pytestmark = pytest.mark.usefixtures("own_folder")
MODEL, OUT = Path("model"), Path("out")  # of models that tests write
WORDS = "the a cat dog house river runs sleeps under over old red quick and".split()  # noqa: SIM905
VOCABULARY = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": len(VOCABULARY),
}
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, n)) for n in RNG.integers(1, 24, 60)]
assert_near = partial(assert_allclose, atol=1e-5)


def tokenizer(template, **special):
    rust = Tokenizer(models.WordPiece(VOCABULARY))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    named = [(t, VOCABULARY[t]) for t in ("[CLS]", "[SEP]")]
    rust.post_processor = processors.TemplateProcessing(single=template, special_tokens=named)
    return PreTrainedTokenizerFast(
        tokenizer_object=rust, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32, **special
    )


def saved(folder, network, tokens, *later):
    plain = folder / "transformer"
    network.save_pretrained(plain)
    tokens.save_pretrained(plain)
    if not later:
        return plain
    write_model(folder / "model", Transformer(str(plain)), *later)
    return folder / "model"


def bert(folder):
    config = BertConfig(**SIZES, max_position_embeddings=40)
    return saved(folder, BertModel(config), tokenizer("[CLS] $A [SEP]"), Pooling(32, "mean"), Normalize())


def t5(folder):
    config = T5Config(vocab_size=len(VOCABULARY), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    later = Pooling(32, "mean"), Dense(32, 24, bias=False), Normalize()
    return saved(folder, T5EncoderModel(config), tokenizer("$A [SEP]", eos_token="[SEP]"), *later)


def qwen(folder):
    config = Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8, pad_token_id=0)
    tokens = tokenizer("$A [SEP]", padding_side="left")
    return saved(folder, Qwen3Model(config), tokens, Pooling(32, "lasttoken"))


def clip(folder):
    text = SIZES | {"max_position_embeddings": 30, "bos_token_id": 2, "eos_token_id": 3}
    vision = SIZES | {"image_size": 8, "patch_size": 4}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
    CLIPImageProcessor().save_pretrained(folder / "transformer")  # sentence-transformers opens it, too
    return saved(folder, CLIPModel(config), tokenizer("[CLS] $A [SEP]"))


KINDS = {"bert": bert, "t5": t5, "qwen": qwen, "clip": clip}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    made = {}
    for kind, make in KINDS.items():
        torch.manual_seed(0)
        made[kind] = make(tmp_path_factory.mktemp(kind))
    return made


def row(**more):
    usual = {"path": "constraints.txt", "source": "path", "model": "tiny", "batch_tokens": 128}
    return Encoder(**usual | more)


def run(loaded, texts=TEXTS, folder=None, **keys):
    """Encode texts, in a new folder if none is given."""
    return encode(loaded, texts, row(**keys), folder or Path(mkdtemp(dir=".")))


def vectors(folder, texts=TEXTS, **keys):
    return run(load(folder, row(**keys)), texts, **keys).vectors


# ---------------------------------------------------------------- encode


@pytest.mark.parametrize("kind", ["bert", "t5", "qwen"])
def test_vectors_are_those_of_the_published_model(kind, folders):
    plain = SentenceTransformer(str(folders[kind]), device="cpu").encode(TEXTS, batch_size=1)
    assert_near(vectors(folders[kind]), plain)


def test_a_network_without_a_stated_length_reads_what_its_positions_hold(tmp_path):
    tokens = tokenizer("[CLS] $A [SEP]")
    tokens.model_max_length = int(1e30)
    config = RobertaConfig(**SIZES, max_position_embeddings=22, pad_token_id=0)
    folder = saved(tmp_path, RobertaModel(config), tokens, Pooling(32, "mean"))
    assert vectors(folder, ["dog " * 60]).shape == (1, 32)


def test_a_tokenizer_may_have_no_padding_and_no_separator(tmp_path):
    tokens = tokenizer("$A", eos_token="[SEP]")
    tokens.pad_token = None
    config = GPT2Config(vocab_size=len(VOCABULARY), n_embd=32, n_layer=2, n_head=4, n_positions=40)
    folder = saved(tmp_path, GPT2Model(config), tokens, Pooling(32, "mean"))
    alone = [vectors(folder, [text])[0] for text in ("a dog", "the cat sleeps")]
    assert_near(vectors(folder, ["a dog", "the cat sleeps"]), alone)
    dog, cat = vectors(folder, ["a dog", "a cat"], pooling="sbert-wk", first_layer=0)
    assert abs(dog - cat).max() > 1e-3


def test_a_network_may_have_any_number_of_positions(tmp_path):
    config = XLNetConfig(vocab_size=len(VOCABULARY), d_model=32, n_layer=2, n_head=4, d_inner=64)
    tokens = tokenizer("$A [SEP]", padding_side="left")
    folder = saved(tmp_path, XLNetModel(config), tokens, Pooling(32, "mean"))
    assert vectors(folder, ["a dog"], max_tokens=20).shape == (1, 32)


def test_float16_files_hold_the_rounded_vectors(folders):
    half = vectors(folders["bert"], store="float16")
    assert half.dtype == np.float16
    assert_array_equal(half, vectors(folders["bert"]).astype(np.float16))


def test_every_packaged_encoder_has_a_source():
    assert sources.WHEELS.keys() == PACKAGED.keys()


def test_several_models_are_one_encoder_side_by_side(folders, monkeypatch):
    copies = {kind: partial(sources._copy, folders[kind]) for kind in ("bert", "qwen")}
    monkeypatch.setattr(sources, "WHEELS", copies)
    loaded = fetched(source="wheel", model="bert+qwen")
    alone = [vectors(folders[kind]) for kind in copies]
    unit = np.hstack([v / np.linalg.norm(v, axis=1, keepdims=True) for v in alone])
    for _ in range(2):  # the second run reads its parts from the disk
        assert_allclose(run(loaded, folder=Path("work")).vectors, unit, atol=1e-6)
    assert (loaded.name, loaded.dimension) == ("bert+qwen", 64)
    long = Encoded((1000 * alone[0]).astype(np.float16), 0.0)
    assert_allclose(_concatenated([long]).vectors, unit[:, :32], atol=1e-3)


def test_of_several_models_the_first_has_the_layers(folders, monkeypatch):
    monkeypatch.setattr(sources, "WHEELS", {k: partial(sources._copy, folders[k]) for k in ("bert", "t5")})
    several = fetched(source="wheel", model="bert+t5", layers=[2, 0])
    layers, other = vectors(folders["bert"], layers=[2, 0]), vectors(folders["t5"])
    unit = np.hstack([v / np.linalg.norm(v, axis=1, keepdims=True) for v in (layers, other)])
    assert_allclose(run(several).vectors, unit, atol=1e-6)
    assert several.pooling == f"layer-mean+{load(folders['t5'], row()).pooling}"


def by_hand(network, folder, texts, vector):
    """Return `vector(output)` of each text by itself."""
    tokens = AutoTokenizer.from_pretrained(folder)
    each = [tokens(text, return_tensors="pt", return_token_type_ids=False) for text in texts]
    with torch.no_grad():
        return np.stack([vector(network.eval()(**features)) for features in each])


def test_clip_is_its_text_side(folders):
    loaded = load(folders["clip"], row())
    whole = CLIPModel.from_pretrained(folders["clip"])
    ends = by_hand(whole.text_model, folders["clip"], TEXTS, lambda o: o.last_hidden_state[0, -1])  # [SEP]
    assert_near(run(loaded).vectors, whole.text_projection(torch.tensor(ends)).detach())
    assert (loaded.pooling, loaded.dimension) == ("eos", 24)
    assert not [n for n, _ in loaded.model.named_parameters() if "vision" in n]


@pytest.mark.parametrize("layer", [0, 2])
def test_a_layer_is_the_mean_over_its_tokens(layer, folders):
    loaded = load(folders["bert"], row(layers=[layer]))
    network = BertModel.from_pretrained(folders["bert"], output_hidden_states=True)
    expected = by_hand(network, folders["bert"], TEXTS, lambda output: output.hidden_states[layer][0].mean(0))
    assert_near(run(loaded).vectors, expected)
    assert loaded.pooling == "layer-mean"


def test_several_layers_are_unit_vectors_side_by_side(folders):
    several, *each = (vectors(folders["bert"], layers=layers) for layers in ([2, 0], [2], [0]))
    assert_near(several, np.hstack([one / np.linalg.norm(one, axis=1, keepdims=True) for one in each]))


def test_a_secret_rotation_keeps_every_angle_and_no_coordinate(folders):
    plain, one, again, other = (vectors(folders["t5"], rotation=seed) for seed in (None, 3, 3, 4))
    assert np.array_equal(one, again)
    for rotated in (one, other):
        assert_near(rotated @ rotated.T, plain @ plain.T)
        assert np.abs((rotated * plain).sum(1) / (plain * plain).sum(1)).max() < 0.9
    assert np.abs(one - other).max() > 0.01
    transformer = pooling.open_model(folders["t5"], torch.bfloat16)
    size = len(transformer)
    matrix = pooling.compose(transformer, row(rotation=3))[-1].linear.weight.detach()
    assert len(transformer) == size
    assert_near(matrix @ matrix.T, torch.eye(len(matrix)))


def test_roberta_reads_fewer_tokens_than_it_has_positions():
    model = RobertaModel(RobertaConfig(**SIZES, max_position_embeddings=20, pad_token_id=1))
    most = pooling.positions(SimpleNamespace(model=model))
    assert model(torch.full((1, most), 5)).last_hidden_state.shape == (1, most, 32)
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        model(torch.full((1, most + 1), 5))


def test_a_saved_rotation_opens_in_sentence_transformers(folders):
    rotated = load(folders["t5"], row(rotation=3)).model
    rotated.save("model", create_model_card=False)
    again = SentenceTransformer("model", device="cpu")
    assert_array_equal(again.encode(TEXTS), rotated.encode(TEXTS))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"layers": [0, 9]}, r"layers \[0, 9\]: this transformer has 2 layers"),
        ({"layers": [1, 1]}, "1 stands twice"),
        ({"layers": [1], "pooling": "mean"}, "`layers` and `pooling` exclude each other"),
        ({"max_tokens": 41}, "40 positions"),
        pytest.param(
            {"precision": "fp16"},
            "fp16 needs a GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_what_an_encoder_does_not_have_is_refused(folders, keys, message):
    with pytest.raises((BadInput, ValueError), match=message):
        load(folders["bert"], row(**keys))


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_is_close_to_float32(kind, folders, monkeypatch):
    monkeypatch.setattr(loading, "_has_bf16", lambda device: True)
    exact, close = vectors(folders[kind]), vectors(folders[kind], precision="bf16")
    assert torch.cosine_similarity(torch.tensor(exact), torch.tensor(close)).min() > 0.999
    assert np.abs(exact - close).max() > 0  # else it was float32 after all


def test_without_bf16_instructions_float32_is_used_and_said(folders, monkeypatch, caplog):
    monkeypatch.setattr(loading, "_has_bf16", lambda device: False)
    assert load(folders["bert"], row(precision="bf16")).precision == "float32"
    assert "no bf16" in caplog.text


@given(st.permutations(range(len(TEXTS))), st.integers(1, 400))
@settings(max_examples=8)
def test_a_vector_does_not_depend_on_its_batch(folders, order, batch):
    loaded = load(folders["bert"], row())
    shuffled = run(loaded, [TEXTS[i] for i in order], batch_tokens=batch).vectors
    assert_near(shuffled, run(loaded).vectors[list(order)])


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(1, 500))
def test_the_plan_covers_every_text_once_within_the_budget(lengths, budget):
    lengths = np.array(lengths)
    batches = list(plan(lengths, budget))
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * lengths[b].max() <= budget for b in batches)
    assert [b for part in group(iter(batches)) for b in part] == batches


@pytest.fixture
def in_parts(folders, monkeypatch):
    """Return an encoder that works in parts of 16 texts, and its vectors."""
    monkeypatch.setattr("pipelines.encoders.encode.PART", 16)
    loaded = load(folders["bert"], row())
    return loaded, run(loaded).vectors


def test_a_killed_run_continues_to_the_same_bytes(in_parts, monkeypatch):
    (loaded, whole), folder = in_parts, Path("killed")
    forward = Mock(side_effect=[loaded.model[0].forward] * 7 + [KeyboardInterrupt])
    with monkeypatch.context() as patch:
        patch.setattr(loaded.model[0], "forward", lambda features: forward()(features))
        with pytest.raises(KeyboardInterrupt):
            run(loaded, folder=folder)
    done = {f: f.stat().st_mtime_ns for f in folder.iterdir()}
    assert done
    assert run(loaded, folder=folder).vectors.tobytes() == whole.tobytes()
    assert {f: f.stat().st_mtime_ns for f in done} == done


def test_two_processes_encode_half_of_the_parts_each(in_parts):
    (loaded, whole), folder = in_parts, Path("shared")
    parts_of_first, second = [], []

    def the_other_runs():
        parts_of_first.extend(folder.iterdir())
        second.append(encode(loaded, TEXTS, row(), folder, (1, 2)))

    first = encode(loaded, TEXTS, row(), folder, (0, 2), the_other_runs)
    assert first.vectors.tobytes() == second[0].vectors.tobytes() == whole.tobytes()
    assert len(parts_of_first) == -(-len(list(folder.iterdir())) // 2)


def test_truncated_is_the_share_of_texts_that_did_not_fit(folders):
    loaded = load(folders["bert"], row(max_tokens=10))
    encoded, cut = run(loaded), run(loaded, [" ".join(t.split()[:8]) for t in TEXTS])
    assert encoded.truncated == pytest.approx(np.mean([len(t.split()) > 8 for t in TEXTS]))
    assert_near(encoded.vectors, cut.vectors)


def test_the_prompt_stands_before_every_text(folders):
    expected = vectors(folders["bert"], ["the old " + t for t in TEXTS])
    assert_array_equal(vectors(folders["bert"], prompt="the old "), expected)


@pytest.mark.parametrize(
    ("saved", "keys"),
    [({}, {"rotation": 1}), ({}, {"pooling": "mean"}), ({"pooling": "first-last"}, {})],
)
@pytest.mark.parametrize(
    ("of_texts", "default"), [("passage", "passage"), ("document", None), ("passage", None)]
)
def test_an_encoder_keeps_its_prompts(folders, saved, keys, of_texts, default):
    own = load(folders["bert"], row(**saved)).model
    own.prompts, own.default_prompt_name = {of_texts: "the old ", "query": "a "}, default
    own.save("model", create_model_card=False)
    loaded = load(MODEL, row(**keys))
    assert (loaded.prompt, loaded.query_prompt) == ("the old ", "a ")
    assert loaded.pooling == saved.get("pooling", "mean")
    bare = load(MODEL, row(prompt="", **keys))
    assert (bare.prompt, bare.query_prompt) == ("", "")
    assert_array_equal(run(bare).vectors, vectors(folders["bert"], **saved | keys))


# ---------------------------------------------------------------- fetch: wheels


SENTENCES = ["A man is eating food.", "Ships sail the northern sea when the wind allows it.", "Yes"]


def fetched(**keys):
    fetch(row(**keys), MODEL)
    return load(MODEL, row(**keys))


def test_minilm_is_the_normalised_mean_of_its_token_states():
    loaded = fetched(source="wheel", model="minilm")
    network = AutoModel.from_pretrained(MODEL).double()
    expected = by_hand(network, MODEL, SENTENCES, lambda o: o.last_hidden_state[0].mean(0))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_near(run(loaded, SENTENCES).vectors, expected)
    assert (loaded.dimension, loaded.max_tokens) == (384, 256)


def test_wordllama_is_what_its_own_package_computes():
    from safetensors.numpy import load_file
    from wordllama.inference import WordLlamaInference

    package = sources._package("wordllama", "wordllama")
    table = load_file(package / "weights/l2_supercat_256.safetensors")["embedding.weight"]
    words = Tokenizer.from_file(str(package / "tokenizers/l2_supercat_tokenizer_config.json"))
    loaded = fetched(source="wheel", model="wordllama")
    texts = [*SENTENCES, "Größe naïve 漢字 \U0001f600", "long " * 700]
    expected = WordLlamaInference(table, words).embed(texts)
    assert_allclose(run(loaded, texts).vectors, expected, atol=1e-6)
    assert (loaded.dimension, loaded.max_tokens) == (256, None)


def test_a_wheel_with_other_weights_is_refused(monkeypatch):
    put("package/model/model.safetensors", b"something else")
    monkeypatch.setattr(sources, "_package", lambda module, distribution: Path("package"))
    with refusal(f"not {sources.MINILM_SHA256}"):
        fetch(row(source="wheel", model="minilm"), OUT)
    assert not OUT.exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"source": "wheel", "model": "wordllama"}, "pip install wordllama"),
        ({"source": "hub", "model": "a/b/c"}, "a/b/c: found neither .*: Repo id must be"),
        (
            {"source": "hub", "model": "owner/tiny"},
            "owner/tiny: found neither in the local cache nor on the hub",
        ),
    ],
)
def test_a_model_that_is_not_there_is_one_line(no_network, keys, message, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refusal(message):
        fetch(row(**keys), OUT)


# ---------------------------------------------------------------- fetch: path and hub


def test_other_weights_have_another_digest(folders):
    fetch(row(path=str(folders["t5"])), MODEL)
    dense = next(MODEL.glob("*Dense/model.safetensors"))
    before = digest_of_weights(MODEL)
    dense.write_bytes(dense.read_bytes()[:-1] + b"\x01")
    assert digest_of_weights(MODEL) != before


INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "no such folder"),
        ({}, "no weights"),
        ({"model-1.safetensors": "", "model.safetensors.index.json": INDEX}, r"model-2\.safetensors"),
        ({"model.safetensors.index.json": "{"}, r"index\.json: cannot be read"),
        ({"a.bin": "", "pytorch_model.bin.index.json": INDEX}, r"model-1\.safetensors, which is missing"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(files, message):
    if files is not None:
        for name, content in ({"config.json": "{}"} | files).items():
            put(MODEL / name, content)
    with refusal(message):
        fetch(row(path="model"), OUT)


def test_what_cannot_be_copied_is_one_line(folders, monkeypatch):
    shutil.copytree(folders["bert"], MODEL)
    (MODEL / "notes").symlink_to("gone")
    with refusal("model: cannot be copied: .*notes"):
        fetch(row(path="model"), Path("new"))
    monkeypatch.setattr("shutil.copyfile", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with refusal("out: no space left on the disk"):
        fetch(row(path="model"), OUT)
    (MODEL / "model.safetensors").unlink()
    (MODEL / "model.safetensors").symlink_to("gone")
    with refusal("it has no weights"):
        digest_of_weights(MODEL)


def refused_and_not_run(line):
    """Expect that a model is refused, and that no code of it runs: that would write beside it."""
    put(MODEL / "theirs.py", "open('ran', 'w')")
    with refusal(line):
        load(MODEL, row())
    assert [*Path().iterdir()] == [MODEL]


@pytest.mark.parametrize("damage", ["hostile weights", "half a config", "own code"])
def test_damaged_and_hostile_files_are_one_line_and_never_run(damage, folders):
    fetch(row(path=str(folders["bert"])), MODEL)
    if damage == "hostile weights":
        (MODEL / "model.safetensors").unlink()
        torch.save(Code(MODEL), MODEL / "pytorch_model.bin")
    elif damage == "half a config":
        put(MODEL / "config.json", '{"model_type":')
    else:
        theirs = {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}
        put(MODEL / "config.json", json.dumps({"model_type": "theirs", "auto_map": theirs}))
    refused_and_not_run("no sentence-transformers model")


@pytest.mark.parametrize(
    ("kind", "file"),
    [("bert", "config.json"), ("bert", "sentence_bert_config.json"), ("clip", "config.json")],
)
def test_a_kernel_that_a_config_names_is_ignored(kind, file, folders):
    fetch(row(path=str(folders[kind])), MODEL)
    path, evil = MODEL / file, {"attn_implementation": "evil/kernel"}
    config = json.loads(path.read_text()) if path.exists() else {}
    config |= evil if file == "config.json" else {"model_args": evil | {"use_kernels": True}}
    if "text_config" in config:
        config["text_config"] |= evil
    path.write_text(json.dumps(config))
    assert_array_equal(vectors(MODEL), vectors(folders[kind]))


def test_nobody_is_asked_whether_to_run_code(folders, monkeypatch):
    shutil.copytree(folders["clip"], MODEL)
    transformer = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    put(MODEL / "modules.json", json.dumps([transformer]))
    theirs = {"image_processor_type": "Theirs", "auto_map": {"AutoImageProcessor": "theirs.Theirs"}}
    put(MODEL / "preprocessor_config.json", json.dumps(theirs))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    refused_and_not_run("requires you to execute")


def test_a_copy_of_a_read_only_folder_can_be_moved_and_removed(folders):
    shutil.copytree(folders["t5"], MODEL)
    for path in (MODEL, *MODEL.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    fetch(row(path="model"), OUT)
    assert all(path.stat().st_mode & 0o200 for path in (OUT, *OUT.rglob("*")))


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "cache")
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", "cache")


def cached(folder, cache, model):
    """Copy a model to where the hub's cache has it."""
    repository = cache / f"models--{model.replace('/', '--')}"
    shutil.copytree(folder, repository / "snapshots" / ("0" * 40))
    put(repository / "refs" / "main", "0" * 40)


@pytest.mark.parametrize(
    ("model", "kind"), [("owner/tiny", "bert"), ("bert-base-uncased", "bert"), ("without/modules", "clip")]
)
def test_a_hub_model_in_the_cache_needs_no_network(no_network, folders, model, kind):
    cached(folders[kind], Path("cache"), model)
    fetch(row(source="hub", model=model), OUT)
    assert digest_of_weights(OUT) == digest_of_weights(folders[kind])


@pytest.mark.parametrize("missing", ["tokenizer*", "modules.json"])
def test_a_part_of_a_hub_model_in_the_cache_is_completed(missing, folders, monkeypatch):
    shutil.copytree(folders["bert"], "part", ignore=shutil.ignore_patterns(missing))
    download = Mock(side_effect=["part", str(folders["bert"])])
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert sources.hub(row(source="hub", model="owner/tiny")) == folders["bert"]
    assert [call.kwargs.get("local_files_only") for call in download.call_args_list] == [True, None]
