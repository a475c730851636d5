"""Policies behind OpenAI-compatible URLs: as people talk to them, and as they are sampled for training and evaluation.

`ChatPolicyServer` passes bodies and streams through, and tells players nothing of the server's address.
`InferenceServer` samples, with token ids and log probabilities where the server adds them. `play_episode` lets model
and environment take turns; `ChatPolicy` does both for an environment in this process.

A token sequence for training holds only tokens that were in a prompt or sampled. A mask is the token itself where the
model sampled it after exactly the tokens before it, and IGNORED elsewhere.
"""

import asyncio
import math
import re
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Final, cast

from pydantic import JsonValue, SecretStr, ValidationError

from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused, Unauthorized, Unavailable
from app.domain.tasks import LARGE_TEXT, Completion, Message, Task, ToolSpec, Turn, is_due_to_prompt, is_truncated
from app.domain.values import find_typical
from app.inference.connection import (
    Connection,
    Credentials,
    Endpoint,
    NoReply,
    OpenReply,
    ServerError,
    ServerReply,
    is_passing,
    parse_server_error,
)
from app.inference.wire import (
    ASKED_BY,
    BAD_CALL,
    ChatCompletion,
    Extension,
    SampledMessage,
    drop_broken_choices,
    find_error,
    holds_messages,
    iterate_events,
    list_errors_of_choices,
    make_finite,
    measure_broken_choices,
    parse_completion,
    parse_models,
    read_answer,
    read_json,
)
from app.ports.environment import Environment
from app.ports.play import ChatBody, Chunk, PolicyServer, ReplyStream

# A policy that people talk to.

_LONGEST_WORDS: Final = 300
_MOST_REPLIES: Final = 64
"""At once; who comes then waits here. Servers queue by themselves: this keeps people who talk from filling one that
also serves a training."""
_END_SECONDS: Final = 0.2
"""For the rest of a stream behind its last event."""
_TOKEN_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_REQUEST_FAULTS: Final = frozenset({400, 413, 422})
"""Statuses that are about the request; all others are between this service and the policy's server."""


