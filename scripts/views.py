"""Share views of MLflow's tables of runs that show metrics, and print the link to that of translators.

    python scripts/views.py http://127.0.0.1:5000

MLflow's own table shows no metric at first. A shared view is a tag of the experiment, and a link names it.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib
from typing import NamedTuple

from mlflow import MlflowClient

from pipelines.measures import Measure, attributes, shown, similarity, translation

VIEW = "measured"


class Columns(NamedTuple):
    """Columns of an experiment's table: measures under each prefix, and settings."""

    prefixes: tuple[str, ...]
    measures: list[Measure]
    params: tuple[str, ...]


EXPERIMENTS = {
    "evaluate": Columns(
        ("translation",), translation.MEASURES, ("align.aligner", "source.encoder", "target.encoder")
    ),
    "attributes": Columns(
        ("attributes/name/naive", "attributes/name/translated"),
        attributes.measures((1,))[:1],
        ("translator",),
    ),
    "similarity": Columns(("similarity",), similarity.MEASURES, ("encoder", "pooling", "corpus")),
}


def state(columns: Columns) -> str:
    """Return what MLflow's page keeps of a table, as deflated JSON: its columns, sorted by the first headline
    measure.
    """
    headline = next(m for m in columns.measures if m.headline)
    names = [f"metrics.`{prefix}/{m.name}`" for prefix in columns.prefixes for m in shown(columns.measures)]
    view = {
        "selectedColumns": ["attributes.`Created`", *names, *(f"params.`{name}`" for name in columns.params)],
        "orderByKey": f"metrics.`{columns.prefixes[-1]}/{headline.name}`",
        "orderByAsc": headline.better == "lower",
        "searchFilter": "",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
    }
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(view).encode())).decode()


def main(address: str) -> None:
    client = MlflowClient(address)
    paths = []
    for verb, columns in EXPERIMENTS.items():
        if experiment := client.get_experiment_by_name(verb):
            tag = f"mlflow.sharedViewState.{VIEW}"
            client.set_experiment_tag(experiment.experiment_id, tag, state(columns))
            paths.append(f"/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey={VIEW}")
    print(paths[0] if paths else "")


if __name__ == "__main__":
    main(sys.argv[1])
