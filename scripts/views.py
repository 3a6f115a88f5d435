"""Share a view of MLflow's table of translators that shows what was measured, and print the link to it.

    python -m scripts.views http://127.0.0.1:5000

MLflow's own table shows no metric at first. A shared view is a tag of the experiment, and a link names it.
"""

import base64
import json
import sys
import zlib

from mlflow import MlflowClient

from pipelines.measures import shown, translation

VIEW = "measured"


def state(settings: list[str]) -> str:
    """Return what MLflow's page keeps of a table, as deflated JSON: columns, and the first headline first."""
    headline = next(measure for measure in translation.MEASURES if measure.headline)
    columns = [f"metrics.`translation/{measure.name}`" for measure in shown(translation.MEASURES)]
    columns += [f"params.`{name}`" for name in settings]
    view = {
        "selectedColumns": ["attributes.`Created`", *columns],
        "orderByKey": f"metrics.`translation/{headline.name}`",
        "orderByAsc": headline.better == "lower",
        "searchFilter": "",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
    }
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(view).encode())).decode()


def varied(client: MlflowClient, experiment: str) -> list[str]:
    """Return the settings of translators that differ between runs of one row: `align.clusters`."""
    values: dict[tuple[str, str], set[str]] = {}
    for run in client.search_runs([experiment], max_results=1000):
        for key, value in run.data.params.items():
            values.setdefault((run.data.tags.get("dvc.stage", ""), key), set()).add(value)
    return sorted({key for (_, key), of in values.items() if len(of) > 1 and key.startswith("align.")})


def main(address: str) -> None:
    client = MlflowClient(address)
    if experiment := client.get_experiment_by_name("evaluate"):
        number = experiment.experiment_id
        settings = ["align.aligner", "source.encoder", "target.encoder", *varied(client, number)]
        client.set_experiment_tag(number, f"mlflow.sharedViewState.{VIEW}", state(settings))
        print(f"/#/experiments/{number}/runs?viewStateShareKey={VIEW}&workflowType=machine_learning")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m scripts.views <address of MLflow>")
    main(sys.argv[1])
