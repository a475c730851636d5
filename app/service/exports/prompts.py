"""Tasks as rows of a prompt data set, in the columns that each trainer reads.

Never the answer: what the trainer gives back to be scored names the task, and says of a held-out one that it is an
evaluation, so that its scores are in no training figure.
"""

from typing import Final, Literal

from app.domain.errors import InvalidRequest
from app.domain.values import Frozen, Split
from app.service.exports.rows import Said, said, specified
from app.service.requests import HandedOut

Trainer = Literal["trl", "openrlhf", "slime", "verl"]


class TrlPrompt(Frozen):
    """For `GRPOTrainer`, which hands the other columns to its reward functions."""

    prompt: tuple[Said, ...]
    task_id: str
    purpose: str
    environment: str
    tools: str
    """OpenAI's tool specifications as JSON, a text; `[]` without any."""


class OpenRlhfPrompt(Frozen):
    """For `--data.input_key prompt --data.label_key label --data.apply_chat_template`."""

    prompt: tuple[Said, ...]
    label: str
    """The task's id; with what is held out a label as JSON."""


class Label(Frozen):
    task_id: str
    purpose: str
    """`eval` of what is held out, else `train`."""


class SlimePrompt(Frozen):
    """For `--input-key prompt --label-key label --tool-key tools --apply-chat-template`."""

    prompt: tuple[Said, ...]
    label: Label
    tools: str


class VerlReward(Frozen):
    style: str = "rule"
    ground_truth: str
    """What `compute_score` is given: a label as OpenRLHF's."""


class VerlExtra(Frozen):
    split: str
    index: int
    environment: str


class VerlPrompt(Frozen):
    """The columns of verl's own data preparation."""

    data_source: str
    """The environment's name."""
    prompt: tuple[Said, ...]
    ability: str
    reward_model: VerlReward
    extra_info: VerlExtra


PromptRow = TrlPrompt | OpenRlhfPrompt | SlimePrompt | VerlPrompt

ROWS: Final[dict[Trainer, type[PromptRow]]] = {
    "trl": TrlPrompt,
    "openrlhf": OpenRlhfPrompt,
    "slime": SlimePrompt,
    "verl": VerlPrompt,
}


WITH_TOOLS: Final[frozenset[Trainer]] = frozenset({"trl", "slime"})
"""Those whose rows can hold the tools that a task offers beside its prompt."""
WHOLE_EPISODES: Final[frozenset[Trainer]] = frozenset({"trl"})
"""Those that can play a task over several turns."""


def prompt_row(trainer: Trainer, task: HandedOut, split: Split, index: int) -> PromptRow:
    """InvalidRequest when the trainer can do nothing with the task."""
    if task.max_turns > 1 and trainer not in WHOLE_EPISODES:
        raise InvalidRequest(f"{task.environment} is multi-turn, but {trainer} sends one reply")
    if task.tools and trainer not in WITH_TOOLS:
        raise InvalidRequest(
            f"tasks of {task.environment} offer tools, which rows for {trainer} cannot hold; choose params that write "
            "them into the prompt (in tool_calling: tool_format)"
        )
    prompt = said(task.messages)
    tools = specified(task.tools)
    label = Label(task_id=task.task_id, purpose="eval" if split == "test" else "train")
    match trainer:
        case "trl":
            return TrlPrompt(prompt=prompt, **dict(label), environment=task.environment, tools=tools)
        case "openrlhf":
            return OpenRlhfPrompt(prompt=prompt, label=_text(label))
        case "slime":
            return SlimePrompt(prompt=prompt, label=label, tools=tools)
        case "verl":
            return VerlPrompt(
                data_source=task.environment,
                prompt=prompt,
                ability=task.environment,
                reward_model=VerlReward(ground_truth=_text(label)),
                extra_info=VerlExtra(split=split, index=index, environment=task.environment),
            )


def _text(label: Label) -> str:
    return label.task_id if label.purpose == "train" else label.model_dump_json()
