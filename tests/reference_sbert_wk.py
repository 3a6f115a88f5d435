"""SBERT-WK one token and one layer at a time, in float64 numpy, straight from the formulas: slow and
independent.
"""

import numpy as np


def layer_weights(vectors, window, omega):
    """Return weights of sum 1 of one token's layers, by QR of [neighbours | the layer itself]. (layers, dim)
    -> (layers,)
    """
    inverse_alignment, novelty = [], []
    for k, x in enumerate(vectors):
        near = [vectors[j] for j in range(len(vectors)) if j != k and abs(j - k) <= window]
        last = np.linalg.qr(np.stack([*near, x], axis=1))[1][:, -1]
        novelty.append(abs(last[-1]) / np.linalg.norm(last))
        cosines = [x @ v / np.linalg.norm(x) / np.linalg.norm(v) for v in near]
        inverse_alignment.append(1 / np.mean(cosines))
    a, n = np.array(inverse_alignment), np.array(novelty)
    return omega * a / a.sum() + (1 - omega) * n / n.sum()


def importance(vectors):
    """Variance of the cosines between adjacent layers. (layers, dim) -> scalar"""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return float(np.var((units[1:] * units[:-1]).sum(1), ddof=1))


def pool(layers, mask, window=2, omega=0.5):
    """(layers, batch, tokens, dim), (batch, tokens) -> (batch, dim); the last token of every text is left
    out.
    """
    sentences = []
    for b in range(layers.shape[1]):
        tokens = np.flatnonzero(mask[b])
        tokens = tokens[:-1] if len(tokens) > 1 else tokens
        words, weights = [], []
        for t in tokens:
            vectors = layers[:, b, t].astype(np.float64)
            words.append(layer_weights(vectors, window, omega) @ vectors)
            weights.append(importance(vectors))
        sentences.append(np.array(weights) @ np.array(words) / sum(weights))
    return np.array(sentences)
