"""Row models of exports. Prompts and completions are always lists of messages."""

from app.domain.digests import canonical_json
from app.domain.exports import StoredGroup
from app.domain.groups import Rollout
from app.domain.values import FiniteNumber, Frozen
from app.service.exports.chat_messages import ExportedMessage, encode_tools, export_messages, replace_lone_surrogates


class CriterionValue(Frozen):
    """One criterion of a score."""

    name: str
    value: FiniteNumber | None
    weight: FiniteNumber


class RowOrigin(Frozen):
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
    lag: int | None
    """Training steps since the task was handed out; nothing if a step is unknown. Negative after a return to an older
    checkpoint."""
    created_at: str
    """ISO 8601, UTC."""


class RolloutRow(RowOrigin):
    rollout_id: str
    index: int
    """Position of the completion in its group, from 0."""
    purpose: str
    prompt: tuple[ExportedMessage, ...]
    tools: str
    """OpenAI tool specifications as a JSON string; `[]` without tools."""
    completion: tuple[ExportedMessage, ...]
    finish_reason: str
    token_ids: tuple[int, ...]
    """As the trainer sent them; empty if it sent none."""
    logprobs: tuple[FiniteNumber, ...]
    """One per token of `token_ids`, in nats; empty if the trainer sent none."""
    extra: str
    """What the trainer stored with the completion, as a JSON object."""
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
    calibrated: FiniteNumber | None
    """Quality on the scale of replies of known level; null if the group was not drawn for calibration."""
    calibrated_error: FiniteNumber | None
    """Standard error of `calibrated`."""
    criteria: tuple[CriterionValue, ...]
    flags: tuple[str, ...]
    judges: tuple[str, ...]
    scoring_digest: str
    not_kept: tuple[str, ...]
    """Parts of the completion that retention has removed: `thought`, `tokens`, `logprobs`."""


class PrivateRow(RolloutRow):
    """A rollout with fields that the policy never saw."""

    rationale: str
    notes: str
    """Notes of the criteria, by name, as JSON."""
    context: str
    """Retrieved and withheld passages, as JSON; empty without retrieval."""


class SftRow(RowOrigin):
    """TRL's conversational prompt-completion format, plus columns that TRL ignores."""

    rollout_id: str
    prompt: tuple[ExportedMessage, ...]
    completion: tuple[ExportedMessage, ...]
    tools: str
    value: FiniteNumber


class DpoRow(RowOrigin):
    """TRL's conversational preference format."""

    prompt: tuple[ExportedMessage, ...]
    chosen: tuple[ExportedMessage, ...]
    rejected: tuple[ExportedMessage, ...]
    tools: str
    chosen_id: str
    rejected_id: str
    chosen_reward: FiniteNumber
    rejected_reward: FiniteNumber


class KtoRow(RowOrigin):
    """TRL's unpaired preference format."""

    rollout_id: str
    prompt: tuple[ExportedMessage, ...]
    completion: tuple[ExportedMessage, ...]
    label: bool
    """Whether the completion is desirable."""
    tools: str
    value: FiniteNumber


Row = RolloutRow | SftRow | DpoRow | KtoRow


def compute_value(rollout: Rollout) -> float | None:
    """gate x `absolute`, or gate x reward without an absolute part; None without a score."""
    score = rollout.score
    if score.outcome != "scored":
        return None
    absolute = score.reward if score.absolute is None else score.absolute
    return None if absolute is None else (1.0 if score.gate is None else score.gate) * absolute


def build_origin(stored: StoredGroup) -> RowOrigin:
    group, key = stored.group, stored.task.key
    return RowOrigin(
        group_id=group.group_id,
        task_id=group.task_id,
        environment=group.environment,
        version=key.version,
        split=key.split,
        task_label=stored.task.label or "",
        run=group.run or "",
        policy=group.policy.model if group.policy else "",
        step=group.policy.step if group.policy else None,
        lag=group.lag,
        created_at=group.created_at.isoformat(),
    )


def build_rollout_row(stored: StoredGroup, index: int, rollout: Rollout, *, private: bool) -> RolloutRow:
    score = rollout.score
    row = RolloutRow(
        **dict(build_origin(stored)),
        rollout_id=rollout.rollout_id,
        index=index,
        purpose=stored.group.purpose,
        prompt=export_prompt(stored),
        tools=export_tools(stored),
        completion=export_completion(rollout),
        finish_reason=replace_lone_surrogates(rollout.completion.finish_reason or ""),
        token_ids=rollout.completion.token_ids or (),
        logprobs=rollout.completion.logprobs or (),
        extra=canonical_json(rollout.completion.extra),
        outcome=score.outcome,
        reason=score.reason or "",
        reward=score.reward,
        value=compute_value(rollout),
        gate=score.gate,
        absolute=score.absolute,
        relative=score.relative,
        calibrated=score.calibrated,
        calibrated_error=score.calibrated_error,
        criteria=tuple(CriterionValue(name=one.name, value=one.value, weight=one.weight) for one in score.criteria),
        flags=(*stored.group.flags, *score.flags),
        judges=score.judges,
        scoring_digest=score.scoring_digest,
        not_kept=() if rollout.reduced is None else rollout.reduced.missing,
    )
    return _build_private_row(row, stored, rollout) if private else row


def _build_private_row(row: RolloutRow, stored: StoredGroup, rollout: Rollout) -> PrivateRow:
    context = stored.task.key.context
    return PrivateRow(
        **dict(row),
        rationale=replace_lone_surrogates(rollout.score.rationale),
        notes=canonical_json({one.name: one.note for one in rollout.score.criteria if one.note}),
        context="" if context is None else canonical_json(context.model_dump(mode="json")),
    )


def export_prompt(stored: StoredGroup) -> tuple[ExportedMessage, ...]:
    return export_messages(stored.task.prompt.messages)


def export_tools(stored: StoredGroup) -> str:
    return encode_tools(stored.task.prompt.tools)


def export_completion(rollout: Rollout) -> tuple[ExportedMessage, ...]:
    whole = rollout.completion
    if whole.messages is not None:
        return export_messages(whole.messages)
    return (ExportedMessage(role="assistant", content=replace_lone_surrogates(whole.text or "")),)
