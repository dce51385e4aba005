"""Groups of settings, and the types that several of them have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Host = Annotated[str, Field(min_length=1)]
PORT_MAX = 65_535
Port = Annotated[int, Field(ge=0, le=PORT_MAX)]


class Section(BaseModel):
    """A group of settings. Its docstring introduces it on the configuration page."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True
    )
