"""Maps from true pairs, which no attacker has."""

from torch import Tensor

from pipelines.aligners.core.cloud import checked, spectral
from pipelines.aligners.core.translator import Linear
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.errors import BadInput


def checked_pairs_of_rows(paired_source: Tensor, paired_target: Tensor) -> tuple[Tensor, Tensor]:
    """Return (n, d) and (n, e) as `checked` does. Raises BadInput if their lengths differ."""
    source, target = checked("source", paired_source), checked("target", paired_target)
    if len(source) != len(target):
        raise BadInput(f"pairs: {len(source)} source vectors beside {len(target)} target vectors")
    return source, target


def paired_orthogonal(paired_source: Tensor, paired_target: Tensor) -> Linear:
    """Fit the orthogonal Procrustes map (Schoenemann 1966) of paired rows (n, d), (n, e).

    The map is semi-orthogonal where d and e differ. It is 0 for directions in which no two pairs differ.
    """
    source, target = checked_pairs_of_rows(paired_source, paired_target)
    return Linear.of(spectral(centred_unit(source).T @ centred_unit(target)), source, target)
