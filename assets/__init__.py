"""Dagster's view of dvc.yaml: one asset per stage. Knows DVC's files and nothing of what the stages compute."""
