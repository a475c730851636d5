"""Scored groups in the format of Atropos 0.4.0, and the environment's side of its API: registration, queue, groups."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import httpx
from pydantic import BaseModel, Field, JsonValue

from app.domain.errors import InvalidRequest, Unavailable
from app.domain.faults import explain_connection
from app.domain.tasks import Completion, Message
from app.domain.values import FiniteNumber, Frozen
from app.inference.policies import TokenSequence, TurnTokens
from app.service.requests import HandedOutTask
from app.terminal.client import Retrier

# Groups.


def _is_absent(value: object) -> bool:
    return value is None


class SampledCompletion(Frozen):
    """One completion with its tokens, prompt included."""

    completion: Completion
    sequence: TokenSequence | None
    """None where only the text is known."""
    turns: tuple[TurnTokens, ...] = ()
    """The same by message; empty where only the text is known, and from journals of earlier versions."""


class AtroposGroup(Frozen):
    """Fields of Atropos 0.4.0, without unknown ones. Lists have one item per completion."""

    tokens: Annotated[tuple[tuple[int, ...], ...] | None, Field(exclude_if=_is_absent)] = None
    """Absent, as are the masks, where only the texts are known; a trainer needs them."""
    masks: Annotated[tuple[tuple[int, ...], ...] | None, Field(exclude_if=_is_absent)] = None
    """The token, or -100 where it is not trained."""
    scores: tuple[FiniteNumber, ...]
    inference_logprobs: tuple[tuple[FiniteNumber, ...], ...]
    """1.0 where not trained. Empty if any is unknown, never null: the example trainer fails on null."""
    messages: tuple[tuple[dict[str, JsonValue], ...], ...]
    generation_params: dict[str, JsonValue]
    env_id: Annotated[int | None, Field(exclude_if=_is_absent)] = None


class GroupLine(Frozen):
    """One line of the output file: the group's fields after their origin."""

    task_id: str
    group_id: str
    environment: str
    turns: Annotated[tuple[tuple[TurnTokens, ...], ...] | None, Field(exclude_if=_is_absent)] = None
    """By completion, then by message of the model. Not sent to trainers."""
    group: AtroposGroup

    def as_json(self) -> bytes:
        """One JSON object without a line break."""
        own = self.model_dump_json(exclude={"group"}).encode()
        return own[:-1] + b"," + self.group.model_dump_json().encode()[1:]


def build_group_line(
    task: HandedOutTask,
    samples: Sequence[SampledCompletion],
    group_id: str,
    rewards: Sequence[float],
    generation_params: dict[str, JsonValue],
) -> GroupLine:
    """`rewards` in the order of `samples`."""
    sequences = [sample.sequence for sample in samples if sample.sequence is not None]
    tokens_known = len(sequences) == len(samples)
    logprobs = [sequence.logprobs for sequence in sequences if sequence.logprobs is not None]
    group = AtroposGroup(
        tokens=tuple(sequence.tokens for sequence in sequences) if tokens_known else None,
        masks=tuple(sequence.masks for sequence in sequences) if tokens_known else None,
        scores=tuple(rewards),
        inference_logprobs=tuple(logprobs) if len(logprobs) == len(samples) else (),
        messages=tuple(_build_conversation(task.messages, sample.completion) for sample in samples),
        generation_params=generation_params,
    )
    turns = tuple(sample.turns for sample in samples)
    return GroupLine(
        task_id=task.task_id,
        group_id=group_id,
        environment=task.environment,
        turns=turns if all(turns) else None,
        group=group,
    )


def _build_conversation(opening: Sequence[Message], completion: Completion) -> tuple[dict[str, JsonValue], ...]:
    answers = completion.messages or (Message(role="assistant", content=completion.text),)
    return tuple(_dump_message(message) for message in (*opening, *answers))


def _dump_message(message: Message) -> dict[str, JsonValue]:
    """`content` is always text: Atropos refuses messages without it."""
    return {**message.model_dump(mode="json"), "content": message.content or ""}


