"""What every row is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Row(BaseModel):
    """One row of one table: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
