"""This project in Dagster: the component of dagster_dvc over dvc.yaml, and what is known of its stages beside that."""
