"""Share views of MLflow's tables of runs that show what was measured, and print the way to that of translators.

    python scripts/views.py http://127.0.0.1:5000

MLflow's own table begins without a metric. A view that is shared is a tag of the experiment, and a link that names it.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib

from mlflow import MlflowClient

VIEW = "measured"
COLUMNS = {  # the last metric is sorted by
    "evaluate": {
        "metrics": ("translation/centred_cosine", "translation/foscttm", "translation/top1"),
        "params": ("align.aligner", "source.encoder", "target.encoder"),
    },
    "attributes": {
        "metrics": ("attributes/name/naive/top1", "attributes/name/translated/top1"),
        "params": ("translator",),
    },
    "similarity": {"metrics": ("similarity/spearman",), "params": ("encoder", "pooling", "corpus")},
}


def state(columns: dict[str, tuple[str, ...]]) -> str:
    """What MLflow's page keeps of such a table: JSON, deflated."""
    names = [f"{kind}.`{name}`" for kind, of_kind in columns.items() for name in of_kind]
    view = {
        "selectedColumns": ["attributes.`Created`", *names],
        "orderByKey": f"metrics.`{columns['metrics'][-1]}`",
        "orderByAsc": False,
        "searchFilter": "",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
    }
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(view).encode())).decode()


def main(address: str) -> None:
    client = MlflowClient(address)
    ways = []
    for verb, columns in COLUMNS.items():
        if experiment := client.get_experiment_by_name(verb):
            client.set_experiment_tag(
                experiment.experiment_id, f"mlflow.sharedViewState.{VIEW}", state(columns)
            )
            ways.append(f"/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey={VIEW}")
    print(ways[0] if ways else "")


if __name__ == "__main__":
    main(sys.argv[1])
