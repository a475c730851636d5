"""What commands share that ask a policy: options, addresses, prices, rollouts, and the tokens of episodes.

`process` and `evaluate` sample from an OpenAI-compatible server and have the gateway step and score. A
server that is away is asked again as long as the command's patience lasts; one that refuses a task ends this task alone
(`TaskSkipped`); one that would refuse every request ends the command. Token ids are the server's own where it tells
them, else the tokenizer's; log probabilities only ever go with the server's own ids."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from pydantic import SecretStr

from app.domain.errors import GatewayError, InvalidRequest, RequestRefused, Unavailable, UserError
from app.domain.tasks import Completion, Message, ToolSpec, Turn
from app.inference.connection import Connection
from app.inference.policies import (
    QUIET_SECONDS,
    ChatEpisode,
    Exchange,
    InferenceServer,
    build_single_turn,
    open_policy_connection,
    play_episode,
)
from app.inference.tokens import CheckedTurn, LocalTokenizer, TokenCheckTally, check_turn
from app.inference.wire import EXTENSIONS, ChatCompletion, Extension, SampledMessage, Usage
from app.service.requests import HandedOutTask
from app.terminal import ADVANCED
from app.terminal.client import GatewayClient, Retrier, check_url, open_gateway
from app.terminal.consoles import errors

CONNECTIONS: Final = "Connections"
TASKS: Final = "Tasks"
SAMPLING: Final = "Sampling"
COST_AND_CHECKS: Final = "Cost and checks"

PolicyUrl = Annotated[
    str,
    typer.Option(help="URL of the OpenAI-compatible policy server.", rich_help_panel=CONNECTIONS, callback=check_url),
]
PolicyModel = Annotated[str, typer.Option(help="Model name on the policy server.", rich_help_panel=CONNECTIONS)]
PolicyKeyVariable = Annotated[
    str | None, typer.Option(help="Environment variable with the policy API key.", rich_help_panel=CONNECTIONS)
]
GatewayUrl = Annotated[
    str,
    typer.Option(help="Gateway URL.", show_default="from settings", rich_help_panel=CONNECTIONS, callback=check_url),
]
GatewayKey = Annotated[
    str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.", rich_help_panel=CONNECTIONS)
]
PolicyStep = Annotated[int | None, typer.Option(min=0, help="Training step of the policy.", rich_help_panel=TASKS)]
EnvironmentParams = Annotated[str, typer.Option(help="Environment params, as a JSON object.", rich_help_panel=TASKS)]
MaxTokens = Annotated[int, typer.Option(min=1, help="Maximum tokens per completion.", rich_help_panel=SAMPLING)]
Temperature = Annotated[float, typer.Option(min=0, max=2, help="Sampling temperature.", rich_help_panel=SAMPLING)]
TopP = Annotated[
    float | None, typer.Option(min=0, max=1, help="Nucleus sampling probability (top_p).", rich_help_panel=ADVANCED)
]
ExtraFields = Annotated[
    str, typer.Option(help="Extra request fields, as a JSON object; null removes a field.", rich_help_panel=ADVANCED)
]
Concurrency = Annotated[
    int, typer.Option(min=1, max=4096, help="Concurrent requests to the policy server.", rich_help_panel=ADVANCED)
]
StoreTokens = Annotated[
    bool,
    typer.Option(
        "--store-tokens",
        help="Store token ids and log probabilities of single answers in the gateway too.",
        rich_help_panel=ADVANCED,
    ),
]
CheckTokens = Annotated[
    bool,
    typer.Option(
        "--check-tokens",
        help="Count where --tokenizer gives other token ids than the server reported.",
        rich_help_panel=ADVANCED,
    ),
]
InputPrice = Annotated[
    float | None,
    typer.Option(min=0, help="Price in US dollars per million prompt tokens.", rich_help_panel=COST_AND_CHECKS),
]
OutputPrice = Annotated[
    float | None,
    typer.Option(min=0, help="Price in US dollars per million completion tokens.", rich_help_panel=COST_AND_CHECKS),
]


def require_tokenizer(checks_tokens: bool, tokenizer: Path | None) -> None:
    """UserError for `--check-tokens` without one."""
    if checks_tokens and tokenizer is None:
        raise UserError("--check-tokens needs --tokenizer: the model's tokenizer.json")


# Addresses.

GATEWAY_SECONDS: Final = 600.0
"""Judging may be slow; a repeated request joins the scoring in progress."""


@dataclass(frozen=True)
class Endpoints:
    gateway: str
    gateway_key: str
    policy: str
    policy_key: SecretStr | None
    out: Path
    """Output path."""

    @asynccontextmanager
    async def open_clients(self, at_once: int) -> AsyncIterator[tuple[GatewayClient, Connection]]:
        async with (
            open_gateway(self.gateway, self.gateway_key, GATEWAY_SECONDS, at_once=at_once) as gateway,
            open_policy_connection(self.policy, self.policy_key) as policy,
        ):
            yield gateway, policy


# Prices.


@dataclass(frozen=True)
class PolicyPrices:
    """US dollars per million tokens; None where unknown."""

    input: float | None = None
    output: float | None = None

    def compute_cost(self, usage: Usage) -> float | None:
        if self.input is None or self.output is None:
            return None
        return (usage.prompt_tokens * self.input + usage.completion_tokens * self.output) / 1e6


# Rollouts.

POLICY: Final = "the policy's server"
GATEWAY: Final = "the gateway"

_T = TypeVar("_T")

_Seeds = Callable[[int], int | None]
"""Sampling seed by turn; None for the server's default."""


