"""The code of a published translator: MLflow runs it to load the model, which needs no pickle."""

from typing import Any

import mlflow
import numpy as np

from pipelines import load


class Served(mlflow.pyfunc.PythonModel):
    """Vectors (n, d) -> (n, e), float32."""

    def load_context(self, context: Any) -> None:
        self.translator = load(context.artifacts["translator"])

    def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> np.ndarray:
        return self.translator(model_input)


mlflow.models.set_model(Served())
