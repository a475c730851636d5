"""Settings of servers of models: what judges and policies share, and policies."""

import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, JsonValue, SecretStr

from app.domain.values import Frozen

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_OWN_HEADERS: Final = frozenset(
    ("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding")
)
_POLICY_PARAMETERS: Final = frozenset(("messages", "model", "stream", "n"))


def _check_extra_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        if name.casefold() in _OWN_HEADERS:
            raise ValueError(f"{name!r} is set by the service")
        if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
            raise ValueError(f"the value of {name!r} is empty, or has characters that no header can hold")
    if len({name.casefold() for name in headers}) < len(headers):
        raise ValueError("two names differ in their case alone")
    return headers


def _check_policy_body(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name in body:
        if name in _POLICY_PARAMETERS:
            raise ValueError(f"{name!r} is set by the service")
    return body


class ServerSettings(Frozen):
    base_url: str
    """Of an OpenAI-compatible API, ending in `/v1` for most servers. Of a reward model's server: without a path."""
    model: str
    """As that API names it."""
    api_key_env: str | None = None
    """The variable that holds the key; none for servers that need no key."""
    api_key_file: Path | None = None
    """The file that holds the key, such as a mounted secret, in place of `api_key_env`. It is read again when it
    changes."""
    extra_headers: Annotated[dict[str, SecretStr], AfterValidator(_check_extra_headers)] = {}
    """Further headers of each request. Their values are never shown."""
    api_version: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+$")] | None = None
    """Of Azure OpenAI, such as `2024-10-21`: `base_url` is then the resource, such as
    `https://name.openai.azure.com`, and `model` the deployment. None for every other server, and for Azure's own
    `/openai/v1`."""


class PolicySettings(ServerSettings):
    """A model that people talk to, trained here or not."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Where the client asks for none."""
    max_output_tokens: Annotated[int, Field(ge=1)] = 512
    """The longest reply, also where the client asks for more."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """The longest that a reply may take, and a stream be silent."""
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_check_policy_body)] = {}
    """Further fields of each request, such as `chat_template_kwargs`. They replace what the client asks for."""
    continue_body: dict[str, JsonValue] = {"add_generation_prompt": False, "continue_final_message": True}
    """Further fields of requests that continue a reply, whose beginning stands last: as vLLM and SGLang take them. `{}`
    for a server that refuses them."""
    max_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Replies at once; who comes then waits."""
