"""Objects made at import live until exit, so the garbage collector skips them."""

import gc

gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
