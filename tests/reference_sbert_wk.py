"""SBERT-WK one token and one layer at a time, in float64 numpy, straight from the formulas: slow and independent."""

import numpy as np


def neighbours(layers: int, k: int, window: int, edges: str) -> list[int]:
    everyone = list(range(layers))
    if edges == "released":  # slices as they stand in the authors' code
        left = everyone[k - window : k] if k >= window else []
        return left + everyone[k + 1 : k + window + 1]
    return [j for j in everyone if j != k and abs(j - k) <= window]


def layer_weights(vectors: np.ndarray, window: int, omega: float, edges: str) -> np.ndarray:
    """(layers, dim) of one token -> (layers,) of sum 1, by a QR factorisation of [neighbours | the layer itself]."""
    inverse_alignment, novelty = [], []
    for k, x in enumerate(vectors):
        window_vectors = [vectors[j] for j in neighbours(len(vectors), k, window, edges)]
        r = np.linalg.qr(np.stack([*window_vectors, x], axis=1))[1]
        last = r[:, -1]
        novelty.append(abs(last[-1]) / np.linalg.norm(last))
        if edges == "released":
            units = r[:-1, :-1] / np.linalg.norm(r[:-1, :-1], axis=0)
            cosine = units.mean(axis=1) @ last[:-1] / np.linalg.norm(last[:-1])
            inverse_alignment.append(1 / (cosine * (len(window_vectors) + 1) * 2))
        else:
            cosines = [x @ v / np.linalg.norm(x) / np.linalg.norm(v) for v in window_vectors]
            inverse_alignment.append(1 / np.mean(cosines))
    a, n = np.array(inverse_alignment), np.array(novelty)
    return omega * a / a.sum() + (1 - omega) * n / n.sum()


def importance(vectors: np.ndarray) -> float:
    """Variance of the cosines between adjacent layers. (layers, dim) -> scalar"""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return float(np.var([units[k] @ units[k + 1] for k in range(len(units) - 1)], ddof=1))


def pool(
    layers: np.ndarray, mask: np.ndarray, window: int = 2, omega: float = 0.5, edges: str = "paper"
) -> np.ndarray:
    """(layers, batch, tokens, dim), (batch, tokens) -> (batch, dim); the last token of every text is left out."""
    sentences = []
    for b in range(layers.shape[1]):
        tokens = np.flatnonzero(mask[b])[:-1] if mask[b].sum() > 1 else np.flatnonzero(mask[b])
        words, weights = [], []
        for t in tokens:
            vectors = layers[:, b, t].astype(np.float64)
            words.append(layer_weights(vectors, window, omega, edges) @ vectors)
            weights.append(importance(vectors))
        sentences.append(np.array(weights) @ np.array(words) / sum(weights))
    return np.array(sentences)
