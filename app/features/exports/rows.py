"""Rows of exports: completions with their scores for training, and tasks for prompt data sets.

Messages and tools are in OpenAI's chat format. Rows of tasks never contain the answer. The label that the trainer
returns for scoring names the task and marks test tasks as evaluation, so that their scores are not in training
statistics.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, JsonValue

from app.domain.errors import InvalidRequest
from app.domain.groups import Rollout
from app.domain.tasks import Message, ToolSpec
from app.domain.values import FiniteNumber, Frozen, Split, canonical_json, is_absent, replace_lone_surrogates
from app.features.exports.model import StoredGroup
from app.service.requests import HandedOutTask


class ExportedFunctionCall(Frozen):
    name: str
    arguments: str
    """Arguments as a JSON string, since different functions share no columns."""


class ExportedToolCall(Frozen):
    id: str | None = None
    type: str = "function"
    function: ExportedFunctionCall


class ExportedMessage(Frozen):
    """A message in OpenAI's chat format. Absent fields are omitted in JSON lines and null in Parquet."""

    role: str
    content: str
    name: Annotated[str | None, Field(exclude_if=is_absent)] = None
    tool_calls: Annotated[tuple[ExportedToolCall, ...], Field(exclude_if=is_absent)] = ()
    tool_call_id: Annotated[str | None, Field(exclude_if=is_absent)] = None
    reasoning_content: Annotated[str | None, Field(exclude_if=is_absent)] = None


def encode_tools(tools: Iterable[ToolSpec]) -> str:
    return canonical_json([tool.model_dump(mode="json") for tool in tools])


def export_messages(messages: Iterable[Message]) -> tuple[ExportedMessage, ...]:
    return tuple(_export_message(message) for message in messages)


def _export_message(message: Message) -> ExportedMessage:
    calls = [
        ExportedToolCall(
            id=call.id,
            function=ExportedFunctionCall(
                name=call.function.name, arguments=_encode_arguments(call.function.arguments)
            ),
        )
        for call in message.tool_calls
    ]
    return ExportedMessage(
        role=message.role,
        content=replace_lone_surrogates(message.content or ""),
        name=message.name,
        tool_calls=tuple(calls),
        tool_call_id=message.tool_call_id,
        reasoning_content=None
        if message.reasoning_content is None
        else replace_lone_surrogates(message.reasoning_content),
    )


def _encode_arguments(arguments: JsonValue) -> str:
    return replace_lone_surrogates(arguments) if isinstance(arguments, str) else canonical_json(arguments)


# Rows of completions. Prompts and completions are always lists of messages.


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


# Rows of tasks, in the columns that each trainer reads.

Trainer = Literal["trl", "openrlhf", "slime", "verl", "openrlhf_agent", "slime_agent", "verl_agent", "nemo_gym"]


class TrlPrompt(Frozen):
    """For `GRPOTrainer`, which hands the other columns to its reward functions."""

    prompt: tuple[ExportedMessage, ...]
    task_id: str
    purpose: str
    environment: str
    max_turns: int
    tools: str
    """OpenAI tool specifications as a JSON string; `[]` without tools."""


class OpenRlhfPrompt(Frozen):
    """For `--data.input_key prompt --data.label_key label --data.apply_chat_template`."""

    prompt: tuple[ExportedMessage, ...]
    label: str
    """The task id; for test tasks a JSON label with the purpose."""


class TaskLabel(Frozen):
    task_id: str
    purpose: str
    """`eval` for test tasks, else `train`."""


class SlimePrompt(Frozen):
    """For `--input-key prompt --label-key label --tool-key tools --apply-chat-template`."""

    prompt: tuple[ExportedMessage, ...]
    label: TaskLabel
    tools: str


class VerlReward(Frozen):
    style: str = "rule"
    ground_truth: str
    """The label passed to `compute_score`, as in `OpenRlhfPrompt`."""


class VerlExtra(Frozen):
    split: str
    index: int
    environment: str


class VerlPrompt(Frozen):
    """The columns of verl's data format."""

    data_source: str
    """The environment's name."""
    prompt: tuple[ExportedMessage, ...]
    ability: str
    reward_model: VerlReward
    extra_info: VerlExtra


class Episode(Frozen):
    """What an agent loop must know of a task besides its prompt."""

    task_id: str
    environment: str
    purpose: str
    max_turns: int


class OpenRlhfEpisode(Frozen):
    """For the options of `OpenRlhfPrompt`, with `examples/openrlhf_agent.py`."""

    prompt: tuple[ExportedMessage, ...]
    label: str
    """`Episode` as JSON."""


class SlimeEpisode(Frozen):
    """For `--input-key prompt --tool-key tools --metadata-key metadata --apply-chat-template` with
    `examples/slime_generate.py`."""

    prompt: tuple[ExportedMessage, ...]
    tools: str
    metadata: Episode


class VerlEpisode(VerlPrompt):
    """The columns of verl's data format, and those that `examples/verl_agent_loop.py` reads."""

    agent_name: str = "gateway"
    task_id: str
    purpose: str
    max_turns: int
    tools: str


class NemoGymTool(Frozen):
    """A tool as the Responses API has it."""

    type: Literal["function"] = "function"
    name: str
    description: str
    parameters: dict[str, JsonValue]
    strict: bool = False


