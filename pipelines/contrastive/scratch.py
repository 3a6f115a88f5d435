"""A small untrained BERT: a WordPiece vocabulary learnt from the corpus, and weights drawn from a seed."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from sentence_transformers.base.modules import Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, BertTokenizer

from pipelines.runtime.device import forked, manual_seed
from pipelines.runtime.errors import BadInput
from pipelines.study import Network

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def network(texts: Sequence[str], shape: Network, seed: int, folder: Path) -> Transformer:
    """Write an untrained BERT and its tokenizer to `folder` and open it."""
    if shape.width % shape.heads:
        raise BadInput(f"scratch: a width of {shape.width} cannot be divided among {shape.heads} heads")
    pieces = vocabulary(texts, shape.vocabulary)
    tokenizer = BertTokenizer(vocab=pieces, model_max_length=shape.positions)
    config = BertConfig(
        vocab_size=max(pieces.values()) + 1,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.positions,
    )
    cpu = torch.device("cpu")
    with forked(cpu):
        manual_seed(seed, cpu)
        BertModel(config).save_pretrained(folder)  # with a pooler, else loading draws one
    tokenizer.save_pretrained(folder)
    return Transformer(str(folder))


def vocabulary(texts: Sequence[str], size: int) -> dict[str, int]:
    """Return a lower-case WordPiece vocabulary as BERT's, piece -> id, of at most `size` pieces.

    The trainer numbers the pieces "##c" in the order of a hash table, and breaks ties between merges by these
    numbers. To get the same vocabulary in every run, pass all pieces of one character as special tokens, in a
    fixed order. At least 100 pieces are needed.
    """
    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    letters = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    letters = letters[: size // 8]  # rare ones become [UNK]
    first = [*SPECIAL, *letters, *(f"##{c}" for c in letters)]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=first,
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.get_vocab()