def _use_no_seed(turn: int) -> None:
    return None


class TaskSkipped(GatewayError):
    """The task yields no group. `reason` is the key for counts; `answered`: its lease is settled."""

    def __init__(self, reason: str, detail: str, *, answered: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.answered = answered


@dataclass
class ToolCheck:
    """Looks once, at the first task with tools, whether the policy sees any, and says so where it does not: such a
    policy calls none, and nothing else tells why."""

    server: InferenceServer
    say: Callable[[str], None]
    _begun: bool = False

    async def check_task(self, task: HandedOutTask, patience: Retrier) -> None:
        if self._begun or not task.tools:
            return
        self._begun = True
        ask = partial(self.server.hides_tools, task.messages, task.tools)
        with suppress(GatewayError):  # it befalls the task too, which tells of it
            if await patience.retry_until_answered(POLICY, ask):
                self.say(
                    f"The chat template of {self.server.model} shows no tools: a prompt of {task.environment} counts "
                    "as many tokens with them as without. Use another template, or `tool_format: hermes` in the params "
                    "of the environment, which writes tools into the prompt (`npc_arena`: `actions: without`)."
                )


@dataclass(frozen=True)
class RolloutPlayer:
    """`note` receives usage and seconds of every answer. Raises TaskSkipped when a server refuses the task or the
    policy server stays unavailable, and RequestRefused when every request would be refused."""

    server: InferenceServer
    gateway: GatewayClient
    patience: Retrier
    note: Callable[[Usage, float], None]
    tools: ToolCheck

    async def sample_single(self, task: HandedOutTask, count: int) -> list[ChatEpisode]:
        """Episodes of a single-turn task."""
        await self.tools.check_task(task, self.patience)
        return [build_single_turn(message) for message in await self._sample_messages(task.messages, task.tools, count)]

    async def play_episode(self, task: HandedOutTask, seeds: _Seeds = _use_no_seed) -> ChatEpisode:
        await self.tools.check_task(task, self.patience)
        turns = 0

        async def ask(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> SampledMessage:
            nonlocal turns
            turns += 1
            return (await self._sample_messages(messages, tools, 1, seeds(turns - 1)))[0]

        async def step(messages: tuple[Message, ...]) -> Turn:
            try:
                return await self.patience.retry_until_answered(
                    GATEWAY, lambda: self.gateway.step(task.environment, task.task_id, messages)
                )
            except RequestRefused as error:
                raise TaskSkipped("step_refused", error.detail) from error

        return await play_episode(task.messages, task.tools, task.max_turns, ask, step)

    async def _sample_messages(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], count: int, seed: int | None = None
    ) -> list[SampledMessage]:
        """Repeats the request for servers without support for `n`."""
        samples: list[SampledMessage] = []
        while len(samples) < count:
            samples += (await self._request_answer(messages, tools, count - len(samples), seed)).said
        return samples[:count]

    async def _request_answer(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], count: int, seed: int | None
    ) -> ChatCompletion:
        async def ask() -> ChatCompletion:
            began = time.monotonic()
            answer = await self.server.ask(messages, tools, count, seed)
            self.note(answer.usage, time.monotonic() - began)
            return answer

        try:
            return await self.patience.retry_until_answered(POLICY, ask)
        except InvalidRequest as error:
            raise TaskSkipped("policy_refused", error.detail) from error
        except Unavailable as error:
            raise TaskSkipped("policy_failed", error.detail) from error


