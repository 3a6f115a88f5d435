"""MLflow's server with the same guard as Dagster's: `mlflow server --app-name own-pages`.

MLflow checks the Origin of its REST interface, but not that of /graphql.
"""

from mlflow.server.fastapi_app import app

from assets.own_pages import OwnPagesOnly

app.add_middleware(OwnPagesOnly)
