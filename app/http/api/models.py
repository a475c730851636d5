"""Replies of the native surface that are not the service's own words already."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import JsonValue

from app.characters.views import CharacterCard
from app.domain.groups import Group, GroupDetail, GroupSummary, Scoring, StatisticsRow, TaskRecord
from app.domain.judging import Judgement, JudgeReport, Mode
from app.domain.programs import Isolation, Protection
from app.domain.runs import Run
from app.domain.tasks import Message, Passage, ToolSpec
from app.domain.values import Frozen, Split, Unit
from app.service.requests import GroupReply
from app.service.standing import reply_of


class CriterionInfo(Frozen):
    name: str
    weight: Unit
    description: str


class SplitInfo(Frozen):
    name: Split
    size: int | None
    """Tasks per epoch; null is endless."""


class IsolationInfo(Frozen):
    """How well programs of models are kept apart on this machine, found out by trying."""

    strong: bool
    """Every threat is held off."""
    protections: tuple[Protection, ...]

    @classmethod
    def of(cls, isolation: Isolation) -> "IsolationInfo":
        return cls(strong=isolation.strong, protections=isolation.protections)


class EnvironmentInfo(Frozen):
    """One entry of the catalogue."""

    name: str
    version: str
    description: str
    available: bool
    reason: str | None
    """Why it is not available."""
    origin: str | None
    """Where its tasks come from."""
    splits: tuple[SplitInfo, ...]
    """Sizes with default params; empty while the environment is not available."""
    multi_turn: bool
    label: str | None
    """The key of tasks' metadata that figures are broken down by, such as `character`; null where there is none."""
    criteria: tuple[CriterionInfo, ...]
    judges: tuple[str, ...]
    """Who judges by default; empty where a verifier decides."""
    mode: Mode | None
    """How they read a group by default; null where a verifier decides."""
    votes: int | None
    """How often each is asked the same by default; `listwise` has no use for it."""
    relative_weight: Unit | None
    """Share of the standing within the group by default."""
    isolation: IsolationInfo | None
    """How well programs that models wrote are kept apart where it runs them, found out by trying; null where it runs
    none, and until that has been tried."""
    params_schema: dict[str, JsonValue]
    """JSON Schema of `params`."""


class EnvironmentList(Frozen):
    environments: tuple[EnvironmentInfo, ...]


class TaskView(Frozen):
    """A task as it was handed out. Never holds the reference."""

    task_id: str
    environment: str
    version: str
    split: Split
    index: int
    params: dict[str, JsonValue]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_turns: int
    metadata: dict[str, JsonValue]
    passages: tuple[Passage, ...]

    @classmethod
    def of(cls, record: TaskRecord) -> "TaskView":
        key, prompt = record.key, record.prompt
        return cls(
            task_id=record.task_id,
            environment=key.environment,
            version=key.version,
            split=key.split,
            index=key.index,
            params=key.params,
            messages=prompt.messages,
            tools=prompt.tools,
            max_turns=prompt.max_turns,
            metadata=prompt.metadata,
            passages=() if key.context is None else key.context.passages,
        )


class GroupView(Frozen):
    """A group with its task, its statistics and every judgement that was made for it, and beside that the scorings
    that were made of it later."""

    group: Group
    reply: GroupReply
    task: TaskView
    judgements: tuple[Judgement, ...]
    scorings: tuple[Scoring, ...]
    """Oldest first, each with its own judgements. What the trainer was told is not among them."""

    @classmethod
    def of(cls, detail: GroupDetail) -> "GroupView":
        return cls(
            group=detail.group,
            reply=reply_of(detail.group),
            task=TaskView.of(detail.task),
            judgements=detail.judgements,
            scorings=detail.scorings,
        )


class GroupPage(Frozen):
    """Newest first. `next_before` goes into `before` for the page that follows; null on the last one."""

    groups: tuple[GroupSummary, ...]
    next_before: int | None


class GroupReplies(Frozen):
    """The groups that were asked for by id, in that order."""

    groups: tuple[GroupReply, ...]


class RunPage(Frozen):
    runs: tuple[Run, ...]
    next_after: str | None


class StatisticsView(Frozen):
    """Training rollouts by environment, run and policy step, and by `label` when asked for `by` something; evaluations
    are left out."""

    rows: tuple[StatisticsRow, ...]


class CharacterList(Frozen):
    characters: tuple[CharacterCard, ...]


class ReloadedCharacters(Frozen):
    """What reading the sheets again has changed, by id."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    characters: tuple[CharacterCard, ...]

    @classmethod
    def of(cls, before: Sequence[CharacterCard], after: Sequence[CharacterCard]) -> "ReloadedCharacters":
        known, now = ({card.id: card.digest for card in cards} for cards in (before, after))
        return cls(
            added=tuple(name for name in now if name not in known),
            changed=tuple(name for name, digest in now.items() if known.get(name, digest) != digest),
            removed=tuple(name for name in known if name not in now),
            characters=tuple(after),
        )


class JudgeInfo(Frozen):
    name: str
    model: str
    environments: tuple[str, ...]
    """Which environments it scores by default."""
    for_training: bool
    """False for the offline judge: good enough to try the system, not to train on."""
    report: JudgeReport | None
    """Health, limits, spending and what is left of budgets; null for a judge that asks no server."""


class JudgeList(Frozen):
    judges: tuple[JudgeInfo, ...]


class Health(Frozen):
    status: str
    version: str
    time: datetime
