"""Set up every test process: one thread, and a garbage collector that skips what imports made."""

import gc
import os

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # workers share the cores: more threads only wait for each other
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
