"""What carries a stage and computes nothing: its start, its files, its MLflow run, its errors."""
