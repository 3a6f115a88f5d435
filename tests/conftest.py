"""What imports make lives as long as the process: the collector need not look at a million objects while they come, nor after."""

import gc

gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
