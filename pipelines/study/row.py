"""What every row is."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Of a translator's inverted softmax, in place of its own: higher ranks better, lower is nearer in cosine, 0 is the linear map.
HubCorrection = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]


class Row(BaseModel):
    """One row of one table: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
