"""A fixture of all tests of dagster_dvc."""

import dagster as dg
import pytest


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
