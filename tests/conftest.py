"""Set up every test process: one thread, and a garbage collector that skips what imports made."""

import gc
import os
import signal

# Workers share the cores: more threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A background shell has SIGINT ignored. Dagster copies that to SIGTERM, and children inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
