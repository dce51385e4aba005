"""The base of all groups of settings, and the kinds of values that several of them have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Host = Annotated[str, Field(min_length=1)]
PORT_MAX = 65_535
Port = Annotated[int, Field(ge=0, le=PORT_MAX)]


class Section(BaseModel):
    """A group of settings. Its docstring introduces it on the configuration page, where each setting is
    described by the string below it (`elanus.server.settings_page`).

    pydantic could read those strings too. It would parse this source at every start of every process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def all_or_none(**files: str) -> None:
    """Raises `ValueError` when some of the files are named and others are not."""
    missing = [name for name, file in files.items() if not file]
    if missing and len(missing) < len(files):
        raise ValueError(
            f"{' and '.join(missing)} must be set too: {', '.join(files)} go together, all of them or none"
        )
