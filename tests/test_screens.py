"""What a browser shows of Dagster, MLflow and the report after `make repro`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.test_repro import ROOT, repository, run  # noqa: F401

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("repro"),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here"),
]
SIZES = {
    "graph": (1400, 900),
    "dagster": (1400, 1000),
    "mlflow": (1400, 700),
    "report": (1200, 1500),
    "report-phone": (390, 844),
}


def test_every_page_shows_what_was_measured_and_nothing_is_out_of_sync(repository, tmp_path):  # noqa: F811
    for name in ("scripts", "assets", "dagster_dvc"):
        shutil.copytree(ROOT / name, repository / name, dirs_exist_ok=True)
    shutil.copy(ROOT / "pyproject.toml", repository)  # in which Dagster finds assets/defs
    (repository / ".venv").symlink_to(Path(sys.prefix))
    run(
        sys.executable, "scripts/screens.py", str(tmp_path), "wasserstein"
    )  # which ends badly where a page does not show it
    for name, size in SIZES.items():
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size == size
            assert len(picture.convert("L").getcolors(1 << 24)) > 50  # and is not blank
