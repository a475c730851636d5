"""Row models of exports. Prompts and completions are always lists of messages."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, JsonValue

from app.domain.digests import canonical_json
from app.domain.exports import StoredGroup
from app.domain.groups import Rollout
from app.domain.tasks import Message, ToolSpec
from app.domain.values import FiniteNumber, Frozen, is_encodable


def _absent(value: object) -> bool:
    return value is None or value == ()


class SaidFunction(Frozen):
    name: str
    arguments: str
    """Arguments as a JSON string, since different functions share no columns."""


class SaidCall(Frozen):
    id: str | None = None
    type: str = "function"
    function: SaidFunction


class Said(Frozen):
    """A message in OpenAI's chat format. Absent fields are omitted in JSON lines and null in Parquet."""

    role: str
    content: str
    name: Annotated[str | None, Field(exclude_if=_absent)] = None
    tool_calls: Annotated[tuple[SaidCall, ...], Field(exclude_if=_absent)] = ()
    tool_call_id: Annotated[str | None, Field(exclude_if=_absent)] = None
    reasoning_content: Annotated[str | None, Field(exclude_if=_absent)] = None


class Valued(Frozen):
    """One criterion of a score."""

    name: str
    value: FiniteNumber | None
    weight: FiniteNumber


class Origin(Frozen):
    """Origin of a row. Missing texts are empty, so that every row has the same columns."""

    group_id: str
    task_id: str
    environment: str
    version: str
    split: str
    task_label: str
    """Statistics label, such as a character, category or level."""
    run: str
    policy: str
    """Name of the trained model."""
    step: int | None
    """Training step of the model."""
    created_at: str
    """ISO 8601, UTC."""


class RolloutRow(Origin):
    rollout_id: str
    purpose: str
    prompt: tuple[Said, ...]
    tools: str
    """OpenAI tool specifications as a JSON string; `[]` without tools."""
    completion: tuple[Said, ...]
    finish_reason: str
    outcome: str
    reason: str
    """Why the rollout is unscored."""
    reward: FiniteNumber | None
    value: FiniteNumber | None
    """Gate x absolute."""
    gate: FiniteNumber | None
    """0 when a gate failed, else 1."""
    absolute: FiniteNumber | None
    """Quality by itself: the verifier's score, or the judges' absolute score."""
    relative: FiniteNumber | None
    """Quality relative to the group."""
    criteria: tuple[Valued, ...]
    flags: tuple[str, ...]
    judges: tuple[str, ...]
    scoring_digest: str


class PrivateRow(RolloutRow):
    """A rollout with fields that the policy never saw."""

    rationale: str
    notes: str
    """Notes of the criteria, by name, as JSON."""
    context: str
    """Retrieved and withheld passages, as JSON; empty without retrieval."""


class SftRow(Origin):
    """TRL's conversational prompt-completion format, plus columns that TRL ignores."""

    rollout_id: str
    prompt: tuple[Said, ...]
    completion: tuple[Said, ...]
    tools: str
    value: FiniteNumber


class DpoRow(Origin):
    """TRL's conversational preference format."""

    prompt: tuple[Said, ...]
    chosen: tuple[Said, ...]
    rejected: tuple[Said, ...]
    tools: str
    chosen_id: str
    rejected_id: str
    chosen_reward: FiniteNumber
    rejected_reward: FiniteNumber


class KtoRow(Origin):
    """TRL's unpaired preference format."""

    rollout_id: str
    prompt: tuple[Said, ...]
    completion: tuple[Said, ...]
    label: bool
    """Whether the completion is desirable."""
    tools: str
    value: FiniteNumber


Row = RolloutRow | SftRow | DpoRow | KtoRow


def value_of(rollout: Rollout) -> float | None:
    """gate x `absolute`, or gate x reward without an absolute part; None without a score."""
    score = rollout.score
    if score.outcome != "scored":
        return None
    absolute = score.reward if score.absolute is None else score.absolute
    return None if absolute is None else (1.0 if score.gate is None else score.gate) * absolute


def origin_of(stored: StoredGroup) -> Origin:
    group, key = stored.group, stored.task.key
    return Origin(
        group_id=group.group_id,
        task_id=group.task_id,
        environment=group.environment,
        version=key.version,
        split=key.split,
        task_label=stored.task.label or "",
        run=group.run or "",
        policy=group.policy.model if group.policy else "",
        step=group.policy.step if group.policy else None,
        created_at=group.created_at.isoformat(),
    )


def rollout_row(stored: StoredGroup, rollout: Rollout, *, private: bool) -> RolloutRow:
    score = rollout.score
    row = RolloutRow(
        **dict(origin_of(stored)),
        rollout_id=rollout.rollout_id,
        purpose=stored.group.purpose,
        prompt=prompt_of(stored),
        tools=tools_of(stored),
        completion=completion_of(rollout),
        finish_reason=written(rollout.completion.finish_reason or ""),
        outcome=score.outcome,
        reason=score.reason or "",
        reward=score.reward,
        value=value_of(rollout),
        gate=score.gate,
        absolute=score.absolute,
        relative=score.relative,
        criteria=tuple(Valued(name=one.name, value=one.value, weight=one.weight) for one in score.criteria),
        flags=(*stored.group.flags, *score.flags),
        judges=score.judges,
        scoring_digest=score.scoring_digest,
    )
    return _private(row, stored, rollout) if private else row


def _private(row: RolloutRow, stored: StoredGroup, rollout: Rollout) -> PrivateRow:
    context = stored.task.key.context
    return PrivateRow(
        **dict(row),
        rationale=written(rollout.score.rationale),
        notes=canonical_json({one.name: one.note for one in rollout.score.criteria if one.note}),
        context="" if context is None else canonical_json(context.model_dump(mode="json")),
    )


def prompt_of(stored: StoredGroup) -> tuple[Said, ...]:
    return said(stored.task.prompt.messages)


def tools_of(stored: StoredGroup) -> str:
    return specified(stored.task.prompt.tools)


def specified(tools: Iterable[ToolSpec]) -> str:
    return canonical_json([tool.model_dump(mode="json") for tool in tools])


def completion_of(rollout: Rollout) -> tuple[Said, ...]:
    whole = rollout.completion
    if whole.messages is not None:
        return said(whole.messages)
    return (Said(role="assistant", content=written(whole.text or "")),)


def said(messages: Iterable[Message]) -> tuple[Said, ...]:
    return tuple(_said(message) for message in messages)


def _said(message: Message) -> Said:
    calls = [
        SaidCall(
            id=call.id,
            function=SaidFunction(name=call.function.name, arguments=_arguments(call.function.arguments)),
        )
        for call in message.tool_calls
    ]
    return Said(
        role=message.role,
        content=written(message.content or ""),
        name=message.name,
        tool_calls=tuple(calls),
        tool_call_id=message.tool_call_id,
        reasoning_content=None if message.reasoning_content is None else written(message.reasoning_content),
    )


def _arguments(given: JsonValue) -> str:
    return written(given) if isinstance(given, str) else canonical_json(given)


def written(text: str) -> str:
    """Replaces lone surrogates, which files cannot hold, with the replacement character."""
    return text if is_encodable(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