class ChatPolicyServer(PolicyServer):
    def __init__(
        self,
        name: str,
        model: str,
        connection: Connection,
        *,
        temperature: float,
        max_output_tokens: int,
        deadline_seconds: float,
        extra_body: Mapping[str, JsonValue],
        continue_body: Mapping[str, JsonValue],
        takes_tools: bool = False,
        max_concurrency: int = _MOST_REPLIES,
    ) -> None:
        self._name = name
        self._model = model
        self._connection = connection
        self._temperature = temperature
        self._most_tokens = max_output_tokens
        self._seconds = deadline_seconds
        self._extra = extra_body
        self._continue = continue_body
        self._takes_tools = takes_tools
        self._slots = asyncio.Semaphore(max_concurrency)
        self._opening: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> str:
        return self._model

    @property
    def takes_tools(self) -> bool:
        return self._takes_tools

    async def open(self) -> None:
        """The client is imported beside the start, so that nobody who talks waits for it."""
        self._opening = asyncio.create_task(self._connection.prepare())

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._connection.aclose()

    async def ask(self, body: ChatBody, *, continues: bool = False) -> Chunk:
        try:
            async with asyncio.timeout(self._seconds), self._slots:
                reply = await self._connection.post(self._complete(body, continues))
        except TimeoutError:
            raise self.fail(f"does not answer within {self._seconds:g} s") from None
        except NoReply as error:
            raise self.fail(f"does not answer: {error.reason}") from None
        if reply.status >= 300:
            raise self._refuse(reply.status, reply.body)
        if len(reply.body) < LARGE_TEXT:
            return self._read(reply.body)
        return await asyncio.to_thread(self._read, reply.body)

    def _read(self, body: bytes) -> Chunk:
        answer = read_answer(body)
        told = find_error(answer)
        if told is not None:
            raise self.fail(f"reports an error: {self._describe(told)}")
        if not holds_messages(answer):
            raise self.fail("did not return a chat completion")
        return self._clean(answer)

    async def stream(self, body: ChatBody, *, continues: bool = False) -> ReplyStream:
        told = body.get("stream_options")
        options = {**(told if isinstance(told, dict) else {}), "include_usage": True}
        asked = self._complete({**body, "stream": True, "stream_options": options}, continues)
        try:
            async with AsyncExitStack() as held:
                async with asyncio.timeout(self._seconds):
                    await self._slots.acquire()
                    held.callback(self._slots.release)
                    reply = await self._connection.open(asked)
                    held.pop_all()  # from here the stream releases the slot
                    stream = _PolicyReplyStream(self, reply, self._slots, self._seconds)
                    held.push_async_callback(stream.close)
                    if reply.status >= 300:
                        raise self._refuse(reply.status, await _read_start(reply))
                    await stream.read_first()
                held.pop_all()
        except TimeoutError:
            raise self.fail(f"does not answer within {self._seconds:g} s") from None
        except NoReply as error:
            raise self.fail(f"does not answer: {error.reason}") from None
        return stream

    def _complete(self, body: ChatBody, continues: bool) -> dict[str, JsonValue]:
        asked = [number for name in _TOKEN_LIMITS if type(number := body.get(name)) is int and number > 0]
        most = min([self._most_tokens, *asked])
        limit = next((name for name in _TOKEN_LIMITS if name in body), _TOKEN_LIMITS[0])
        own = {name: value for name, value in body.items() if name not in _TOKEN_LIMITS and value is not None}
        more = self._continue if continues else {}
        sent = {"temperature": self._temperature, **own, limit: most, **self._extra, **more, "model": self._model}
        return {name: value for name, value in sent.items() if value is not None}

    def _refuse(self, status: int, body: bytes) -> GatewayError:
        told = read_json(body)
        error = parse_server_error(body.decode("utf-8", "replace") if told is None else told)
        words = f"answers {status}: {self._describe(error)}"
        return InvalidRequest(f"the policy {words}") if status in _REQUEST_FAULTS else self.fail(words)

    def _clean(self, answer: object) -> Chunk:
        try:
            return cast(Chunk, make_finite(cast(JsonValue, answer)))
        except RecursionError:
            raise self.fail("did not return a chat completion") from None

    def _describe(self, error: ServerError) -> str:
        words = self._connection.endpoint.credentials.redact(error.message)
        return words[:_LONGEST_WORDS] or "without a reason"

    def fail(self, words: str) -> Unavailable:
        """Without the server's address, which is not for players."""
        return Unavailable(f"the policy {self._name} {words}")

    def check_event(self, event: Chunk) -> Chunk:
        """Unavailable for one that tells of an error."""
        error = find_error(event)
        if error is not None:
            raise self.fail(f"reports an error: {self._describe(error)}")
        return self._clean(event)


class _PolicyReplyStream(ReplyStream):
    """Holds a slot of its server until it is closed."""

    def __init__(self, server: ChatPolicyServer, reply: OpenReply, slots: asyncio.Semaphore, seconds: float) -> None:
        self._server = server
        self._reply = reply
        self._slots = slots
        self._seconds = seconds
        self._events = iterate_events(reply.body)
        self._first: Chunk | None = None
        self._ended = self._closed = False

    async def read_first(self) -> None:
        first = await anext(self._events, None)
        if first is None:
            raise self._server.fail("ended its reply before it began")
        self._first = self._server.check_event(cast(Chunk, first))

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        if self._first is not None:
            yield self._first
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    event = await anext(self._events, None)
            except TimeoutError:
                raise self._server.fail(f"was silent for {self._seconds:g} s") from None
            except NoReply as error:
                raise self._server.fail(f"broke off: {error.reason}") from None
            if event is None:
                self._ended = True
                return
            yield self._server.check_event(cast(Chunk, event))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._slots.release()
            try:
                await self._events.aclose()
                if self._ended:
                    await self._read_end()
            finally:
                await self._reply.close()

    async def _read_end(self) -> None:
        """What a server sends behind the last event, so that the connection serves the next reply too."""
        with suppress(TimeoutError, NoReply):
            async with asyncio.timeout(_END_SECONDS):
                async for _ in self._reply.body:
                    pass


async def _read_start(reply: OpenReply) -> bytes:
    """Enough of an error to say what it is."""
    body = b""
    async for part in reply.body:
        body += part
        if len(body) > 64 * 1024:
            break
    return body


# A policy that is sampled.

