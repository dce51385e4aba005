"""The settings of functions: where the providers of vectors are, and their keys."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, model_validator

from elanus.server.settings_base import Section


class ProviderSettings(Section):
    """A provider that turns texts into vectors."""

    url: str = Field(default="", pattern=r"^(https?://[^@]+)?$")
    """The address of the provider, http or https; without a value, its public one."""
    api_key: SecretStr = SecretStr("")
    """The API key for the provider, best set in the environment. It is never shown or stored in metadata."""
    api_key_file: str = ""
    """A file that holds the key, instead of `api_key`. It is read for each request, so the key may be
    replaced."""

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if self.api_key.get_secret_value() and self.api_key_file:
            raise ValueError("api_key and api_key_file are set: leave one of them out")
        return self


class FunctionSettings(Section):
    """TextEmbedding functions, whose vectors providers compute (docs/embedding.md)."""

    openai: ProviderSettings = ProviderSettings()
    azure_openai: ProviderSettings = ProviderSettings()
    cohere: ProviderSettings = ProviderSettings()
    voyageai: ProviderSettings = ProviderSettings()
    siliconflow: ProviderSettings = ProviderSettings()
    tei: ProviderSettings = ProviderSettings()
    timeout_s: float = Field(default=30.0, gt=0, le=3600)
    """How long a client's request waits for the vectors of all its texts."""
    texts_max: int = Field(default=1024, ge=1, le=16_384)
    """The maximum number of texts in one client's request that a provider embeds. They are sent to it in
    as many requests as its limits require."""
    calls_max: int = Field(default=16, ge=1, le=1024)
    """How many requests of clients may wait for providers at a time on each proxy; further ones are
    refused with an error that clients retry. Each occupies one of `proxy.workers`."""
    client_endpoints: bool = True
    """Whether a function may name the address of its provider (`endpoint`). The server then sends texts
    there, as any user who may create collections wants, but never a key."""
