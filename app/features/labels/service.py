"""Labels by people: which group is asked for next, what a labeller sees of it, what they say of it, and what it is for.

People label blind: an item shows no score and no policy, and its replies stand in an order of its own for each lease.
Judges' scores are shown after the label is sent, and that label stays as it is from then on.

The queue draws in two arms. The uniform one draws any group of what the labeller asks for, each equally likely: only
what it finds says something of all groups. The doubtful one takes groups whose judges were least certain first.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import uuid4

from app.domain.access import KeyBounds
from app.domain.errors import Conflict, InvalidRequest, NotFound, PartsGone
from app.domain.groups import Group, TaskRecord
from app.domain.judging import Rubric, RubricLabel
from app.domain.labels import (
    Arm,
    GroupLabelRequest,
    ImportedLabel,
    ImportRequest,
    Label,
    LabelLease,
    LabelledGroupRecord,
    Labeller,
    LabelRequest,
    QueueDraw,
    ReplyLabel,
    ReplyLabelRequest,
)
from app.domain.retention import describe_missing_text_of
from app.domain.runs import Run
from app.domain.values import digest, suggest
from app.features.labels.model import (
    ImportReceipt,
    ItemRequest,
    ItemRubric,
    LabelEvidence,
    LabelItem,
    LabelProgress,
    LabelReceipt,
    NextItem,
    ShownReply,
    SkipRequest,
    WithdrawnLabel,
    show_messages,
)
from app.features.labels.store import LabelQueue, LabelStore
from app.ports.environment import Clock
from app.ports.judges import Panels
from app.service.catalogue import Catalogue
from app.service.judging import find_rubric
from app.service.requests import SingleFlight
from app.service.runs import JudgeStanding, RunAgreement, RunRegistry
from app.service.task_cache import TaskCache
from app.store.groups import GroupStore

log = logging.getLogger(__name__)
_TRIES = 8
"""Draws until the queue gives up because others are quicker every time."""


class LabelService:
    def __init__(
        self,
        *,
        catalogue: Catalogue,
        queue: LabelQueue,
        labels: LabelStore,
        groups: GroupStore,
        task_cache: TaskCache,
        runs: RunRegistry,
        panels: Panels,
        clock: Clock,
        chance: random.Random | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._queue = queue
        self._labels = labels
        self._groups = groups
        self._task_cache = task_cache
        self._runs = runs
        self._panels = panels
        self._clock = clock
        self._chance = chance or random.SystemRandom()

    async def next_item(self, request: ItemRequest, by: Labeller) -> NextItem:
        """The item that the labeller holds, else one that waits for a second label, else a new one. NotFound for an
        unknown environment or run."""
        environments = self.list_environments(request.environment)
        if request.run is not None:
            await self._runs.require(request.run, field="run")
        held = await self._queue.find_held(by, environments, request.run)
        if held is not None and (renewed := await self._queue.renew(held, request.lease_seconds)) is not None:
            return NextItem(item=await self._show(renewed))
        for _ in range(_TRIES):
            lease = await self._choose(request, by, environments)
            if lease is None:
                return NextItem(item=None, reason="nothing is left to label: every scored group has its labels")
            if (claimed := await self._queue.claim(lease, request.lease_seconds)) is not None:
                return NextItem(item=await self._show(claimed))
        raise Conflict("others took every item that was chosen; ask again")

    def list_environments(self, name: str | None) -> tuple[str, ...]:
        """The environment of this name, or all that judges score."""
        if name is not None and name not in self._catalogue.classes:
            raise NotFound(
                f"there is no environment {name!r}{suggest(name, self._catalogue.classes)}", field="environment"
            )
        judged = (each for each, kind in self._catalogue.classes.items() if kind.rubric is not None)
        return tuple(judged) if name is None else (name,)

    async def label_group(self, group_id: str, request: GroupLabelRequest, by: Labeller) -> LabelReceipt:
        group = await self._require_group(group_id)
        for rank, tier in enumerate(request.tiers):
            for rollout_id in tier:
                _require_rollout(group, rollout_id, "pair" if request.pair is not None else f"order.{rank}")
        for rollout_id in request.replies:
            _require_rollout(group, rollout_id, f"replies.{rollout_id}")
        return await self._store(group, request, by, request.tiers, request.replies, merge=False)

    async def label_reply(self, rollout_id: str, request: ReplyLabelRequest, by: Labeller) -> LabelReceipt:
        """What the labeller said of other replies of the group stays."""
        group = await self._require_group(rollout_id.rpartition("-")[0])
        if rollout_id not in {one.rollout_id for one in group.rollouts}:
            raise NotFound(f"there is no rollout {rollout_id}")
        reply = ReplyLabel(levels=request.levels, defect=request.defect)
        return await self._store(group, request, by, (), {rollout_id: reply}, merge=True)

    async def require_item(self, bounds: KeyBounds, lease_id: str) -> None:
        """NotFound for an item that is of others' groups."""
        lease = None if bounds.is_open else await self._queue.find_lease(lease_id)
        if lease is not None and not bounds.allows_group(lease.run, lease.environment):
            raise NotFound(f"there is no item {lease_id}", field="lease_id")

    async def require_label(self, bounds: KeyBounds, label_id: str) -> None:
        label = None if bounds.is_open else await self._labels.find(label_id)
        if label is not None and not bounds.allows_group(label.run, label.environment or ""):
            raise NotFound(f"there is no label {label_id}")

    async def skip(self, request: SkipRequest, by: Labeller) -> NextItem:
        """The labeller does not get this item again; others may."""
        await self._queue.skip(request.lease_id, by)
        return NextItem(item=None, reason="skipped")

    async def withdraw(self, label_id: str, by: Labeller, seconds: float, *, is_admin: bool = False) -> WithdrawnLabel:
        """The labeller holds the item again. An admin takes back anybody's label: its item then goes to others."""
        label = await self._labels.withdraw(label_id, by, seconds, is_admin=is_admin)
        lease_id = label.draw.lease_id if label.draw is not None and by.owns(label) else None
        return WithdrawnLabel(label_id=label.label_id, lease_id=lease_id)

    async def import_choices(self, request: ImportRequest, by: Labeller) -> ImportReceipt:
        made = [self._build_imported(by, one) for one in request.choices]
        added = len(await self._labels.add_imported(made))
        return ImportReceipt(added=added, known=len(made) - added)

    async def replace_choice(self, by: Labeller, chat: str, made: ImportedLabel | None) -> None:
        """One choice of the labeller's in the chat is live: this one, or none."""
        label = None if made is None else self._build_imported(by, made)
        await self._labels.replace_choice(by.name, chat, label)

    def _build_imported(self, by: Labeller, made: ImportedLabel) -> Label:
        return Label(
            label_id=f"label_{uuid4().hex}",
            kind=made.kind,
            **by.fields,
            language=made.language,
            choice=made.choice,
            created_at=self._clock(),
        )

    async def collect_evidence(self, judge: str, environment: str | None, run: str | None) -> LabelEvidence:
        """NotFound for an unknown environment."""
        environments = self.list_environments(environment)
        return LabelEvidence(
            records=tuple(await self._labels.list_labelled(judge, environments, run)),
            labels=await self._labels.count_labels(),
            draws=await self._queue.count_arms(environments, run),
        )

    async def _choose(self, request: ItemRequest, by: Labeller, environments: tuple[str, ...]) -> LabelLease | None:
        first = await self._queue.find_awaiting_second(by, environments, request.run)
        if first is not None:
            draw = first.draw.model_copy(update={"lease_id": _make_lease_id(), "second": True})
            return first.model_copy(update={"lease_id": draw.lease_id, "draw": draw, "state": "live", **by.fields})
        where = (environments, request.run, by)
        share = compute_uniform_share(await self._queue.count_drawn(environments, request.run))
        arm: Arm = "uniform" if self._chance.random() < share else "doubtful"
        drawn = await self._queue.draw_doubtful(*where) if arm == "doubtful" else None
        if drawn is None:
            arm, drawn = "uniform", await self._queue.draw_uniform(*where)
        if drawn is None:
            return None
        lease_id = _make_lease_id()
        return LabelLease(
            lease_id=lease_id,
            **by.fields,
            group_id=drawn.group_id,
            environment=drawn.environment,
            run=drawn.run,
            draw=QueueDraw(lease_id=lease_id, arm=arm),
            wanted=2 if self._chance.random() < _SECOND_SHARE else 1,
            state="live",
            expires_at=self._clock(),  # the queue sets it when the item is claimed
        )

    async def show_group(self, group_id: str) -> LabelItem:
        """A group that the labeller chose, as blind as an item of the queue; nobody holds it."""
        group = await self._require_group(group_id)
        return await self._build_item(group, "", self._clock())

    async def count_progress(self, request: ItemRequest, by: Labeller) -> LabelProgress:
        environments = self.list_environments(request.environment)
        count, left = await self._queue.count_left(environments, request.run, by)
        arms = await self._queue.count_arms(environments, request.run)
        return LabelProgress(
            labelled=sum(arm.labelled for arm in arms.values()),
            skipped=sum(arm.skipped for arm in arms.values()),
            left=left,
            groups=count,
        )

    async def _show(self, lease: LabelLease) -> LabelItem:
        return await self._build_item(await self._require_group(lease.group_id), lease.lease_id, lease.expires_at)

    async def _build_item(self, group: Group, lease_id: str, expires_at: datetime) -> LabelItem:
        record = (await self._task_cache.get([group.task_id]))[group.task_id]
        rubric = await self._find_rubric(group)
        # Another order for each labeller, and the same one when the page is loaded again.
        replies = sorted(group.rollouts, key=lambda one: digest([lease_id, one.rollout_id]))
        return LabelItem(
            lease_id=lease_id,
            expires_at=expires_at,
            group_id=group.group_id,
            environment=group.environment,
            language=_find_language(record),
            messages=record.prompt.messages,
            tools=record.prompt.tools,
            metadata=record.prompt.metadata,
            passages=() if record.key.context is None else record.key.context.passages,
            rubric=None if rubric is None else ItemRubric.from_rubric(rubric),
            replies=tuple(
                ShownReply(rollout_id=one.rollout_id, messages=show_messages(one.completion)) for one in replies
            ),
        )

    async def _require_group(self, group_id: str) -> Group:
        group = (await self._groups.find([group_id])).get(group_id)
        if group is None:
            raise NotFound(f"there is no group {group_id}")
        if group.lacks_text:
            raise PartsGone(describe_missing_text_of(group_id))
        return group

    async def _find_rubric(self, group: Group) -> Rubric | None:
        kind = self._catalogue.classes.get(group.environment)
        return None if kind is None else find_rubric(self._panels, kind, await self._runs.find_options(group.run))

    async def _store(
        self,
        group: Group,
        request: LabelRequest,
        by: Labeller,
        order: tuple[tuple[str, ...], ...],
        replies: Mapping[str, ReplyLabel],
        *,
        merge: bool,
    ) -> LabelReceipt:
        rubric = await self._find_rubric(group)
        _check_levels(rubric, replies)
        shown = None if rubric is None else RubricLabel.from_rubric(rubric)
        if request.rubric_version is not None and (shown is None or shown.version != request.rubric_version):
            now = "none" if shown is None else shown.version
            raise Conflict(f"the rubric of this group is {now} now; ask for the item again", field="rubric_version")
        record = (await self._task_cache.get([group.task_id]))[group.task_id]
        label = Label(
            label_id=f"label_{uuid4().hex}",
            kind="own_pick",
            **by.fields,
            group_id=group.group_id,
            environment=group.environment,
            run=group.run,
            order=order,
            replies=dict(replies),
            seconds=request.seconds,
            rubric=shown,
            language=_find_language(record),
            comment=request.comment,
            created_at=self._clock(),
        )
        made = await self._labels.put(label, request.lease_id, merge=merge, show_judge=request.show_judge)
        is_shown = made.saw_judge and request.show_judge
        scores = {one.rollout_id: one.score for one in group.rollouts} if is_shown else None
        return LabelReceipt.from_label(made, scores, asked=request.show_judge)


