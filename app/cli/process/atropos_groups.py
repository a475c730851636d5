"""Scored groups in the format of Atropos trainers."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, JsonValue

from app.domain.tasks import Completion, Message
from app.domain.values import FiniteNumber, Frozen, Unit
from app.inference.token_sequences import TokenSequence, TurnTokens
from app.service.request_models import HandedOutTask


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
    scores: tuple[Unit, ...]
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
    said = completion.messages or (Message(role="assistant", content=completion.text),)
    return tuple(_dump_message(message) for message in (*opening, *said))


def _dump_message(message: Message) -> dict[str, JsonValue]:
    """`content` is always text: Atropos refuses messages without it."""
    return {**message.model_dump(mode="json"), "content": message.content or ""}
