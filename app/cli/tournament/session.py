"""One start of `tournament`: who takes part, what it costs, the duels, the report.

A duel sends two stored replies to the gateway as one group of a run that is pinned to the judge, pairwise and with one
vote, so that the judge reads the pair in both orders. The same replies are the same group, so a start finds by them
what its run holds of the plan. A gate decides before the judge does, equal replies tie, and a duel without an outcome
says why; none is guessed. Nothing is asked of a judge before the cost was said and somebody has gone on."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from app.cli.campaigns import (
    Campaign,
    CampaignOutcome,
    PlanFile,
    conclude,
    find_finish_time,
    resume,
    sum_judgement_usd,
    write_document,
)
from app.cli.costs import JudgingCost
from app.cli.policies import TaskSkipped
from app.cli.tournament.contestants import (
    PlannedDuel,
    StoredReply,
    TournamentLedger,
    TournamentOptions,
    TournamentPlan,
    describe_spending,
    estimate_duels,
    find_judge,
    find_notice,
    find_shared_rubric,
    load_entrants,
    plan_duels,
    require_judged,
    require_stranger,
)
from app.domain.errors import RequestRefused
from app.domain.groups import Group
from app.domain.judging import Judgement
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion
from app.evaluation.duels import Duel, DuelReading, Side, TournamentReport, TournamentSetup
from app.evaluation.tournament import build_tournament_report
from app.http.api.models import JudgeInfo
from app.service.requests import compute_group_id
from app.service.runs import RunSettings
from app.terminal.client import AnsweredTask, GatewayClient, Retrier, describe_url
from app.terminal.consoles import GoOn, Standing, show_progress

# Judging of duels.

_MOST_IN_A_ROW: Final = 24
"""Duels without an outcome after which the tournament stops."""
_SIDES: Final[tuple[Side, Side]] = ("one", "other")
_PAGE: Final = 500
"""Groups of one request."""


class _ReplyMissing(Exception):
    """A stored reply cannot be read any more."""


@dataclass
class _ReplyCache:
    """Of one start: each stored reply is read once while a duel is open that needs it."""

    campaign: Campaign
    _asked: dict[StoredReply, "asyncio.Task[Completion]"] = field(default_factory=dict)

    async def load(self, reply: StoredReply) -> Completion:
        """Without token ids and what the trainer attached. ReplyMissing where the text is not kept."""
        if reply not in self._asked:
            self._asked[reply] = asyncio.ensure_future(self._fetch(reply))
        return await self._asked[reply]

    async def _fetch(self, reply: StoredReply) -> Completion:
        try:
            group = (await self.campaign.fetch_group(reply.group_id)).group
        except RequestRefused as error:
            raise _ReplyMissing(error.detail) from error
        if reply.place >= len(group.rollouts):
            raise _ReplyMissing("the group has fewer completions than when the tournament began")
        rollout = group.rollouts[reply.place]
        if rollout.reduced is not None and rollout.reduced.text is not None:
            raise _ReplyMissing("what it said is not kept")
        return rollout.completion.model_copy(update={"token_ids": None, "logprobs": None, "extra": {}})

    def forget(self, reply: StoredReply) -> None:
        self._asked.pop(reply, None)


@dataclass(frozen=True)
class _DuelRunner:
    campaign: Campaign
    replies: _ReplyCache
    ledger: TournamentLedger
    concurrency: int

    @property
    def _run(self) -> str:
        """Of the plan: one that lies in the folder may have another than this start was given."""
        return self.ledger.plan.options.run

    async def recall(self) -> None:
        """What the run holds. Nothing is sent, and first only replies to tasks that the run holds are read."""
        if await self.campaign.gateway.fetch_run(self._run) is None:
            return
        held = await self._list_held()
        places = [place for place, planned in enumerate(self.ledger.plan.duels) if planned.task_id in held]
        await self._settle_all(places, held)
        left = self.ledger.list_open()
        if places and not {*places} & {*left}:  # it may be done: equal replies were never sent
            await self._settle_all(left, held)

    async def judge_all(self) -> None:
        """Returns when there is nothing left to do, or after a stop. InvalidRequest when no duel gets an outcome,
        Unavailable when the gateway stays unreachable."""
        await self._settle_all(self.ledger.list_open(), None)

    async def _settle_all(self, places: Sequence[int], held: Mapping[str, set[str]] | None) -> None:
        """`held`: the groups by task by which alone duels are settled; None where pairs are sent."""
        duels = self.ledger.plan.duels
        needed = Counter(reply for place in self.ledger.list_open() for reply in duels[place].replies)

        async def settle(place: int) -> None:
            duel = await self._settle(duels[place], held)
            if duel is None:
                return
            self.ledger.judged[place] = duel
            if held is None:
                self.campaign.note_result(None if duel.readings else duel.reason)
            if held is None or duel.readings:  # this duel is not settled again
                needed.subtract(duels[place].replies)
                for reply in duels[place].replies:
                    if not needed[reply]:
                        self.replies.forget(reply)

        await self.campaign.work_through(places, settle, self.concurrency)

    async def _settle(self, planned: PlannedDuel, held: Mapping[str, set[str]] | None) -> Duel | None:
        """None where the run does not hold it."""
        try:
            completions = [await self.replies.load(reply) for reply in planned.replies]
        except _ReplyMissing as missing:
            return planned.build_duel(reason=f"not kept: {missing}"[:300])
        if completions[0].identity_digest == completions[1].identity_digest:
            return planned.build_duel(decided_by="same", readings=_mirror("tie"))
        if held is not None:
            group_id = compute_group_id(planned.task_id, self._run, None, "eval", completions)
            return await self._read(planned, group_id) if group_id in held.get(planned.task_id, ()) else None
        try:
            reply = await self.campaign.score(AnsweredTask(planned.task_id, None, completions))
        except TaskSkipped as refused:
            return planned.build_duel(reason=f"{refused.reason}: {refused.detail}"[:300])
        return await self._read(planned, reply.group_id)

    async def _read(self, planned: PlannedDuel, group_id: str) -> Duel | None:
        view = await self.campaign.fetch_group(group_id)
        if view.group.outcome == "pending":
            return None
        return planned.build_duel(group_id=group_id, **_read_outcome(view.group, view.judgements))

    async def _list_held(self) -> dict[str, set[str]]:
        """The groups of the run by task."""
        query, before = {"run": self._run, "purpose": "eval", "limit": str(_PAGE)}, None
        held: dict[str, set[str]] = {}
        while True:
            page = await self.campaign.list_groups(query if before is None else {**query, "before": str(before)})
            for group in page.groups:
                held.setdefault(group.task_id, set()).add(group.group_id)
            before = page.next_before
            if before is None:
                return held


def _read_outcome(group: Group, judgements: Sequence[Judgement]) -> dict[str, object]:
    """Who won in which order. A gate goes before the judge, and equal replies tie."""
    spent = {
        "calls": sum(judgement.calls for judgement in judgements if not judgement.cached),
        "usd": sum_judgement_usd(judgements),
    }
    reasons = [score.reason for score in group.scores if score.reason is not None]
    if reasons:
        return {"reason": reasons[0], **spent}
    passed = [score.gate != 0 for score in group.scores]
    if not all(passed):
        better = "tie" if not any(passed) else "one" if passed[0] else "other"
        return {"decided_by": "gate", "readings": _mirror(better), **spent}
    one, other = (score.candidate for score in group.scores)
    if one == other:
        return {"decided_by": "same", "readings": _mirror("tie"), **spent}
    sides: dict[str, Side] = {one: "one", other: "other"}
    readings = {
        reading.shown_first: reading
        for judgement in judgements
        if judgement.purpose == "score" and judgement.error is None and set(judgement.order) == sides.keys()
        for reading in (_read_judgement(judgement, sides),)
    }  # where a pair was sent again, the last reading counts
    if len(readings) < len(_SIDES):
        return {"reason": "only one order was read", **spent}
    return {"decided_by": "judge", "readings": [readings[side] for side in _SIDES], **spent}


def _mirror(better: str) -> list[DuelReading]:
    return [DuelReading.model_validate({"shown_first": side, "better": better}) for side in _SIDES]


def _read_judgement(judgement: Judgement, sides: dict[str, Side]) -> DuelReading:
    best = judgement.ranking[0] if judgement.ranking else judgement.order
    return DuelReading(shown_first=sides[judgement.order[0]], better="tie" if len(best) > 1 else sides[best[0]])


# The session.

REPORT: Final = "tournament"


@dataclass(frozen=True)
class _TournamentStart:
    """What was checked before anything is spent or written. `options` are those of the run of the pairs."""

    judge: JudgeInfo
    models: dict[str, str]
    """Of all judges, by name."""
    ledger: TournamentLedger
    replies: _ReplyCache
    options: ScoringOptions

    def tell_notice(self) -> str:
        return find_notice(self.judge, self.ledger.plan.contestants, self.models)


@dataclass(frozen=True)
class TournamentSession:
    options: TournamentOptions
    out: Path
    allows_same_model: bool
    concurrency: int
    patience_seconds: float
    gateway_url: str
    console: Console
    go_on: GoOn
    retry_seconds: float = 1.0

    async def dry_run(self, gateway: GatewayClient) -> CampaignOutcome[TournamentReport]:
        """Begins no run and writes nothing."""
        campaign = self._begin(gateway)
        await self._tell_cost(campaign, await self._prepare(campaign))
        return CampaignOutcome(None)

    async def hold(self, gateway: GatewayClient) -> CampaignOutcome[TournamentReport]:
        """Nothing is begun before somebody goes on."""
        campaign = self._begin(gateway)
        start = await self._prepare(campaign)
        plan, is_open = start.ledger.plan, bool(start.ledger.list_open())
        if is_open:
            cost = await self._tell_cost(campaign, start)
            if not self.go_on(cost.most_usd):
                return CampaignOutcome(None, stopped=True)
            await gateway.put_run(self.options.run, RunSettings(seed=0, options=start.options))
        with self._file.hold():
            self._file.write(plan)
            setup = await self._build_setup(gateway, start.judge, plan)
            return await conclude(self._judge_duels(campaign, start), lambda: self._write_report(start, setup))

    def _begin(self, gateway: GatewayClient) -> Campaign:
        return Campaign(
            gateway=gateway,
            patience=Retrier(ends_after=self.patience_seconds),
            run=self.options.run,
            unit="duels",
            most_in_a_row=_MOST_IN_A_ROW,
            comes_to_nothing="got no outcome",
            retry_seconds=self.retry_seconds,
        )

    @property
    def _file(self) -> PlanFile[TournamentPlan]:
        return PlanFile(self.out / f"{REPORT}.plan.json", TournamentPlan)

    async def _load_ledger(self, campaign: Campaign, replies: _ReplyCache, plan: TournamentPlan) -> TournamentLedger:
        ledger = TournamentLedger(plan)
        await _DuelRunner(campaign, replies, ledger, self.concurrency).recall()
        return ledger

    async def _tell_cost(self, campaign: Campaign, start: _TournamentStart) -> JudgingCost:
        duels = [start.ledger.plan.duels[place] for place in start.ledger.list_open()]
        cost = await estimate_duels(campaign.gateway, campaign.patience, duels, start.judge)
        self._say(start.tell_notice())
        self._say(f"{len(duels):,} duels, {cost.describe()}; retries come on top")
        return cost

    async def _prepare(self, campaign: Campaign) -> _TournamentStart:
        """Checks everything before anything is spent."""
        gateway, before = campaign.gateway, self._file.read()
        judges = {judge.name: judge for judge in (await gateway.list_judges()).judges}
        judge, models = find_judge(judges, self.options.judge), {judge.name: judge.model for judge in judges.values()}
        entrants = await load_entrants(gateway, self.options.contestants, self.options.environment)
        plan = plan_duels(entrants, self.options)
        for name in sorted({duel.environment for duel in plan.duels}):
            await require_judged(gateway, name)
        if not self.allows_same_model:
            require_stranger(judge, plan.contestants, models)
        rubric = await find_shared_rubric(gateway, entrants)
        options = ScoringOptions(mode="pairwise", votes=1, judges=(judge.name,), calibration_share=0.0, rubric=rubric)
        replies = _ReplyCache(campaign)
        ledger = await resume(self._file.path, before, plan, lambda one: self._load_ledger(campaign, replies, one))
        return _TournamentStart(judge, models, ledger, replies, options)

    async def _judge_duels(self, campaign: Campaign, start: _TournamentStart) -> bool:
        """Whether all were judged."""
        ledger = start.ledger

        def tell() -> Standing:
            done = len(ledger.plan.duels) - len(ledger.list_open())
            return Standing(done, [describe_spending(ledger.judged.values()), *campaign.patience.list_waits()])

        if not ledger.list_open():
            return True
        runner = _DuelRunner(campaign, start.replies, ledger, self.concurrency)
        async with show_progress(self.console, "duels", "duels", len(ledger.plan.duels), tell) as display:
            return await campaign.follow(runner.judge_all(), display)

    async def _build_setup(self, gateway: GatewayClient, judge: JudgeInfo, plan: TournamentPlan) -> TournamentSetup:
        return TournamentSetup(
            judge=judge.name,
            judge_model=judge.model,
            environments=tuple(sorted({duel.environment for duel in plan.duels})),
            contestants=plan.contestants,
            run=self.options.run,
            seed=self.options.seed,
            tasks=len({duel.task_id for duel in plan.duels}),
            gateway=await gateway.fetch_version(),
            gateway_url=describe_url(self.gateway_url),
            started_at=plan.began_at,
        )

    def _write_report(self, start: _TournamentStart, setup: TournamentSetup) -> TournamentReport:
        duels, json = start.ledger.list_duels(), self.out / f"{REPORT}.json"
        finished_at = find_finish_time(json) if all(duel.readings or duel.reason for duel in duels) else None
        report = build_tournament_report(setup, duels, start.tell_notice(), finished_at)
        write_document(self.out / f"{REPORT}.html", json, report)
        return report

    def _say(self, words: str) -> None:
        if words:
            self.console.print(words, highlight=False, markup=False, soft_wrap=True)
