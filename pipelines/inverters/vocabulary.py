"""Sub-words learnt from the attacker's texts: lower-case byte-pair encoding, which can spell any text."""

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = ("[PAD]", "[START]", "[END]", "[UNK]")
PAD, START, END = 0, 1, 2  # ids


class Vocabulary:
    """Convert between texts and ids of sub-words."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        tokenizer.encode_special_tokens = True  # a text that contains "[END]" does not end there

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """Return the ids of each text followed by END, cut to `most`."""
        encoded = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [[*e.ids, END][:most] for e in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens."""
        return self.tokenizer.decode(list(ids)).strip()


def learn(texts: Sequence[str], size: int) -> Vocabulary:
    """Learn `size` sub-words, at least 260."""
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[3]))
    lower = [normalizers.NFC(), normalizers.Lowercase(), normalizers.Replace("\n", " ")]
    # The space in front spells the first word like every other.
    space = [normalizers.Strip(), normalizers.Prepend(" ")]
    tokenizer.normalizer = normalizers.Sequence(lower + space)  # pyright: ignore
    digits, byte_level = pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Vocabulary(tokenizer)
