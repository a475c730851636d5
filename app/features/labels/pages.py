"""The page on which people label, blind, and what people said of a group on that group's page.

A labeller gets two replies of a group, side by side. The same two go to everybody who gets the group, so that people
can be compared. How far judges agree with people is shown only in steps of some labels.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from app.domain.access import Caller, KeyBounds
from app.domain.errors import GatewayError, InvalidRequest
from app.domain.faults import describe_faults
from app.domain.groups import Group
from app.domain.judge_measurements import MeasuredFigure, build_judge_command
from app.domain.labels import (
    GroupLabelRequest,
    Label,
    LabelledGroupRecord,
    Labeller,
    ReplyLabel,
    find_labeller,
)
from app.domain.values import digest
from app.evaluation.agreement import (
    FEWEST_GROUPS,
    AgreementCount,
    AgreementSlice,
    count_judge_pairs,
    count_levels,
    count_people_pairs,
    keep_whole_blocks,
    measure_judge_agreement,
)
from app.features.labels.model import ItemRequest, LabelItem, LabelProgress, ShownReply, SkipRequest
from app.features.labels.service import LabelService
from app.features.labels.store import LabelStore
from app.http.viewer.group_pages import MessageLine, build_lines, split_last_said
from app.http.viewer.rendering import (
    FormFields,
    JudgeEvidence,
    JudgeSource,
    PageLink,
    PageSection,
    Renderer,
    Word,
    build_link,
    read_fields,
    redirect,
)
from app.http.web.api_keys import CallerBounds, find_caller, needs
from app.http.web.routes import LazyRoute
from app.ports.environment import Clock
from app.service.access import BoundsCheck
from app.service.gateway import JudgeEntry

# What people said of a group, on its page.

_MOST_LABELS: Final = 50
_MOST_SAID: Final = 12
"""Replies and criteria of one label that are shown."""


@dataclass(frozen=True)
class _LabelLine:
    """What a person said of a group, with its completions as they are numbered on the page."""

    labeller: str
    on_behalf_of: str
    verified: bool
    at: datetime
    is_blind: bool
    """The queue chose the group."""
    order: str
    """Best first."""
    replies: tuple[str, ...]
    left_out: int
    comment: str


async def show_labels(labels: LabelStore, group: Group) -> PageSection:
    lines = build_labels(
        await labels.list_of_group(group.group_id, _MOST_LABELS), [one.rollout_id for one in group.rollouts]
    )
    return PageSection("group_labels.html", {"labels": lines}, {"labels": lines})


def link_group(group: Group) -> PageLink | None:
    """To where the group is labelled; None where there is nothing to label."""
    return PageLink("Label", f"/view/label?group={group.group_id}") if group.outcome == "scored" else None


def build_labels(labels: Sequence[Label], rollout_ids: Sequence[str]) -> tuple[_LabelLine, ...]:
    slots = {rollout_id: str(slot) for slot, rollout_id in enumerate(rollout_ids, 1)}
    return tuple(_build_label(label, slots) for label in labels)


def _build_label(label: Label, slots: Mapping[str, str]) -> _LabelLine:
    tiers = (" = ".join(slots.get(one, "?") for one in tier) for tier in label.order)
    said = [line for rollout_id, reply in label.replies.items() for line in _tell(reply, slots.get(rollout_id, "?"))]
    return _LabelLine(
        labeller=label.labeller,
        on_behalf_of=label.on_behalf_of,
        verified=label.verified,
        at=label.created_at,
        is_blind=label.kind == "queue",
        order=" > ".join(tiers),
        replies=tuple(said[:_MOST_SAID]),
        left_out=max(0, len(said) - _MOST_SAID),
        comment=label.comment,
    )


def _tell(reply: ReplyLabel, slot: str) -> list[str]:
    levels = (f"{name} {'does not apply' if level is None else level}" for name, level in reply.levels.items())
    defect = [] if reply.defect is None else ["a defect" if reply.defect else "no defect"]
    return [f"{slot}: {one}" for one in (*levels, *defect)]


# What labels say of a judge, on its page.


async def show_agreement(labelling: LabelService, judge: str) -> JudgeSource:
    evidence = await labelling.collect_evidence(judge, None, None)
    command = build_judge_command("agreement", judge, {})
    dates = [label.created_at for record in evidence.records for label in record.labels]
    found = await asyncio.to_thread(measure_judge_agreement, evidence.records)
    count = found.pairs.groups
    told = f"{count:,} labelled groups with an order"
    if count < FEWEST_GROUPS:
        told += f"; figures need {FEWEST_GROUPS}"
    return JudgeSource(
        title="Labels of your own",
        question="Groups that people here have ordered: does the judge order them likewise?",
        evidence=[JudgeEvidence(f"{told}.", _list_agreement(found), command, max(dates))] if dates else [],
        command=command,
        first=f"Label {FEWEST_GROUPS} groups on the page Label.",
    )


def _list_agreement(found: AgreementSlice) -> tuple[MeasuredFigure, ...]:
    """Those that have a value."""
    pairs, defects = found.pairs, found.defects
    listed = [
        ("pair accuracy", pairs.judge, pairs.groups, f"all equal: {pairs.constant:.3f}"),
        ("people with one another, shared pairs", pairs.people, pairs.shared_pairs, ""),
        ("judge, shared pairs", pairs.judge_on_shared, pairs.shared_pairs, ""),
        *(
            (f"kappa, {one.criterion}", one.kappa, one.groups, _describe_constant(one.constant))
            for one in found.criteria
        ),
        ("sound replies above faulty ones", defects.auc, defects.groups, "all equal: 0.500"),
    ]
    return tuple(
        MeasuredFigure(name=name, value=figure.value, low=figure.low, high=figure.high, trials=count, beside=beside)
        for name, figure, count, beside in listed
        if figure.value is not None
    )


def _describe_constant(share: float | None) -> str:
    return "" if share is None else f"{share:.0%} of the labels are at one level"


# What somebody who labels sends.

_LONGEST_SECONDS: Final = 86_400.0
_LEVELS: Final = frozenset("01234")
_Act = Literal["next", "send", "skip", "undo"]
_ACTS: Final[Mapping[str, _Act]] = {"next": "next", "send": "send", "skip": "skip", "undo": "undo"}


@dataclass(frozen=True)
class LabelForm:
    """The fields of a form, each once."""

    fields: Mapping[str, str]
    caller: Caller | None = None
    """Who labels; None where no key is needed, and the field `labeller` says it."""
    is_refused: bool = False
    """What was typed is shown again."""

    @classmethod
    def from_fields(cls, sent: FormFields, caller: Caller | None) -> "LabelForm":
        return cls({name: values[-1].strip() for name, values in sent.items()}, caller)

    def refill(self, name: str) -> str:
        """What to fill into a field."""
        return self.get(name) if self.is_refused else ""

    def get(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def names(self) -> dict[str, str]:
        """Who labels, as far as the fields say."""
        given = ("on_behalf_of",) if self.caller is not None else ("labeller", "on_behalf_of")
        return {name: self.get(name) for name in given if self.get(name)}

    @property
    def by(self) -> Labeller:
        """InvalidRequest where nobody is named."""
        return find_labeller(self.caller, self.names.get("labeller"), self.names.get("on_behalf_of"))

    @property
    def act(self) -> _Act:
        return _ACTS.get(self.get("act"), "next")

    def build_item_request(self) -> ItemRequest:
        """InvalidRequest naming the field."""
        named = {name: word for name in ("environment", "run") if (word := self.get(name))}
        try:
            return ItemRequest.model_validate(self.names | named)
        except ValidationError as error:
            raise InvalidRequest(_describe(error)) from error

    def build_label(self, now: float) -> GroupLabelRequest:
        """InvalidRequest where nothing was chosen, or what was is no label."""
        first, second = self.get("first"), self.get("second")
        orders = {"first": [[first], [second]], "second": [[second], [first]], "equal": [[first, second]]}
        replies = {
            reply: said for reply, side in ((first, "first"), (second, "second")) if (said := self._read_reply(side))
        }
        fields: dict[str, object] = {
            **self.names,
            "lease_id": self.get("lease") or None,
            "rubric_version": self.get("rubric") or None,
            "order": orders.get(self.get("choice"), []),
            "replies": replies,
            "comment": self.get("comment"),
            "seconds": _count_seconds(self.get("shown"), now),
        }
        try:
            return GroupLabelRequest.model_validate(fields)
        except ValidationError as error:
            raise InvalidRequest(_describe(error)) from error

    def build_skip(self) -> SkipRequest:
        """InvalidRequest where the item is not named."""
        try:
            return SkipRequest.model_validate({**self.names, "lease_id": self.get("lease")})
        except ValidationError as error:
            raise InvalidRequest(_describe(error)) from error

    def _read_reply(self, side: str) -> dict[str, object]:
        """What is said of one reply; empty where nothing is."""
        begun = f"level.{side}."
        levels = {
            name.removeprefix(begun): None if word == "none" else word
            for name, word in self.fields.items()
            if name.startswith(begun) and word
        }
        numbers = {name: int(word) if word is not None and word in _LEVELS else word for name, word in levels.items()}
        defect = {"yes": True, "no": False}.get(self.get(f"defect.{side}"))
        said = {"levels": numbers, "defect": defect}
        return {name: value for name, value in said.items() if value not in (None, {})}


def _count_seconds(shown: str, now: float) -> float | None:
    try:
        seconds = now - float(shown)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _LONGEST_SECONDS else None


def _describe(error: ValidationError) -> str:
    return describe_faults(error)


# The page: what the queue gives a labeller, or a group that they chose.

_MAX_FORM: Final = 100_000
"""Bytes."""
_BLOCK: Final = 10
"""Labels after which the agreement is counted again: one by one it would tell what a judge thinks of the last."""
_MOST_COUNTED: Final = 64
"""Counts that are remembered."""
_SIDES: Final = (("first", "A"), ("second", "B"))


def tell_task(replies: int, reason: str) -> str:
    """What somebody who labels is asked. `reason` says why there is nothing to label."""
    if replies:
        return "Which reply is better?" if replies > 1 else "How good is this reply?"
    return f"{reason[:1].upper()}{reason[1:]}." if reason else "Judge replies blind: say your name and begin."


@dataclass(frozen=True)
class _JudgeCount:
    """How far a judge and people agree so far, and people with one another on the same groups."""

    judge: str
    labels: int
    pairs: AgreementCount
    people: AgreementCount
    levels: tuple[AgreementCount, ...]


@dataclass(frozen=True)
class LabelPages:
    """Data for the page."""

    labelling: LabelService
    bounds: BoundsCheck
    judges: Callable[[], Sequence[JudgeEntry]]
    clock: Clock
    counted: dict[tuple[str, str | None, str | None], tuple[int, _JudgeCount]] = field(default_factory=dict)
    """By judge, environment and run: after how many blocks of labels it was counted, and what."""

    async def count_agreement(self, request: ItemRequest, progress: LabelProgress) -> list[_JudgeCount]:
        """Of each judge that scored something with a label."""
        environment = request.environment
        names = [judge.name for judge in self.judges() if environment is None or environment in judge.environments]
        block = progress.labelled // _BLOCK
        return [count for name in names if (count := await self._count(name, request, block)).labels]

    async def _count(self, judge: str, request: ItemRequest, block: int) -> _JudgeCount:
        key = (judge, request.environment, request.run)
        former = self.counted.get(key)
        if former is not None and former[0] == block:
            return former[1]
        evidence = await self.labelling.collect_evidence(*key)
        count = await asyncio.to_thread(_count_judge, judge, evidence.records)
        while len(self.counted) >= _MOST_COUNTED:
            self.counted.pop(next(iter(self.counted)))
        self.counted[key] = (block, count)
        return count


@dataclass(frozen=True)
class _BlindReply:
    side: str
    letter: str
    rollout_id: str
    lines: tuple[MessageLine, ...]


@dataclass(frozen=True)
class _LabelAnswer:
    """What came of a form: what is wrong with it, and the label that it stored."""

    problem: str = ""
    label_id: str = ""


def create_label_page_router(pages: LabelPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)
    shown = _LabelRendering(pages, renderer)

    @router.get("/view/label")
    @needs("label", "handler")
    async def begin(
        request: Request,
        bounds: CallerBounds,
        labeller: Word = "",
        on_behalf_of: Word = "",
        environment: Word = "",
        run: Word = "",
        group: Word = "",
    ) -> Response:
        """Nothing is handed out before somebody presses a button: a link must change nothing."""
        chosen, named = group.strip(), {"labeller": labeller, "on_behalf_of": on_behalf_of}
        fields = named | {"environment": environment, "run": run}
        form = LabelForm({name: word.strip() for name, word in fields.items()}, find_caller(request.scope))
        if not chosen:
            return await shown.render(request, bounds, form)
        return await shown.render_group(request, bounds, form, chosen)

    @router.post("/view/label")
    @needs("label", "handler")
    async def label(request: Request, bounds: CallerBounds) -> Response:
        form = LabelForm.from_fields(await read_fields(request, _MAX_FORM), find_caller(request.scope))
        try:
            item_request, by = form.build_item_request(), form.by
            bounds.require_run(item_request.run, "run")
            bounds.require_environment(item_request.environment, "environment")
        except GatewayError as error:
            return await shown.render(request, bounds, form, answer=_LabelAnswer(error.detail), status=error.status)
        answer = await _carry_out(pages, bounds, form, item_request)
        form = replace(form, is_refused=bool(answer.problem))
        if not form.get("lease") and answer.label_id:
            return redirect(request, f"/view/groups/{form.get('group')}")
        if not form.get("lease") and form.act == "send":
            return await shown.render_group(request, bounds, form, form.get("group"), answer)
        try:
            next_item = await pages.labelling.next_item(item_request, by)
        except GatewayError as error:
            return await shown.render(request, bounds, form, answer=_LabelAnswer(error.detail), status=error.status)
        return await shown.render(request, bounds, form, next_item.item, answer, reason=next_item.reason)

    return router


async def _carry_out(pages: LabelPages, bounds: KeyBounds, form: LabelForm, wanted: ItemRequest) -> _LabelAnswer:
    try:
        if form.get("lease"):
            await pages.labelling.require_item(bounds, form.get("lease"))
        if form.act == "send":
            await pages.bounds.require_group(bounds, form.get("group"))
            label = form.build_label(pages.clock().timestamp())
            return _LabelAnswer(
                label_id=(await pages.labelling.label_group(form.get("group"), label, form.by)).label_id
            )
        if form.act == "skip":
            await pages.labelling.skip(form.build_skip(), form.by)
        elif form.act == "undo":
            await pages.labelling.require_label(bounds, form.get("label"))
            await pages.labelling.withdraw(form.get("label"), form.by, wanted.lease_seconds)
    except GatewayError as error:
        return _LabelAnswer(error.detail)
    return _LabelAnswer()


@dataclass(frozen=True)
class _LabelRendering:
    pages: LabelPages
    renderer: Renderer

    async def render_group(
        self,
        request: Request,
        bounds: KeyBounds,
        form: LabelForm,
        group_id: str,
        answer: _LabelAnswer = _LabelAnswer(),
    ) -> Response:
        """A group that somebody chose, if the caller may see it."""
        try:
            await self.pages.bounds.require_group(bounds, group_id)
            item = await self.pages.labelling.show_group(group_id)
        except GatewayError as error:
            return await self.render(request, bounds, form, answer=_LabelAnswer(error.detail), status=error.status)
        return await self.render(request, bounds, form, item, answer)

    async def render(
        self,
        request: Request,
        bounds: KeyBounds,
        form: LabelForm,
        item: LabelItem | None = None,
        answer: _LabelAnswer = _LabelAnswer(),
        *,
        reason: str = "",
        status: int = 200,
    ) -> Response:
        progress, counts = await self._look(request, bounds, form)
        data = {"item": item, "reason": reason, "progress": progress, "agreement": counts, "problem": answer.problem}
        asked, before = split_last_said(() if item is None else item.messages)
        replies = () if item is None else _build_pair(item)
        shown = {
            "form": form,
            "environments": [
                name for name in self.pages.labelling.list_environments(None) if bounds.allows_environment(name)
            ],
            "asked": asked,
            "before": before,
            "replies": replies,
            "says": tell_task(len(replies), reason),
            "label_id": answer.label_id,
            "again": build_link(
                "/view/label", **form.names, **{name: form.get(name) for name in ("environment", "run")}
            ),
            "begun": form.refill("shown") or str(self.pages.clock().timestamp()),
        }
        return self.renderer.render(request, "label.html", data | shown, data, status)

    async def _look(
        self, request: Request, bounds: KeyBounds, form: LabelForm
    ) -> tuple[LabelProgress | None, list[_JudgeCount]]:
        """Of what the caller may see: a key that may label only is shown no agreement, one that is bound nothing of
        others."""
        try:
            item_request = form.build_item_request()
            bounds.require_run(item_request.run)
            bounds.require_environment(item_request.environment)
            progress = await self.pages.labelling.count_progress(item_request, form.by)
        except GatewayError:
            return None, []
        may_read = form.caller is None or form.caller.has("read")
        return progress, await self.pages.count_agreement(item_request, progress) if may_read else []


def _build_pair(item: LabelItem) -> tuple[_BlindReply, ...]:
    """Two replies, the same ones for everybody who gets the group, so that people can be compared. Which of them is A
    is of the item alone."""
    chosen = {
        one.rollout_id for one in sorted(item.replies, key=lambda one: digest([item.group_id, one.rollout_id]))[:2]
    }
    pair: list[ShownReply] = [one for one in item.replies if one.rollout_id in chosen]
    return tuple(
        _BlindReply(side, letter, one.rollout_id, build_lines(one.messages))
        for (side, letter), one in zip(_SIDES, pair, strict=False)
    )


def _count_judge(judge: str, records: Sequence[LabelledGroupRecord]) -> _JudgeCount:
    whole = keep_whole_blocks(records, _BLOCK)
    return _JudgeCount(
        judge=judge,
        labels=sum(len(record.labels) for record in whole),
        pairs=count_judge_pairs(whole),
        people=count_people_pairs(whole),
        levels=count_levels(whole),
    )
