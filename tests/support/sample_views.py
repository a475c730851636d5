"""Groups to look at, behind an in-memory `Views`."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter

from app.domain.groups import (
    FoundGroups,
    Group,
    GroupDetail,
    GroupFilter,
    GroupSummary,
    Rollout,
    Scoring,
    StoredScores,
    TaskPrompt,
    TaskRecord,
)
from app.domain.judge_measurements import JudgeMeasurement
from app.domain.judging import Judgement, summarise_scores
from app.domain.rollups import Rollup, RollupFilter
from app.domain.runs import Policy, ScoringOptions
from app.domain.scores import Outcome, Score
from app.domain.tasks import Completion, TaskKey
from app.http.viewer.group_pages import FindRubric, find_no_rubric
from app.http.viewer.pages import create_viewer_router
from app.http.web.api_keys import KeyRing
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.http.web.openapi import install_docs
from app.service.gateway import JudgeEntry
from app.store.views import FoundOutlines, GroupOutline, GroupViews
from tests.support.sample_texts import HOSTILE
from tests.support.tables import read_table

Word = str | None
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LATER = NOON + timedelta(days=9)

_SAMPLES = read_table(__file__, "sample_views.yaml", dict[str, Any])
JUDGES = TypeAdapter(tuple[JudgeEntry, ...]).validate_python(_SAMPLES["judges"])


def group_of(
    number: int,
    environment: str,
    prompt: TaskPrompt,
    rollouts: Sequence[tuple[Completion, Score]],
    *,
    judgements: tuple[Judgement, ...] = (),
    run: str | None = "night-watch",
    outcome: Outcome = "scored",
    flags: tuple[str, ...] = (),
) -> GroupDetail:
    group = Group(
        group_id=f"group_{number:032x}",
        task_id=f"task_{number:032x}",
        environment=environment,
        run=run,
        lease_id=f"lease_{number:032x}",
        policy=Policy(model="qwen3-8b", step=120 + number),
        purpose="train",
        outcome=outcome,
        flags=flags,
        rollouts=tuple(
            Rollout(rollout_id=f"rollout_{number:028x}{slot:04x}", completion=completion, score=score)
            for slot, (completion, score) in enumerate(rollouts)
        ),
        created_at=NOON + timedelta(minutes=7 * number),
    )
    key = TaskKey(environment=environment, version="1", data_digest="d" * 32, split="train", index=number, params={})
    return GroupDetail(
        group=group, task=TaskRecord(task_id=group.task_id, key=key, prompt=prompt), judgements=judgements
    )


def stored_group(number: int, name: str) -> GroupDetail:
    """One of sample_views.yaml."""
    stored = dict(_SAMPLES["groups"][name])
    prompt = TaskPrompt.model_validate(stored.pop("prompt"))
    rollouts = [
        (Completion.model_validate(one["completion"]), Score.model_validate(one["score"]))
        for one in stored.pop("rollouts")
    ]
    stored["judgements"] = tuple(map(Judgement.model_validate, stored.get("judgements", ())))
    return group_of(number, stored.pop("environment"), prompt, rollouts, **stored)


def npc_group(number: int) -> GroupDetail:
    return stored_group(number, "npc")


def scored_again(detail: GroupDetail, judge: str, rewards: Sequence[float | None]) -> GroupDetail:
    """The group with a scoring more; None is a completion that the judge failed at."""
    scores = tuple(
        Score.unscored("judge_failed")
        if reward is None
        else Score(
            outcome="scored", reward=reward, candidate=f"Z{place}", judges=(judge,), rationale=f"{judge} says so"
        )
        for place, reward in enumerate(rewards)
    )
    judgement = Judgement(
        judge=judge,
        model=f"{judge}-12b",
        order=tuple(score.candidate for score in scores if score.candidate),
        prompt="Read them again.",
        raw="{}",
        cost_usd=0.002,
        calls=1,
    )
    scoring = Scoring(
        scoring_id=f"scoring_{len(detail.scorings):032x}",
        group_id=detail.group.group_id,
        scoring_digest="e" * 32,
        options=ScoringOptions(judges=("careful",), relative_weight=0.25),
        judges=(judge,),
        mode="pairwise",
        outcome="unscored" if None in rewards else "scored",
        flags=("task_remade",),
        scores=scores,
        judgements=(judgement,),
        created_at=NOON + timedelta(days=1 + len(detail.scorings)),
    )
    return detail.model_copy(update={"scorings": (*detail.scorings, scoring)})


def rescored_group(number: int) -> GroupDetail:
    once = scored_again(npc_group(number), "strict", (0.18, 0.5, 0.0, 0.75, None))
    return scored_again(once, "offline", (0.3, 0.8, 0.0, 0.4, 0.2))


def gsm8k_group(number: int) -> GroupDetail:
    return stored_group(number, "gsm8k")


def hostile_group(number: int) -> GroupDetail:
    return scored_again(stored_group(number, "hostile"), HOSTILE, (1.0, 0.5, 0.25, None))


def pending_group(number: int) -> GroupDetail:
    return stored_group(number, "pending")


def sample_groups() -> list[GroupDetail]:
    return [
        npc_group(1),
        gsm8k_group(2),
        pending_group(3),
        stored_group(4, "unscored"),
        hostile_group(5),
        rescored_group(6),
        stored_group(7, "agent"),
    ]


def summary_of(sequence: int, detail: GroupDetail) -> GroupSummary:
    group = detail.group
    scores = [rollout.score for rollout in group.rollouts]
    statistics = summarise_scores(scores)
    names = ("group_id", "task_id", "environment", "run", "policy", "purpose", "outcome", "flags", "created_at")
    return GroupSummary(
        **{name: getattr(group, name) for name in names},
        sequence=sequence,
        size=len(scores),
        mean=statistics.mean,
        std=statistics.std,
        rewards=tuple(score.reward for score in scores),
        title=(detail.task.prompt.messages[-1].content or "")[:160],
    )


class MemoryViews(GroupViews):
    """Over a list, without a database; sequences are places in it, counted from 1."""

    def __init__(self, details: Sequence[GroupDetail]) -> None:
        self.uncounted = 0
        self._details = {detail.group.group_id: detail for detail in details}
        self._summaries = [summary_of(place, detail) for place, detail in enumerate(details, start=1)]

    def _list_groups(self, where: GroupFilter) -> list[GroupSummary]:
        return [
            summary
            for summary in reversed(self._summaries)
            if where.environment in (None, summary.environment)
            and where.run in (None, summary.run)
            and where.outcome in (None, summary.outcome)
            and (where.before is None or summary.sequence < where.before)
        ]

    async def find_groups(self, where: GroupFilter) -> FoundGroups:
        everything = self._list_groups(where)
        found = everything if where.after is None else [one for one in everything[::-1] if one.sequence > where.after]
        rest = found[where.limit - 1].sequence if len(found) > where.limit else None
        return FoundGroups(groups=(*found[: where.limit],), next_before=rest, looked_at=len(found), matched=len(found))

    async def get_group(self, group_id: str) -> GroupDetail | None:
        return self._details.get(group_id)

    async def load_scores(self, group_ids: Sequence[str]) -> Mapping[str, StoredScores]:
        return {one: StoredScores(scores=self._details[one].group.scores) for one in group_ids}

    async def list_rollups(self, where: RollupFilter) -> list[Rollup]:
        return []

    async def count_uncounted(self) -> int:
        return self.uncounted

    async def find_outlines(self, where: GroupFilter) -> FoundOutlines:
        found = await self.find_groups(where)
        outlines = (
            GroupOutline(one.sequence, one.task_id, sum(reward is not None for reward in one.rewards), one.created_at)
            for one in found.groups
        )
        return FoundOutlines(tuple(outlines), found.next_before, found.looked_at)

    async def load_summaries(self, sequences: Sequence[int]) -> list[GroupSummary]:
        listed = {one.sequence: one for one in (await self.find_groups(GroupFilter(limit=10_000))).groups}
        return [listed[sequence] for sequence in sequences]


ENVIRONMENTS = ("gsm8k", "npc_arena", "rlaif")


MEASURED = TypeAdapter(tuple[JudgeMeasurement, ...]).validate_python(_SAMPLES["measured"])


async def find_sample_measurements(judge: str) -> Sequence[tuple[JudgeMeasurement, bool]]:
    return [(one, one.judge_digest == "now") for one in MEASURED if one.judge == judge]


def viewer_app(details: Sequence[GroupDetail], *, find_rubric: FindRubric = find_no_rubric) -> FastAPI:
    app, views = FastAPI(docs_url=None, redoc_url=None), MemoryViews(details)
    app.include_router(
        create_viewer_router(
            views,
            ENVIRONMENTS,
            lambda: JUDGES,
            find_rubric=find_rubric,
            clock=lambda: LATER,
            find_measurements=find_sample_measurements,
        )
    )
    install_docs(app)
    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True)))
    return app
