"""A small BERT from nothing: a WordPiece vocabulary learnt on the corpus, and weights drawn from a seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from sentence_transformers.base.modules import Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, BertTokenizer

from pipelines.runtime.errors import BadInput
from pipelines.study import Network

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary(texts: Iterable[str], size: int) -> dict[str, int]:
    """WordPiece, lower case, as BERT: piece -> id, at most `size` of them. The same for the same texts.

    The trainer numbers the pieces "##c" in the order of a hash table, which differs from run to run, and breaks ties between
    merges by these numbers. So it is handed every character's piece up front, in order, in the guise of special tokens.
    Raises BadInput if `size` has no room for the characters.
    """
    texts = list(texts)
    normalizer = normalizers.BertNormalizer(lowercase=True)
    seen = Counter()
    for text in texts:
        seen.update(normalizer.normalize_str(text))
    letters = sorted(sorted(c for c in seen if not c.isspace()), key=lambda c: -seen[c])[
        : size // 8
    ]  # rare ones become [UNK]
    first = [*SPECIAL, *letters, *(f"##{c}" for c in letters)]
    if size < len(first) + 1:
        raise BadInput(f"a vocabulary of {size} has no room for {len(letters)} characters")
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


def network(texts: Iterable[str], shape: Network, seed: int, folder: Path) -> Transformer:
    """An untrained BERT and its tokenizer, written to `folder` and read back as a module of sentence-transformers."""
    pieces = vocabulary(texts, shape.vocabulary)
    tokenizer = BertTokenizer(vocab=pieces, model_max_length=shape.positions)
    if shape.width % shape.heads:
        raise BadInput(f"scratch: a width of {shape.width} cannot be divided among {shape.heads} heads")
    config = BertConfig(
        vocab_size=max(pieces.values()) + 1,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.positions,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(
            folder
        )  # with BERT's own pooler, unused: left out, loading would draw a new one
    tokenizer.save_pretrained(folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": shape.positions}))
    return Transformer(str(folder))
