"""How a stage starts, its files, its MLflow run and its errors. Nothing here changes a number."""