def _require_rollout(group: Group, rollout_id: str, field: str) -> None:
    if rollout_id not in {one.rollout_id for one in group.rollouts}:
        raise InvalidRequest(f"{rollout_id!r} is no rollout of {group.group_id}", field=field)


def _check_levels(rubric: Rubric | None, replies: Mapping[str, ReplyLabel]) -> None:
    criteria = () if rubric is None else tuple(one.name for one in rubric.criteria)
    for rollout_id, name in _list_criteria(replies):
        if name not in criteria:
            near = suggest(name, criteria) or f"; known criteria: {', '.join(criteria) or 'none'}"
            raise InvalidRequest(
                f"the rubric has no criterion {name!r}{near}", field=f"replies.{rollout_id}.levels.{name}"
            )


def _list_criteria(replies: Mapping[str, ReplyLabel]) -> Iterator[tuple[str, str]]:
    return ((rollout_id, name) for rollout_id, reply in replies.items() for name in reply.levels)


def _find_language(record: TaskRecord) -> str:
    language = record.prompt.metadata.get("language", "")
    return language if isinstance(language, str) else ""


def _make_lease_id() -> str:
    """Random, since it also orders the replies."""
    return f"item_{uuid4().hex}"


# In which arm the queue draws next.

_UNIFORM_LABELS: Final = 100
"""Until there are so many labels drawn uniformly, at least half of all are."""
_FIRST_SHARE: Final = 0.5
_LATER_SHARE: Final = 0.25
"""Share drawn uniformly, so that figures keep up with a policy that learns."""
_SECOND_SHARE: Final = 0.2
"""Share of the items that two people label, blind to each other."""


