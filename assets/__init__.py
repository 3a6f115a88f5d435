"""This project in Dagster: the component of dagster_dvc, with more checks, links to MLflow and a job."""
