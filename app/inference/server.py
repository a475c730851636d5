"""A client of servers with OpenAI-compatible chat completions."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import JsonValue, SecretStr, ValidationError

from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused, Unauthorized, Unavailable
from app.domain.tasks import Message, ToolSpec
from app.inference.connection import Connection
from app.inference.credentials import Credentials
from app.inference.endpoint import Endpoint, NoReply, Reply
from app.inference.wire import ASKED_BY, ChatCompletion, Extension, parse_completion, parse_models

_MOST_REFUSAL_CHARACTERS = 300
"""Characters of a server's error message that are passed on."""
LARGEST_SAMPLES: Final = 256 * 1024 * 1024
"""Bytes of one reply: many long completions with the ids and log probabilities of their tokens."""
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
    """`line` limits concurrent requests, `timeout_seconds` each of them."""

    connection: Connection
    model: str
    sampling: SamplingParameters = DEFAULT_SAMPLING
    extensions: tuple[Extension, ...] = ()
    line: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    timeout_seconds: float = 600.0

    @property
    def base(self) -> str:
        return self.connection.endpoint.base

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
        async with self.line:
            reply = await self._await_reply(self.connection.post(body))
        if reply.status >= 300:
            raise self._build_refusal(reply)
        try:
            return await asyncio.to_thread(parse_completion, reply.body)
        except ValidationError as error:
            raise Unavailable(f"{self.base} did not return a chat completion") from error

    async def list_models(self) -> tuple[str, ...] | None:
        """None when the server does not list its models. Unavailable when it does not answer."""
        reply = await self._await_reply(self.connection.get("/models"))
        return parse_models(reply.body) if reply.status < 300 else None

    async def _await_reply(self, reply: Awaitable[Reply]) -> Reply:
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await reply
        except TimeoutError:
            raise Unavailable(f"{self.base} does not answer within {self.timeout_seconds:g} s") from None
        except NoReply as error:
            raise Unavailable(f"{self.base} does not answer: {error.reason}") from error

    def _build_refusal(self, reply: Reply) -> GatewayError:
        status, text = reply.status, self.connection.endpoint.credentials.redact(reply.body.decode("utf-8", "replace"))
        words = f"{self.base} answers {status}: {' '.join(text.split())[:_MOST_REFUSAL_CHARACTERS]}"
        if status >= 500 or status in _RETRYABLE_STATUSES or status < 400:
            return Unavailable(words)
        return _REFUSALS.get(status, InvalidRequest)(words)


def open_policy_connection(base_url: str, api_key: SecretStr | None) -> AbstractAsyncContextManager[Connection]:
    """`base_url` excludes `/chat/completions`."""
    return aclosing(Connection(Endpoint(base_url, Credentials(api_key), largest_reply=LARGEST_SAMPLES)))
