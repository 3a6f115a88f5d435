"""What Dagster loads: the folder study has the one component."""
