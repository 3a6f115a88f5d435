"""Linear classifiers on frozen vectors."""

import warnings

import numpy as np
import torch
from torch import Tensor

from pipelines.runtime.errors import BadInput

STRENGTHS = tuple(10.0**k for k in range(-3, 4))  # C of the logistic regression


def linear_correct(
    where: str,
    train: np.ndarray,
    labels: np.ndarray,
    test: np.ndarray,
    truth: np.ndarray,
    held: np.ndarray | None = None,
    strengths: tuple[float, ...] = STRENGTHS,
) -> Tensor:
    """Fit a logistic regression on standardised features.

    Choose C on the train rows `held`, by default a random fifth, then fit on all rows. -> correct (n,)

    The solver stops after 200 iterations, without a warning. Raises BadInput, which names `where`, for a
    single class.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    train, test = (np.asarray(scaler.transform(part)) for part in (train, test))
    if held is None:
        held = np.random.default_rng(0).permutation(len(train))[: max(1, len(train) // 5)]
    kept = np.setdiff1d(np.arange(len(train)), held)
    if len(set(labels[kept])) < 2:
        raise BadInput(f"{where}: a linear classifier on {len(kept)} rows has a single class to learn")
    search = GridSearchCV(LogisticRegression(max_iter=200), {"C": strengths}, cv=[(kept, held)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(train, labels)
    return torch.from_numpy(search.predict(test) == truth).float()
