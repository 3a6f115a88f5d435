"""A DVC project in Dagster: one asset per stage of its dvc.yaml. Knows DVC's files and nothing of what the stages compute."""

from dagster_dvc.component import DvcProjectComponent

__all__ = ["DvcProjectComponent"]