class NemoGymParams(Frozen):
    input: tuple[ExportedMessage, ...]
    tools: tuple[NemoGymTool, ...]


class NemoGymAgent(Frozen):
    type: str = "responses_api_agents"
    name: str
    """Of the instance in the configuration of NeMo Gym: the environment and the kind of agent."""


class NemoGymPrompt(Frozen):
    """JSON lines for NeMo Gym, NeMo-RL and verifiers' task set `nemo_gym`."""

    responses_create_params: NemoGymParams
    task_id: str
    purpose: str
    environment: str
    agent_ref: NemoGymAgent


PromptRow = (
    TrlPrompt | OpenRlhfPrompt | SlimePrompt | VerlPrompt | OpenRlhfEpisode | SlimeEpisode | VerlEpisode | NemoGymPrompt
)

PROMPT_ROW_TYPES: Final[dict[Trainer, type[PromptRow]]] = {
    "trl": TrlPrompt,
    "openrlhf": OpenRlhfPrompt,
    "slime": SlimePrompt,
    "verl": VerlPrompt,
    "openrlhf_agent": OpenRlhfEpisode,
    "slime_agent": SlimeEpisode,
    "verl_agent": VerlEpisode,
    "nemo_gym": NemoGymPrompt,
}
JSON_LINES_ONLY: Final[frozenset[Trainer]] = frozenset({"nemo_gym"})
"""Trainers whose rows are no columns: schemas of tools differ between them."""


TRAINERS_WITH_TOOLS: Final[frozenset[Trainer]] = frozenset({"trl", "slime", "slime_agent", "verl_agent", "nemo_gym"})
"""Trainers whose rows can hold a task's tools."""
MULTI_TURN_TRAINERS: Final[frozenset[Trainer]] = frozenset(
    {"trl", "openrlhf_agent", "slime_agent", "verl_agent", "nemo_gym"}
)
"""Trainers that support multi-turn tasks."""


def build_prompt_row(trainer: Trainer, task: HandedOutTask, split: Split, index: int) -> PromptRow:
    """The row of a task. InvalidRequest when the trainer cannot use the task."""
    _check_task_fits(trainer, task)
    prompt = export_messages(task.messages)
    tools = encode_tools(task.tools)
    label = TaskLabel(task_id=task.task_id, purpose="eval" if split == "test" else "train")
    match trainer:
        case "trl":
            environment, turns = task.environment, task.max_turns
            return TrlPrompt(prompt=prompt, **dict(label), environment=environment, max_turns=turns, tools=tools)
        case "openrlhf":
            return OpenRlhfPrompt(prompt=prompt, label=_format_label(label))
        case "slime":
            return SlimePrompt(prompt=prompt, label=label, tools=tools)
        case "verl":
            return _build_verl_prompt(task, label, split, index)
        case "openrlhf_agent":
            return OpenRlhfEpisode(prompt=prompt, label=_build_episode(task, label).model_dump_json())
        case "slime_agent":
            return SlimeEpisode(prompt=prompt, tools=tools, metadata=_build_episode(task, label))
        case "verl_agent":
            row = _build_verl_prompt(task, label, split, index)
            return VerlEpisode(**dict(row), **dict(label), max_turns=task.max_turns, tools=tools)
        case "nemo_gym":
            return NemoGymPrompt(
                responses_create_params=NemoGymParams(input=prompt, tools=tuple(map(_flatten_tool, task.tools))),
                **dict(label),
                environment=task.environment,
                agent_ref=NemoGymAgent(
                    name=f"{task.environment}_{'gymnasium' if task.max_turns > 1 else 'simple'}_agent"
                ),
            )


def _check_task_fits(trainer: Trainer, task: HandedOutTask) -> None:
    if task.max_turns > 1 and trainer not in MULTI_TURN_TRAINERS:
        raise InvalidRequest(f"{task.environment} is multi-turn, but {trainer} sends one reply; see {trainer}_agent")
    if task.tools and trainer not in TRAINERS_WITH_TOOLS:
        raise InvalidRequest(
            f"tasks of {task.environment} offer tools, which rows for {trainer} cannot hold; choose params that write "
            "them into the prompt (in tool_calling: tool_format)"
        )


def _build_episode(task: HandedOutTask, label: TaskLabel) -> Episode:
    return Episode(**dict(label), environment=task.environment, max_turns=task.max_turns)


def _build_verl_prompt(task: HandedOutTask, label: TaskLabel, split: Split, index: int) -> VerlPrompt:
    return VerlPrompt(
        data_source=task.environment,
        prompt=export_messages(task.messages),
        ability=task.environment,
        reward_model=VerlReward(ground_truth=_format_label(label)),
        extra_info=VerlExtra(split=split, index=index, environment=task.environment),
    )


def _flatten_tool(tool: ToolSpec) -> NemoGymTool:
    made = tool.function
    return NemoGymTool(name=made.name, description=made.description, parameters=dict(made.parameters))


def _format_label(label: TaskLabel) -> str:
    return label.task_id if label.purpose == "train" else label.model_dump_json()


# JSON lines.


class JsonLinesEncoder:
    def encode_rows(self, rows: Sequence[BaseModel]) -> bytes:
        return encode_json_lines(rows)

    def finish(self) -> bytes:
        return b""


def encode_json_lines(rows: Sequence[BaseModel]) -> bytes:
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
