"""The science: verbs are stages (`python -m pipelines.<verb> <row>`), packages are nouns. dvc.yaml is the graph."""

import gc
import os
import sys

if sys.argv[0] == "-m":  # a module of ours is being started, not imported: see `imported`
    gc.disable()

# Before torch loads: threads that wait by spinning take the core that the thread they wait for needs. On a machine with other
# work on it that halves the speed of embedding.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# OpenBLAS, which numpy and scipy bring, knows no other way to wait, and nothing large is left to it: torch has its own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Torch asks Linux for huge pages: kernels of couplings are hundreds of megabytes each, new in every step, and a tenth of a fit of
# 768 dimensions went into the making of small ones.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# oneDNN keeps code for the last 1,024 shapes, and each step of a fit has shapes of its own: a gigabyte that is never used again.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def imported() -> None:
    """Called by every `main` before its work: what imports made lives as long as the process, no need for the collector to look.

    A million objects of torch, transformers and MLflow: looking through them while they come and when they go takes half
    the time of a short stage.
    """
    gc.freeze()
    gc.enable()


def __getattr__(name: str) -> object:
    """`from pipelines import fit, load, verdict`: docs/python.md. Imported when they are asked for, as no stage needs them."""
    if name in ("fit", "load", "verdict"):
        from pipelines.aligners import arrays

        return getattr(arrays, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