_MOST_REFUSAL_CHARACTERS = 300
"""Characters of a server's error message that are passed on."""
_LARGEST_SAMPLES: Final = 256 * 1024 * 1024
"""Bytes of one reply: many long completions with the ids and log probabilities of their tokens."""
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
        limits = [self.parameters.get(name) for name in ("max_completion_tokens", "max_tokens")]
        return next((most for most in limits if isinstance(most, int)), self.max_tokens)

    @property
    def parameters(self) -> dict[str, JsonValue]:
        nucleus: dict[str, JsonValue] = {} if self.top_p is None else {"top_p": self.top_p}
        sent = {"temperature": self.temperature, "max_tokens": self.max_tokens, **nucleus, **self.extra}
        return {name: value for name, value in sent.items() if value is not None}


_DEFAULT_SAMPLING: Final = SamplingParameters()

_LENGTHS: Final = (500, 2_000)
"""Characters, up to which replies are counted together; longer ones are another class."""


@dataclass
class ReplyTally:
    """Replies that came whole, and those that broke off and were asked for again, by the characters that came. Long
    ones break most: where many are drawn anew, what was sampled is shorter than what the model says."""

    whole: list[int] = field(default_factory=lambda: [0] * (len(_LENGTHS) + 1))
    broken: list[int] = field(default_factory=lambda: [0] * (len(_LENGTHS) + 1))

    def add(self, characters: int, *, is_broken: bool) -> None:
        (self.broken if is_broken else self.whole)[sum(characters > most for most in _LENGTHS)] += 1

    def describe(self) -> str:
        """Empty where none broke off."""
        if not any(self.broken):
            return ""
        names = [f"up to {_LENGTHS[0]:,} characters", *(f"up to {most:,}" for most in _LENGTHS[1:]), "of longer ones"]
        shares = [
            f"{broken / (broken + whole):.1%} {name}"
            for name, broken, whole in zip(names, self.broken, self.whole, strict=True)
            if broken + whole
        ]
        asked, again = sum(self.broken) + sum(self.whole), sum(self.broken)
        return f"{again:,} of {asked:,} replies broke off and were asked for again ({', '.join(shares)})"


_MOST_MEASURED: Final = 10_000
"""Newest answers that are measured."""


def _remember_newest() -> deque[float]:
    return deque(maxlen=_MOST_MEASURED)


@dataclass
class LineMeter:
    """How long the server takes for a line, and how many tokens. A request for several lines takes as long as its
    longest."""

    seconds: deque[float] = field(default_factory=_remember_newest)
    completion_tokens: deque[float] = field(default_factory=_remember_newest)
    prompt_tokens: deque[float] = field(default_factory=_remember_newest)

    def add(self, answer: ChatCompletion, seconds: float) -> None:
        lines = len(answer.said)
        self.seconds.extend([seconds] * lines)
        if answer.usage.completion_tokens:
            self.completion_tokens.extend([answer.usage.completion_tokens / lines] * lines)
        if answer.usage.prompt_tokens:
            self.prompt_tokens.append(answer.usage.prompt_tokens)

    def describe(self) -> str:
        """Empty where nothing came."""
        told = (("s", self.seconds, 2), ("tokens", self.completion_tokens, 0), ("prompt tokens", self.prompt_tokens, 0))
        measured = [(unit, typical, digits) for unit, values, digits in told if (typical := find_typical(values))]
        parts = [f"{half:,.{digits}f} {unit} ({most:,.{digits}f})" for unit, (half, most), digits in measured]
        return f"one line, median (95th percentile): {', '.join(parts)}" if parts else ""


QUIET_SECONDS: Final = 30.0
"""After so long without a reply a command says that it waits. Servers queue requests, and tell nobody."""
_CALL_TRIES: Final = 5
"""So often a reply is asked for whose call of a function the server could not read. A model that writes such calls to
this prompt whatever it draws is asked no more: its task is skipped."""


class _BadCall(InvalidRequest):
    pass


class _TooManyChoices(InvalidRequest):
    pass


_NAMES_CHOICES: Final = re.compile(r"['\"`]n['\"`]|\bn must be\b|only one completion choice", re.I)
"""Refusals of `n`: llama.cpp has a choice for each slot, vLLM one for greedy sampling."""


def _refuses_choices(body: bytes) -> bool:
    error = parse_server_error(read_json(body))
    return "n" in error.fields or _NAMES_CHOICES.search(error.message) is not None