async def gather_or_cancel(coroutines: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Results in order; when one fails, the others are cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def require_model(server: InferenceServer) -> None:
    """Unavailable when the server does not answer; InvalidRequest when it does not list the model."""
    models = await server.list_models()
    if models is not None and server.model not in models:
        available = ", ".join(sorted(models)[:20]) or "none"
        raise InvalidRequest(f"{server.base} has no model {server.model!r}; available: {available}", field="--model")


# Tokens: what the policy server told, and what the texts give again.


async def probe_server(
    server: InferenceServer, patience: Retrier, quiet_seconds: float = QUIET_SECONDS
) -> tuple[tuple[Extension, ...], SampledMessage]:
    """The server's supported extensions, and its reply to a request for one token. A server that is there but busy is
    waited for, and after `quiet_seconds` without a reply that is said. Unavailable when it does not answer;
    RequestRefused when it refuses even a plain request, NotFound for an unknown model."""
    await require_model(server)
    hello = (Message(role="user", content="Hello."),)
    refused: RequestRefused | None = None
    for extensions in EXTENSIONS:  # from the most to none: a server that knows none of them answers the last
        asked = InferenceServer(server.connection, server.model, server.sampling.shortest, extensions)
        try:
            return extensions, (
                await patience.retry_until_answered(POLICY, _tell_wait(partial(asked.ask, hello), quiet_seconds))
            ).said[0]
        except InvalidRequest as error:
            refused = error
    raise refused or Unavailable(f"{server.base} was not asked")


def _tell_wait(ask: Callable[[], Coroutine[Any, Any, _T]], quiet_seconds: float) -> Callable[[], Awaitable[_T]]:
    """Says once what is waited for: no progress is shown yet."""
    told = False

    def tell(why: str) -> None:
        nonlocal told
        if not told:
            errors.print(f"waiting for {POLICY}: {why}", highlight=False, markup=False)
        told = True

    async def ask_and_tell() -> _T:
        asking = asyncio.create_task(ask())
        try:
            done, _ = await asyncio.wait({asking}, timeout=quiet_seconds)
            if not done:
                tell(f"no reply for {quiet_seconds:g} s; it may be busy with other requests")
            return await asking
        except Unavailable as error:
            tell(error.detail)
            raise
        finally:
            asking.cancel()

    return ask_and_tell


def list_policy_waits(server: InferenceServer) -> list[str]:
    """For the progress: what the policy's server has not answered for long."""
    wait = server.standing.describe_wait()
    return [f"waiting for {POLICY}: {wait}"] if wait else []


def describe_missing_ids(reply: SampledMessage) -> str:
    """Of a server whose reply `has_tokens` is not."""
    return "returns no token ids" if reply.ids is None else "returns the token ids of replies, but not of prompts"


def build_exchanges(task: HandedOutTask, episode: ChatEpisode, tokenizer: LocalTokenizer | None) -> list[Exchange]:
    """Token ids that the server did not return come from the tokenizer; UserError when there is none. The server's log
    probabilities are used with its own tokens only."""
    return [
        _build_exchange(task, (*task.messages, *episode.messages[:index]), message, tokenizer)
        for message, index in zip(episode.said, episode.places, strict=True)
    ]


def _build_exchange(
    task: HandedOutTask, before: Sequence[Message], message: SampledMessage, tokenizer: LocalTokenizer | None
) -> Exchange:
    if tokenizer is None and not message.has_tokens:
        raise UserError(f"the policy's server {describe_missing_ids(message)}: set --tokenizer")
    prompt, ids = message.prompt_ids, message.ids
    if tokenizer is not None:
        prompt = tokenizer.encode_prompt(before, task.tools) if prompt is None else prompt
        ids = tokenizer.encode_reply(before, task.tools, message) if ids is None else ids
    return Exchange(prompt or (), ids or (), message.logprobs, from_server=message.has_tokens)


@dataclass(frozen=True)
class TokenCheck:
    """Counts where tokenising the text again gives other ids than the server told."""

    tokenizer: LocalTokenizer
    tally: TokenCheckTally = field(default_factory=TokenCheckTally)

    @classmethod
    def begin(cls, tokenizer: LocalTokenizer | None, *, checks: bool) -> "TokenCheck | None":
        return cls(tokenizer) if checks and tokenizer is not None else None

    async def add_episodes(self, task: HandedOutTask, episodes: Sequence[ChatEpisode]) -> None:
        for turn in await asyncio.to_thread(lambda: list(self._check_turns(task, episodes))):
            self.tally.add_turn(task.task_id, turn)

    def _check_turns(self, task: HandedOutTask, episodes: Sequence[ChatEpisode]) -> Iterator[CheckedTurn | None]:
        for episode in episodes:
            for message, index in zip(episode.said, episode.places, strict=True):
                yield check_turn(self.tokenizer, (*task.messages, *episode.messages[:index]), task.tools, message)


def add_token_ids(episode: ChatEpisode) -> Completion:
    """With the server's own ids, for one message: those of several are no single text of the model."""
    message = episode.said[-1]
    if len(episode.said) != 1 or message.ids is None:
        return episode.completion
    return episode.completion.model_copy(update={"token_ids": message.ids, "logprobs": message.logprobs})
