"""Response models of the native API."""

from collections.abc import Sequence
from datetime import datetime
from operator import not_
from typing import Annotated

from pydantic import Field, JsonValue

from app.characters.schema import CharacterCard
from app.domain.groups import Group, GroupDetail, GroupSummary, Scoring, StatisticsRow, TaskRecord
from app.domain.hosting import ServerFacts
from app.domain.judging import Judgement, JudgeReport, JudgeVersion, Mode, RubricLabel
from app.domain.runs import Readings, Run
from app.domain.tasks import Isolation, Message, Passage, Protection, ToolSpec
from app.domain.values import Frozen, Split, Unit, is_absent
from app.service.requests import GroupReply
from app.service.scoring import build_reply


class CriterionInfo(Frozen):
    name: str
    weight: Unit
    description: str


class SplitInfo(Frozen):
    name: Split
    size: int | None
    """Tasks per epoch; null is endless."""


class IsolationInfo(Frozen):
    """How well programs that models wrote are isolated on this machine, as measured by trying."""

    strong: bool
    """Whether every threat is blocked."""
    protections: tuple[Protection, ...]

    @classmethod
    def from_isolation(cls, isolation: Isolation) -> "IsolationInfo":
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
    """The metadata key that statistics are broken down by, such as `character`; null if there is none."""
    criteria: tuple[CriterionInfo, ...]
    """Of the rubric below."""
    rubric: RubricLabel | None = None
    """What judges score by where a run says nothing else; null if a verifier decides."""
    takes_rubric: bool = False
    """Whether the settings and runs may bring another rubric."""
    judges: tuple[str, ...]
    """Default judges; empty if a verifier decides."""
    mode: Mode | None
    """How judges read a group by default; null if a verifier decides."""
    votes: int | None
    """How often each judge is asked by default; unused by `listwise`."""
    readings: Readings | None = None
    """Most readings of a group by all judges together in `listwise`, by default; null as 4."""
    relative_weight: Unit | None
    """Default weight of the comparison within the group."""
    offline_judge: bool = False
    """Whether the offline judge, which has no model and is not for training, scores it by default."""
    isolation: IsolationInfo | None
    """How well programs that models wrote are isolated, as measured by trying; null if the environment runs none, and
    until the measurement is done."""
    server: Annotated[ServerFacts | None, Field(exclude_if=is_absent)] = None
    """Of the server that its episodes run on; left out where they run here."""
    params_schema: dict[str, JsonValue]
    """JSON Schema of `params`."""


class EnvironmentList(Frozen):
    environments: tuple[EnvironmentInfo, ...]


class TaskView(Frozen):
    """A task as it was handed out. It never contains the reference."""

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
    def from_record(cls, record: TaskRecord) -> "TaskView":
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
    """A group with its task, its statistics, its judgements, and the scorings that were made later."""

    group: Group
    reply: GroupReply
    task: TaskView
    judgements: tuple[Judgement, ...]
    scorings: tuple[Scoring, ...]
    """Oldest first, each with its own judgements. The scoring that the trainer got is not included."""

    @classmethod
    def from_detail(cls, detail: GroupDetail) -> "GroupView":
        return cls(
            group=detail.group,
            reply=build_reply(detail.group),
            task=TaskView.from_record(detail.task),
            judgements=detail.judgements,
            scorings=detail.scorings,
        )


class GroupPage(Frozen):
    """Newest first. Pass `next_before` as `before` for the next page; null on the last page. A page may
    have fewer groups than `limit`, or none, before the last: no request looks at more than some thousands."""

    groups: tuple[GroupSummary, ...]
    next_before: int | None
    looked_at: int = 0
    """How many groups of an index were looked at for this page."""
    matched: int = 0
    """How many of these match."""
    not_indexed: Annotated[int | None, Field(exclude_if=is_absent)] = None
    """With `text`: about how many of the newest groups are not searched yet."""


class GroupReplies(Frozen):
    """The requested groups, in request order."""

    groups: tuple[GroupReply, ...]


class RunPage(Frozen):
    runs: tuple[Run, ...]
    next_after: str | None


class StatisticsView(Frozen):
    """Training rollouts by environment, run and policy step, and by `label` or `judge` if `by` is given. Evaluations
    are not included."""

    rows: tuple[StatisticsRow, ...]
    uncounted: Annotated[int, Field(exclude_if=not_)] = 0
    """Stored groups of all runs that `rows` do not include yet. After an upgrade, or while statistics are rebuilt,
    groups are counted in the background; left out when all are."""


class CharacterList(Frozen):
    characters: tuple[CharacterCard, ...]


class ReloadedCharacters(Frozen):
    """Changes by the reload, by character id."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    characters: tuple[CharacterCard, ...]

    @classmethod
    def from_reload(cls, before: Sequence[CharacterCard], after: Sequence[CharacterCard]) -> "ReloadedCharacters":
        old, new = ({card.id: card.digest for card in cards} for cards in (before, after))
        return cls(
            added=tuple(name for name in new if name not in old),
            changed=tuple(name for name, digest in new.items() if old.get(name, digest) != digest),
            removed=tuple(name for name in old if name not in new),
            characters=tuple(after),
        )


class JudgeInfo(Frozen):
    name: str
    model: str
    environments: tuple[str, ...]
    """Environments that it scores by default."""
    for_training: bool
    """False for the offline judge, which is only for trying the system."""
    report: JudgeReport | None
    """Health, limits, spending and remaining budgets; null for a judge without a server."""
    versions: tuple[JudgeVersion, ...] = ()
    """What its server said answered, oldest first. Another version counts as a change of the judge."""


class JudgeList(Frozen):
    judges: tuple[JudgeInfo, ...]


class ServiceHealth(Frozen):
    status: str
    version: str
    time: datetime


class ServiceReadiness(ServiceHealth):
    offline_judge: tuple[str, ...]
    """Environments that the offline judge scores by default. It has no model and is not for training."""
    down: Annotated[tuple[str, ...], Field(exclude_if=is_absent)] = ()
    """Environments whose own servers are down. The others go on, so the service is ready."""