def compute_uniform_share(drawn: Mapping[Arm, int]) -> float:
    """The probability that the next draw is a uniform one. It is 1 where half of the labels would not be uniform
    otherwise."""
    uniform, doubtful = drawn.get("uniform", 0), drawn.get("doubtful", 0)
    if uniform >= _UNIFORM_LABELS:
        return _LATER_SHARE
    return 1.0 if uniform <= doubtful else _FIRST_SHARE


# Whether a run's judges agree with people as far as the run asks for.

_MeasureLowerBound = Callable[[Sequence[LabelledGroupRecord]], tuple[int, float | None]]
"""The number of groups with an order, and the lower bound of the pair accuracy; None where there are too few."""
KEPT_SECONDS: Final = 60.0
"""For so long nothing asks whether labels changed: tasks are handed out more often than people label."""


@dataclass(frozen=True)
class _Measurement:
    until: float
    mark: tuple[int, int, int]
    """Of the labels that it was made from: where it is the same, nothing is measured again."""
    groups: int
    low: float | None


class AgreementCheck:
    """Too few labels are no alarm: a run that waited for labels of its judge would never make the groups to label."""

    def __init__(self, labels: LabelStore, panels: Panels, measure: _MeasureLowerBound) -> None:
        self._labels = labels
        self._panels = panels
        self._measure = measure
        self._measurements: dict[tuple[str, str], _Measurement] = {}
        self._flights = SingleFlight[_Measurement]("could not measure agreement with people")
        self._warned: dict[str, JudgeStanding] = {}
        """By run: of what its log was told last."""

    async def check(self, run: Run, environments: Sequence[str] = ()) -> RunAgreement | None:
        """Of these environments besides those that the run has used. None where the run asks for nothing."""
        if run.min_agreement is None:
            return None
        judged = [pin.environment for pin in run.pins if "panel" in pin.parts]
        named = dict.fromkeys([*judged, *environments])
        standings = [
            await self._find_standing(judge, environment, run.min_agreement)
            for environment in named
            for judge in self._panels.resolve_options(environment, run.options).judges
        ]
        alarm = any(one.met is False for one in standings)
        return RunAgreement(wanted=run.min_agreement, alarm=alarm, judges=tuple(standings))

    async def require(self, run: Run, environments: Sequence[str]) -> None:
        """Conflict for a strict run whose judge agrees less with people than it asks for; else a warning, once for
        each measurement."""
        agreement = await self.check(run, environments)
        if agreement is None or not agreement.alarm:
            return
        worst = next(one for one in agreement.judges if one.met is False)
        words = (
            f"run {run.name!r} asks for an agreement of {agreement.wanted:g} with people; "
            f"that of judge {worst.judge!r} in {worst.environment} is only known to be above {worst.low:.2f}"
        )
        if run.strict:
            raise Conflict(f"{words}; take another judge, label more, or lower min_agreement", field="run")
        if self._warned.get(run.name) != worst:
            self._warned[run.name] = worst
            log.warning("%s", words)

    async def _find_standing(self, judge: str, environment: str, least: float) -> JudgeStanding:
        measured = await self._measure_kept(judge, environment)
        met = None if measured.low is None else measured.low >= least
        return JudgeStanding(judge=judge, environment=environment, groups=measured.groups, low=measured.low, met=met)

    async def _measure_kept(self, judge: str, environment: str) -> _Measurement:
        """All who ask at the same time wait for one measurement, which goes on when they leave."""
        kept = self._measurements.get((judge, environment))
        if kept is not None and kept.until > time.monotonic():
            return kept
        name = f"{judge} {environment}"
        flight = self._flights.find([name]).get(name)
        return await asyncio.shield(flight or self._flights.start([name], self._renew(judge, environment, kept)))

    async def _renew(self, judge: str, environment: str, kept: _Measurement | None) -> _Measurement:
        mark = await self._labels.find_mark(environment)
        if kept is None or kept.mark != mark:
            records = await self._labels.list_labelled(judge, (environment,), None)
            count, low = await asyncio.to_thread(self._measure, records)
        else:
            count, low = kept.groups, kept.low
        measurement = _Measurement(time.monotonic() + KEPT_SECONDS, mark, count, low)
        self._measurements[judge, environment] = measurement
        return measurement
