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
    params: tuple[str, ...]  # and each setting of a translator that varies


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


def state(columns: Columns, varied: tuple[str, ...] = ()) -> str:
    """Return what MLflow's page keeps of a table, as deflated JSON: its columns, sorted by the first headline
    measure.
    """
    headline = next(m for m in columns.measures if m.headline)
    names = [f"metrics.`{prefix}/{m.name}`" for prefix in columns.prefixes for m in shown(columns.measures)]
    view = {
        "selectedColumns": [
            "attributes.`Created`",
            *names,
            *(f"params.`{name}`" for name in (*columns.params, *varied)),
        ],
        "orderByKey": f"metrics.`{columns.prefixes[-1]}/{headline.name}`",
        "orderByAsc": headline.better == "lower",
        "searchFilter": "",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
    }
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(view).encode())).decode()


def varied(client: MlflowClient, experiment: str) -> tuple[str, ...]:
    """Return the settings of translators that differ between runs of one row: `align.clusters`."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in client.search_runs([experiment], max_results=1000):
        for key, value in run.data.params.items():
            values.setdefault((run.data.tags.get("dvc.stage", ""), key), set()).add(value)
    return tuple(sorted({key for (_, key), of in values.items() if len(of) > 1 and key.startswith("align.")}))


def main(address: str) -> None:
    client = MlflowClient(address)
    paths = []
    for verb, columns in EXPERIMENTS.items():
        if experiment := client.get_experiment_by_name(verb):
            tag = f"mlflow.sharedViewState.{VIEW}"
            view = state(columns, varied(client, experiment.experiment_id))
            client.set_experiment_tag(experiment.experiment_id, tag, view)
            paths.append(f"/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey={VIEW}")
    print(paths[0] if paths else "")


if __name__ == "__main__":
    main(sys.argv[1])