# The trainer.

TRAINER: Final = "the Atropos API"
"""Its name where a command says what it waits for."""
_POLL_SECONDS: Final = 1.0
"""Between looks at the queue while it is full."""


class _Registration(BaseModel):
    status: str
    env_id: int | None = None


class _Info(BaseModel):
    batch_size: int
    max_token_len: int


class _Status(BaseModel):
    queue_size: int


@dataclass(frozen=True)
class AtroposApi:
    """`client` has the API's address as its base."""

    client: httpx.AsyncClient

    async def register(self, name: str, group_size: int, weight: float, max_tokens: int) -> int:
        """The environment id. Unavailable while no trainer has started."""
        body: JsonValue = {
            "max_token_length": max_tokens,
            "desired_name": name,
            "weight": weight,
            "group_size": group_size,
            "min_batch_allocation": None,
        }
        registration = _Registration.model_validate_json(await self._send_request("POST", "register-env", body))
        if registration.env_id is None:
            raise Unavailable(f"{self.client.base_url}: {registration.status}")
        return registration.env_id

    async def fetch_info(self) -> tuple[int, int]:
        """The trainer's batch size and its limit of tokens per sequence (exclusive; 0 or less for none)."""
        info = _Info.model_validate_json(await self._send_request("GET", "info"))
        return info.batch_size, info.max_token_len

    async def count_queued(self, env_id: int) -> int:
        """Number of groups queued for the trainer."""
        return _Status.model_validate_json(await self._send_request("GET", "status-env", {"env_id": env_id})).queue_size

    async def post_group(self, group: str) -> None:
        await self._send_request("POST", "scored_data", group.encode())

    async def _send_request(self, method: str, path: str, body: JsonValue | bytes = None) -> bytes:
        """Unavailable without an answer or with 5xx; InvalidRequest with the server's message when it refuses."""
        base = self.client.base_url
        encoded = body if isinstance(body, bytes) else None  # a group, which is encoded already
        plain = None if isinstance(body, bytes) else body
        headers = {} if encoded is None else {"Content-Type": "application/json"}
        try:
            reply = await self.client.request(method, path, json=plain, content=encoded, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"cannot reach the Atropos API at {base}: {explain_connection(error)}") from error
        if reply.is_success:
            return reply.content
        words = f"{base}{path} returned {reply.status_code}: {' '.join(reply.text.split())[:300]}"
        is_temporary = reply.status_code >= 500 or reply.status_code in {408, 429}
        raise Unavailable(words) if is_temporary else InvalidRequest(words)


@dataclass(frozen=True)
class AtroposOutput:
    """After a crash a group may be posted twice, byte for byte the same; the gateway's API stores it once."""

    api: AtroposApi
    patience: Retrier
    env_id: int
    batch_size: int
    group_size: int
    longest: int
    """Maximum tokens per sequence (exclusive); 0 or less for none."""
    batches_ahead: int

    async def wait_until_ready(self) -> None:
        """Pauses while `batches_ahead` batches are queued, as Atropos' own environments do."""
        while await self._count_queued() * self.group_size >= self.batches_ahead * self.batch_size > 0:
            self.patience.note_waiting("the trainer", f"{self.batches_ahead} batches are queued", waits=True)
            await asyncio.sleep(_POLL_SECONDS)
        self.patience.note_waiting("the trainer", "", waits=False)

    async def put(self, line: GroupLine) -> str | None:
        if any(0 < self.longest <= len(tokens) for tokens in line.group.tokens or ()):
            return "too_long"
        group = line.group.model_copy(update={"env_id": self.env_id}).model_dump_json()
        await self.patience.retry_until_answered(TRAINER, lambda: self.api.post_group(group))
        return None

    async def _count_queued(self) -> int:
        return await self.patience.retry_until_answered(TRAINER, lambda: self.api.count_queued(self.env_id))
