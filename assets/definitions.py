"""Dagster loads `defs`: all components of assets/defs."""

from pathlib import Path

import dagster as dg

defs = dg.Definitions.merge(
    dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
    dg.Definitions(executor=dg.in_process_executor),  # as in the component's jobs
)
