"""Sub-words learnt from the attacker's own texts: WordPiece or byte-pair encoding, so that any text can be spelled."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from pipelines.runtime.errors import BadInput

PAD, START, END, UNKNOWN = "[PAD]", "[START]", "[END]", "[UNK]"
SPECIAL = (PAD, START, END, UNKNOWN)


class Vocabulary:
    """Texts <-> sub-word ids. Ids 0..3 are pad, start, end, unknown."""

    pad, start, end = 0, 1, 2

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """At most `most` ids per text, without start, with end where the whole text fits."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [[*e.ids, self.end][:most] for e in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without the special ones."""
        return self.tokenizer.decode([i for i in ids if i >= len(SPECIAL)]).strip()

    def dumps(self) -> str:
        return self.tokenizer.to_str()

    @classmethod
    def loads(cls, saved: str) -> Vocabulary:
        return cls(Tokenizer.from_str(saved))


def learn(texts: Sequence[str], size: int, kind: str = "bpe", lowercase: bool = True) -> Vocabulary:
    """Learn `size` sub-words. bpe: bytes, nothing is unknown; wordpiece: BERT's pieces. `lowercase` where the encoder is uncased.

    Raises BadInput for no texts or another kind.
    """
    if not any(t.strip() for t in texts):
        raise BadInput("vocabulary: there are no texts to learn it from")
    clean = [
        normalizers.NFC(),
        *([normalizers.Lowercase()] if lowercase else []),
        normalizers.Replace("\n", " "),
    ]
    # The first word is spelled like every other.
    clean = normalizers.Sequence([*clean, normalizers.Strip(), normalizers.Prepend(" ")])  # pyright: ignore[reportArgumentType]
    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))  # pyright: ignore[reportCallIssue]
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        # The trainer numbers ##a, ##b, ... in a hash map's order, another in each run: given as special, they have their places.
        inside = [
            f"##{c}" for c in sorted({c for t in texts for c in clean.normalize_str(t) if not c.isspace()})
        ]
        trainer = trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=[*SPECIAL, *inside], show_progress=False
        )
    else:
        raise BadInput(f"vocabulary: there is no kind {kind!r}; there are bpe and wordpiece")
    tokenizer.normalizer = clean  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.train_from_iterator(texts, trainer)
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = [token for token in saved["added_tokens"] if token["content"] in SPECIAL]
    return Vocabulary.loads(json.dumps(saved))
