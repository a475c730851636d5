"""Tasks as rows of a prompt data set, in the columns that each trainer reads.

Rows never contain the answer. The label that the trainer returns for scoring names the task and marks test tasks as
evaluation, so that their scores are not in training statistics.
"""

from typing import Final, Literal

from pydantic import JsonValue

from app.domain.errors import InvalidRequest
from app.domain.tasks import ToolSpec
from app.domain.values import Frozen, Split
from app.service.exports.chat_messages import ExportedMessage, encode_tools, export_messages
from app.service.request_models import HandedOutTask

Trainer = Literal["trl", "openrlhf", "slime", "verl", "openrlhf_agent", "slime_agent", "verl_agent", "nemo_gym"]


class TrlPrompt(Frozen):
    """For `GRPOTrainer`, which hands the other columns to its reward functions."""

    prompt: tuple[ExportedMessage, ...]
    task_id: str
    purpose: str
    environment: str
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
            return TrlPrompt(prompt=prompt, **dict(label), environment=task.environment, tools=tools)
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
