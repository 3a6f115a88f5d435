"""Set up every test process: its threads, its order of tests, its garbage collector and its own folders."""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# The slowest files. They run first, so that no worker is left alone at the end.
LONGEST = (
    "test_repro.py",
    "test_workers.py",
    "test_track.py",
    "test_ranks.py",
    "test_tool.py",
)
# Workers share the cores: more threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # of child processes in other folders
for who in ("AUTHOR", "COMMITTER"):  # of git
    os.environ |= {f"GIT_{who}_NAME": "t", f"GIT_{who}_EMAIL": "t@localhost"}
# A background shell has SIGINT ignored. Dagster copies that to SIGTERM, and children inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def module_patch(tmp_path_factory):
    """Change into an empty folder for all tests of a file. Return a MonkeyPatch that they share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("module"))
        yield patch


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """Change into an empty folder, and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """Make MLflow's schema once, which takes seconds. Tests copy it."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}")
    return path
