"""Show a DVC project in Dagster: one asset for each stage of its dvc.yaml."""

from dagster_dvc.component import DvcProjectComponent

__all__ = ["DvcProjectComponent"]
