"""What an aligner is: a package `pipelines.aligners.<name>` that satisfies Aligner or OracleAligner.

An aligner of your own is one file, `pipelines/aligners/<name>/__init__.py`. `missing` says what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import get_annotations, signature
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

if TYPE_CHECKING:  # a study reads this module and must not wait for torch
    from pathlib import Path

    from torch import Tensor

    from pipelines.aligners.core.translator import Translator
    from pipelines.runtime.progress import Log

Pair = tuple[str, str]  # names of a source and a target space
# naive: a baseline that learns nothing. oracle: a fit to true pairs, which no attacker has
Supervision = Literal["unpaired", "naive", "oracle"]


class Method(Protocol):
    """What all aligners state."""

    SUPERVISION: Supervision
    THREAD_SAFE: bool  # False if a fit uses torch's global random state: then fits never run side by side
    Settings: type  # a frozen dataclass: the keys of a row of `align`


@runtime_checkable
class Aligner(Method, Protocol):
    """Fit a translator without pairs, or with a few known pairs."""

    USES_PAIRS: bool  # False: a row of this aligner cannot name known pairs

    def fit(
        self,
        source: Tensor,
        target: Tensor,
        settings: Any,
        seed: int,
        pairs: Tensor | None = None,
        log: Log | None = None,
        folder: Path | None = None,
    ) -> Translator:
        """Fit a translator of source (n, d) to target (m, e), which need not share a text.

        The same seed gives the same translator.

        `pairs` (k, 2): rows of source and target that are known to belong to the same texts.
        `log`: called with metrics and a step. `folder`: for checkpoints, so that a killed fit resumes.
        """
        ...


@runtime_checkable
class OracleAligner(Method, Protocol):
    """Fit a translator on true pairs, to learn what a map of its kind could reach."""

    def fit_oracle(
        self, paired_source: Tensor, paired_target: Tensor, settings: Any, seed: int
    ) -> Translator:
        """Fit a translator. Row i of (n, d) and row i of (n, e) belong to the same text."""
        ...


@runtime_checkable
class JointAligner(Protocol):
    """Fit several spaces together."""

    NEEDS_PAIRED_SPACES: bool  # True: all spaces but one share their texts. False: each has its own
    CAN_EXTEND: bool  # whether it can add spaces to the translators of `start`

    def fit_jointly(
        self,
        clouds: Mapping[str, Tensor],
        settings: Any,
        seed: int,
        paired: Sequence[str] = (),
        start: Mapping[Pair, Translator] | None = None,
        log: Log | None = None,
        folder: Path | None = None,
    ) -> dict[Pair, Translator]:
        """Return a translator for each ordered pair of spaces that do not share their texts.

        `paired`: the spaces that share their texts. `start`: translators to extend.
        """
        ...


def missing(module: Any) -> str | None:
    """Say in one line what a module lacks to be an aligner. Return None if it lacks nothing.

    An aligner with `fit_jointly` must also satisfy JointAligner.
    """
    wanted: type = OracleAligner if getattr(module, "SUPERVISION", None) == "oracle" else Aligner
    methods: dict[str, type] = {"fit_oracle" if wanted is OracleAligner else "fit": wanted}
    if hasattr(module, "fit_jointly"):
        methods["fit_jointly"] = JointAligner
    for kind in methods.values():
        if not isinstance(module, kind):
            members = [name for base in kind.__mro__ for name in (*get_annotations(base), *vars(base))]
            lacking = [name for name in members if not name.startswith("_") and not hasattr(module, name)]
            return f"{module.__name__} is no {kind.__name__}: it lacks {', '.join(lacking)}"
    if module.SUPERVISION not in get_args(Supervision):
        return f"{module.__name__}.SUPERVISION: one of {', '.join(get_args(Supervision))} is needed"
    made = getattr(module.Settings, "__dataclass_params__", None)
    if not (made and made.frozen):
        return f"{module.__name__}.Settings: a frozen dataclass is needed"
    for name, kind in methods.items():
        _, *arguments = signature(getattr(kind, name)).parameters  # without self
        fault = f"{module.__name__}.{name}: it is called with ({', '.join(arguments)})"
        try:
            bound = signature(getattr(module, name)).bind(*arguments).arguments
        except TypeError:
            return fault
        if any(own in arguments and own != given for own, given in bound.items()):
            return f"{fault} in this order"
    return None
