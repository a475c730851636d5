"""A client of servers with OpenAI-compatible chat completions."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

import httpx
from pydantic import JsonValue, SecretStr, ValidationError

from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused, Unauthorized, Unavailable
from app.domain.tasks import Message, ToolSpec
from app.inference.wire import ASKED_BY, ChatCompletion, Extension, parse_completion, parse_models

_MOST_REFUSAL_CHARACTERS = 300
"""Characters of a server's error message that are passed on."""
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
_REFUSALS: dict[int, type[RequestRefused]] = {401: Unauthorized, 403: Unauthorized, 404: NotFound}


@dataclass(frozen=True)
class SamplingParameters:
    temperature: float = 1.0
    max_tokens: int = 512
    top_p: float | None = None
    extra: Mapping[str, JsonValue] = field(default_factory=dict)
    """Added to every request. Null removes a parameter."""

    @property
    def shortest(self) -> "SamplingParameters":
        return replace(self, max_tokens=1)

    @property
    def limit(self) -> int:
        """Most tokens of an answer, under either parameter name."""
        told = [self.parameters.get(name) for name in ("max_completion_tokens", "max_tokens")]
        return next((most for most in told if isinstance(most, int)), self.max_tokens)

    @property
    def parameters(self) -> dict[str, JsonValue]:
        nucleus: dict[str, JsonValue] = {} if self.top_p is None else {"top_p": self.top_p}
        sent = {"temperature": self.temperature, "max_tokens": self.max_tokens, **nucleus, **self.extra}
        return {name: value for name, value in sent.items() if value is not None}


DEFAULT_SAMPLING: Final = SamplingParameters()


@dataclass(frozen=True)
class InferenceServer:
    """`base_url` excludes `/chat/completions`. `line` limits concurrent requests."""

    client: httpx.AsyncClient
    base_url: str
    model: str
    sampling: SamplingParameters = DEFAULT_SAMPLING
    extensions: tuple[Extension, ...] = ()
    line: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)

    @property
    def base(self) -> str:
        return self.base_url.rstrip("/")

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), count: int = 1, seed: int | None = None
    ) -> ChatCompletion:
        """Returns at least one message, `count` where the server supports it. Unavailable for errors that may pass;
        RequestRefused, by status, for permanent ones."""
        body: dict[str, JsonValue] = {
            "model": self.model,
            "messages": [message.model_dump(mode="json") for message in messages],
            **self.sampling.parameters,
        }
        for extension in self.extensions:
            body |= ASKED_BY[extension]
        if tools:
            body["tools"] = [tool.model_dump(mode="json") for tool in tools]
        if count > 1:
            body["n"] = count
        if seed is not None:
            body["seed"] = seed
        try:
            async with self.line:
                reply = await self.client.post(f"{self.base}/chat/completions", json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{self.base} does not answer: {error or type(error).__name__}") from error
        if not reply.is_success:
            raise self._build_refusal(reply)
        try:
            return await asyncio.to_thread(parse_completion, reply.content)
        except ValidationError as error:
            raise Unavailable(f"{self.base} did not return a chat completion") from error

    async def list_models(self) -> tuple[str, ...] | None:
        """None when the server does not list its models. Unavailable when it does not answer."""
        try:
            reply = await self.client.get(f"{self.base}/models")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{self.base} does not answer: {error or type(error).__name__}") from error
        return parse_models(reply.content) if reply.is_success else None

    def _build_refusal(self, reply: httpx.Response) -> GatewayError:
        status, told = reply.status_code, " ".join(reply.text.split())[:_MOST_REFUSAL_CHARACTERS]
        words = f"{self.base} answers {status}: {told}"
        if status >= 500 or status in _RETRYABLE_STATUSES or status < 400:
            return Unavailable(words)
        return _REFUSALS.get(status, InvalidRequest)(words)


def build_bearer_headers(key: SecretStr | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
