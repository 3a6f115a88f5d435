"""This project in Dagster: the component of dagster_dvc, with more checks and links to MLflow."""
