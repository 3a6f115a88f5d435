"""Stages (`python -m pipelines.<verb> <row>`) and the packages that they use. dvc.yaml is the graph."""

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what `__getattr__` imports, for editors
    from pipelines.fitting.arrays import fit as fit
    from pipelines.fitting.arrays import fit_parts as fit_parts
    from pipelines.fitting.arrays import load as load
    from pipelines.fitting.arrays import verdict as verdict

# `python -m pipelines.<verb>` is being started: see `freeze_gc`. sys.argv lacks the name of the module.
if sys.argv[0] == "-m" and sys.orig_argv[-len(sys.argv)].removeprefix("-m").startswith("pipelines."):
    gc.disable()

# Set before torch loads. Threads that wait by spinning take cores from threads that work: on a busy machine
# that halves the speed of embedding.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The OpenBLAS of numpy and scipy can only spin. It has no large work here: torch has a BLAS of its own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Torch asks Linux for huge pages. Each step of a fit allocates couplings of hundreds of megabytes; with small
# pages that takes a tenth of a fit of 768 dimensions.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# oneDNN caches code for the last 1,024 shapes. Each step of a fit has new shapes, so that cache is a gigabyte
# of waste.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def freeze_gc() -> None:
    """Turn the garbage collector on, except for the objects that exist.

    Every `main` calls it after its imports.

    Imports of torch and transformers make a million objects that live until exit. To look through them takes
    half the time of a short stage.
    """
    gc.freeze()
    gc.enable()


def __getattr__(name: str) -> object:
    """Import `fit`, `fit_parts`, `load` and `verdict` (docs/python.md) on demand: no stage needs them."""
    if name in ("fit", "fit_parts", "load", "verdict"):
        from pipelines.fitting import arrays

        return getattr(arrays, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