@dataclass
class ServerStanding:
    """What requests have found out of a server, and which of them wait for it."""

    most_choices: int = sys.maxsize
    """Of one request."""
    waiting: dict[object, float] = field(default_factory=dict)
    """When each was sent."""

    @contextmanager
    def note_request(self) -> Iterator[None]:
        key = object()
        self.waiting[key] = time.monotonic()
        try:
            yield
        finally:
            del self.waiting[key]

    def describe_wait(self, at_least: float = QUIET_SECONDS) -> str:
        """Empty unless a request has waited so many seconds."""
        longest = time.monotonic() - min(self.waiting.values(), default=math.inf)
        if longest < at_least:
            return ""
        return f"requests without a reply: {len(self.waiting)}, the oldest sent {longest:.0f} s ago"


def _judge_breaks(emptied: Sequence[SampledMessage], broken: Sequence[ServerError]) -> type[GatewayError]:
    """Of choices that all broke off. What a filter took away it takes away again: the same is not asked for without
    end. Beside it another break may pass."""
    if any(error.may_pass for error in broken) or not all(is_due_to_prompt(one.finish_reason) for one in emptied):
        return Unavailable
    return _BadCall if any(BAD_CALL in error.codes for error in broken) else InvalidRequest


@dataclass(frozen=True)
class InferenceServer:
    """`line` limits concurrent requests, `timeout_seconds` each of them."""

    connection: Connection
    model: str
    sampling: SamplingParameters = _DEFAULT_SAMPLING
    extensions: tuple[Extension, ...] = ()
    line: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    timeout_seconds: float = 600.0
    tally: ReplyTally = field(default_factory=ReplyTally)
    meter: LineMeter = field(default_factory=LineMeter)
    standing: ServerStanding = field(default_factory=ServerStanding)

    @property
    def base(self) -> str:
        return self.connection.endpoint.base

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), count: int = 1, seed: int | None = None
    ) -> ChatCompletion:
        """Returns at least one message, `count` where the server gives so many at once and none broke off. Unavailable
        for errors that may pass; RequestRefused, by status, for permanent ones, where a filter left nothing of any
        reply, and for calls of functions that the server could not read, again and again."""
        body: dict[str, JsonValue] = {
            "model": self.model,
            "messages": [message.model_dump(mode="json") for message in messages],
            **self.sampling.parameters,
        }
        for extension in self.extensions:
            body |= ASKED_BY[extension]
        if tools:
            body["tools"] = [tool.model_dump(mode="json") for tool in tools]
        if seed is not None:
            body["seed"] = seed
        while True:
            asked = min(count, self.standing.most_choices)
            try:
                return await self._ask_with_patience({**body, "n": asked} if asked > 1 else body)
            except _TooManyChoices:
                if asked == 1:
                    raise
                self.standing.most_choices = min(self.standing.most_choices, asked // 2)

    async def _ask_with_patience(self, body: Mapping[str, JsonValue]) -> ChatCompletion:
        for _ in range(_CALL_TRIES - 1):
            with suppress(_BadCall):
                return await self._ask_once(body)
        return await self._ask_once(body)

    async def _ask_once(self, body: Mapping[str, JsonValue]) -> ChatCompletion:
        async with self.line:
            with self.standing.note_request():
                began = time.monotonic()
                reply = await self._await_reply(self.connection.post(body))
                seconds = time.monotonic() - began
        if reply.status >= 300:
            refusal = self._refuse(reply.status, f"answers {reply.status}: {reply.body.decode('utf-8', 'replace')}")
            if "n" in body and isinstance(refusal, InvalidRequest) and _refuses_choices(reply.body):
                raise _TooManyChoices(refusal.detail)
            raise refusal
        answer = await self._read_whole(reply.body)
        self.meter.add(answer, seconds)
        return answer

    async def _read_whole(self, body: bytes) -> ChatCompletion:
        """The replies that did not break off."""
        answer = await asyncio.to_thread(read_answer, body)
        for characters in measure_broken_choices(answer):
            self.tally.add(characters, is_broken=True)
        broken = list_errors_of_choices(answer)
        answer = drop_broken_choices(answer)
        told = find_error(answer)
        if told is not None:
            refusal = self._refuse(told.status, f"answers 200 with an error: {told.message or 'without a reason'}")
            raise _BadCall(refusal.detail) if BAD_CALL in told.codes else refusal
        if isinstance(answer, dict) and answer.get("choices") == []:
            raise Unavailable(f"{self.base} answers 200 without a choice")
        try:
            completion = await asyncio.to_thread(parse_completion, answer)
        except ValidationError as error:
            raise Unavailable(f"{self.base} did not return a chat completion") from error
        for one in completion.said:
            self.tally.add(len(one.message.content or ""), is_broken=one.broken_off)
        whole = tuple(one for one in completion.said if not one.broken_off)
        if not whole:
            kind = _judge_breaks(completion.said, broken)
            raise kind(f"{self.base} broke off its reply ({completion.said[0].finish_reason})")
        return replace(completion, said=whole)

    async def hides_tools(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> bool:
        """Whether its chat template leaves these tools out: the prompt has as many tokens with them as without. False
        where the server counts no tokens. Two requests for one token each; errors as those of `ask`."""
        shortest = replace(self, sampling=self.sampling.shortest)
        shown, plain = [(await shortest.ask(messages, given)).usage.prompt_tokens for given in (tools, ())]
        return shown == plain > 0

    async def list_models(self) -> tuple[str, ...] | None:
        """None when the server does not list its models. Unavailable when it does not answer."""
        reply = await self._await_reply(self.connection.get("/models"))
        return parse_models(reply.body) if reply.status < 300 else None

    async def _await_reply(self, reply: Awaitable[ServerReply]) -> ServerReply:
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await reply
        except TimeoutError:
            raise Unavailable(f"{self.base} does not answer within {self.timeout_seconds:g} s") from None
        except NoReply as error:
            raise Unavailable(f"{self.base} does not answer: {error.reason}") from error

    def _refuse(self, status: int | None, said: str) -> GatewayError:
        """`status` is None for an error without one, which may pass."""
        text = self.connection.endpoint.credentials.redact(said)
        words = f"{self.base} {' '.join(text.split())[:_MOST_REFUSAL_CHARACTERS]}"
        if status is None or is_passing(status):
            return Unavailable(words)
        return _REFUSALS.get(status, InvalidRequest)(words)


def open_policy_connection(base_url: str, api_key: SecretStr | None) -> AbstractAsyncContextManager[Connection]:
    """`base_url` excludes `/chat/completions`."""
    return aclosing(Connection(Endpoint(base_url, Credentials(api_key), largest_reply=_LARGEST_SAMPLES)))


# Episodes: model and environment take turns until the environment ends the episode.

Ask = Callable[[Sequence[Message], Sequence[ToolSpec]], Awaitable[SampledMessage]]
Step = Callable[[tuple[Message, ...]], Awaitable[Turn]]
"""Gets all messages after the prompt."""


@dataclass(frozen=True)
class ChatEpisode:
    """`messages` is everything after the prompt; `said` holds the model's messages in order, and `places` their
    indices."""

    messages: tuple[Message, ...]
    said: tuple[SampledMessage, ...]
    places: tuple[int, ...]
    multi_turn: bool

    def add_message(self, message: SampledMessage) -> "ChatEpisode":
        indices = (*self.places, len(self.messages))
        return ChatEpisode((*self.messages, message.message), (*self.said, message), indices, self.multi_turn)

    @property
    def completion(self) -> Completion:
        """As plain text where that is enough."""
        last = self.said[-1]
        if self.multi_turn or last.message.tool_calls:
            return Completion(messages=self.messages, finish_reason=last.finish_reason)
        return Completion(text=last.message.content or "", finish_reason=last.finish_reason)


def build_single_turn(message: SampledMessage) -> ChatEpisode:
    return ChatEpisode((message.message,), (message,), (0,), multi_turn=False)


async def play_episode(
    opening: Sequence[Message], tools: Sequence[ToolSpec], max_turns: int, ask: Ask, step: Step
) -> ChatEpisode:
    """Ends when the environment is done, after `max_turns` model messages, or with a truncated message."""
    now = ChatEpisode((), (), (), multi_turn=True)
    while True:
        message = await ask((*opening, *now.messages), tools)
        if max_turns == 1:
            return build_single_turn(message)
        now = now.add_message(message)
        if is_truncated(message.finish_reason) or len(now.said) >= max_turns:
            return now
        turn = await step(now.messages)
        if turn.done:
            return now
        now = replace(now, messages=(*now.messages, *turn.messages))


# A policy that answers tasks of an environment in this process.


@dataclass(frozen=True)
class ChatPolicy:
    """`base_url` excludes `/chat/completions`."""

    base_url: str
    model: str
    api_key: SecretStr | None = None
    sampling: SamplingParameters = _DEFAULT_SAMPLING
    timeout_seconds: float = 120.0

    async def complete(self, messages: Sequence[Message]) -> str:
        """The text of one reply. Unavailable or RequestRefused, with the server's message."""
        async with open_policy_connection(self.base_url, self.api_key) as connection:
            server = InferenceServer(connection, self.model, self.sampling, timeout_seconds=self.timeout_seconds)
            return (await server.ask(messages)).said[0].message.content or ""

    async def answer(self, environment: Environment, task: Task, count: int) -> list[Completion]:
        """Samples `count` completions concurrently. Unavailable, with the server's message, when it does not answer."""

        async def step(messages: tuple[Message, ...]) -> Turn:
            return environment.step(task, messages)

        async with open_policy_connection(self.base_url, self.api_key) as connection:
            server = InferenceServer(connection, self.model, self.sampling, timeout_seconds=self.timeout_seconds)

            async def ask(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> SampledMessage:
                try:
                    return (await server.ask(messages, tools)).said[0]
                except RequestRefused as error:
                    raise Unavailable(error.detail) from error

            episodes = (play_episode(task.messages, task.tools, task.max_turns, ask, step) for _ in range(count))
            return [episode.completion for episode in await asyncio.gather(*episodes)]


# Token sequences: which tokens of an episode were sampled, with their log probabilities.

IGNORED: Final = -100
"""The mask of a token that is not trained on, the ignore index of cross-entropy losses."""
NO_LOGPROB: Final = 1.0
"""Placeholder for the log probability of such a token; no log probability is above 0."""


@dataclass(frozen=True)
class Exchange:
    """One model message and its exact prompt. `logprobs` are in nats, one per token of `said`; None when unknown."""

    prompt: tuple[int, ...]
    said: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    from_server: bool = True


@dataclass(frozen=True)
class TurnTokens:
    """The tokens of one model message, without repeating those of the messages before it: its exact prompt is the first
    `kept` tokens of the prompt and message before it, then `prompt_ids`."""

    kept: int
    joined: bool
    """Whether all before it was kept; if not, a template or another cut into tokens has rewritten it."""
    from_server: bool
    """False for ids that a local tokenizer made from the text, which may not be those that were sampled."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None


@dataclass(frozen=True)
class TokenSequence:
    """Three lists of equal length. `logprobs` is None when one of a trained token is unknown."""

    tokens: tuple[int, ...] = ()
    masks: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = ()

    @property
    def trained(self) -> int:
        return sum(mask != IGNORED for mask in self.masks)


def build_turns(exchanges: Sequence[Exchange]) -> tuple[TurnTokens, ...]:
    """Nothing is joined that was not sampled so: every exchange can be had from them again, token by token."""
    turns: list[TurnTokens] = []
    before: tuple[int, ...] = ()
    for exchange in exchanges:
        shared = count_shared_prefix(before, exchange.prompt)
        turns.append(
            TurnTokens(
                kept=shared,
                joined=shared == len(before),
                from_server=exchange.from_server,
                prompt_ids=exchange.prompt[shared:],
                completion_ids=exchange.said,
                logprobs=exchange.logprobs,
            )
        )
        before = exchange.prompt + exchange.said
    return tuple(turns)


def build_sequence(exchanges: Iterable[Exchange]) -> TokenSequence:
    """The last exact prompt and its message. Where a prompt differs from the sampled tokens before it (templates that
    drop thoughts, different tokenization), everything after the first difference is untrained context."""
    sequence = TokenSequence()
    for exchange in exchanges:
        sequence = _extend_sequence(sequence, exchange)
    return sequence


def _extend_sequence(before: TokenSequence, exchange: Exchange) -> TokenSequence:
    same = count_shared_prefix(before.tokens, exchange.prompt)
    fresh = len(exchange.prompt) - same
    logprobs = None
    if before.logprobs is not None and exchange.logprobs is not None:
        logprobs = (*before.logprobs[:same], *(NO_LOGPROB,) * fresh, *exchange.logprobs)
    return TokenSequence(
        tokens=(*exchange.prompt, *exchange.said),
        masks=(*before.masks[:same], *(IGNORED,) * fresh, *exchange.said),
        logprobs=logprobs,
    )


def count_shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix of two sequences."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(index for index in range(length) if one[index] != other[index])
