"""What `evaluate`, `process` and `tournament` have in common: a campaign that asks a gateway for many scores.

A plan is written before anything is spent, and the gateway is the ledger of the rest: a start asks what the run holds
of the plan and does what is missing, so that no judge is paid again. Several hands work, until nothing is left,
somebody stops it, or too much in a row comes to nothing, since something is then wrong with all of it. What was done
until then is reported. (`process` hands groups to a trainer, of which the gateway does not know: it alone keeps a
journal.)"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlencode

import typer
from pydantic import AwareDatetime, JsonValue, TypeAdapter, ValidationError

from app.cli.policies import GATEWAY, TaskSkipped, gather_or_cancel
from app.domain.errors import GatewayError, Gone, InvalidRequest, NotFound, UserError
from app.domain.judging import Judgement, summarise_scores
from app.domain.low_rewards import Finding, explain_low_rewards
from app.domain.rollups import MeasureMap, Rollup, RollupKey, measure_scores, merge_measures
from app.domain.runs import Purpose
from app.domain.scores import Score
from app.domain.values import Frozen, Name
from app.evaluation.comparison import Document, render_html
from app.http.api.models import GroupPage, GroupView
from app.service.requests import GroupReply
from app.terminal.client import AnsweredTask, GatewayClient, Retrier, describe_url, stop_on_signals
from app.terminal.consoles import ProgressDisplay, tell_report
from app.terminal.files import hold_file, require_same_options, write_file

ItemT = TypeVar("ItemT")

_NAME: Final = TypeAdapter(Name)


def check_run_name(name: str, option: str = "--run") -> str:
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        raise UserError(f"{option}: use at most 64 lower-case letters, digits, - and _") from error


# The plan, and what the run holds of it.


class Plan(Protocol):
    @property
    def options(self) -> Frozen:
        """Those that must stay the same when it is resumed under one --out."""

    @property
    def digest(self) -> str:
        """The same for the same work, whenever it began."""


PlanT = TypeVar("PlanT", bound=Frozen)


class Ledger(Protocol):
    @property
    def plan(self) -> Plan: ...

    @property
    def holds_results(self) -> bool:
        """Whether the run has something of it that another plan under the same --out would hide."""


LedgerT = TypeVar("LedgerT", bound=Ledger)


@dataclass(frozen=True)
class PlanFile(Generic[PlanT]):
    """The file of a command's plan, which is all that its folder keeps beside the report."""

    path: Path
    kind: type[PlanT]

    def read(self) -> PlanT | None:
        """None for a new folder. UserError for one of an earlier version, which kept a journal."""
        command = self.path.name.partition(".")[0]
        if self.path.with_name(f"{command}.journal").exists():
            raise UserError(
                f"{self.path.parent} holds {'an' if command[0] in 'aeiou' else 'a'} {command} that an earlier version "
                "began with a journal: use another --out"
            )
        try:
            return self.kind.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise UserError(f"{self.path}: not a plan of this command") from error

    def write(self, plan: PlanT) -> None:
        write_file(self.path, (plan.model_dump_json(indent=1), "\n"))

    def hold(self) -> AbstractContextManager[None]:
        """For one process at a time."""
        return hold_file(self.path)


async def resume(path: Path, before: Plan | None, now: Plan, load: Callable[[Any], Awaitable[LedgerT]]) -> LedgerT:
    """What the run holds of the plan: of the one `before` that lies in the folder where it had results. UserError where
    that was of other options."""
    if before is None or before.digest == now.digest:
        return await load(before or now)
    earlier = await load(before)
    if not earlier.holds_results:
        return await load(now)
    require_same_options(path, before.options, now.options)
    return earlier


# The work.

_MOST_SENDS: Final = 3
"""Times that an unscored group is sent."""


@dataclass
class Campaign:
    """One start. `unit`: what is worked through, in the plural."""

    gateway: GatewayClient
    patience: Retrier
    run: str
    unit: str
    most_in_a_row: int
    """Pieces of work that may come to nothing one after the other before it gives up."""
    comes_to_nothing: str
    """What is said of these, such as `got no score`."""
    policy: Mapping[str, JsonValue] | None = None
    purpose: Purpose = "eval"
    retry_seconds: float = 1.0
    in_hand: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing more is begun."""
    _in_a_row: int = 0

    async def work_through(
        self, items: Iterable[ItemT], handle: Callable[[ItemT], Awaitable[None]], hands: int
    ) -> None:
        """So many at once, until there are none or it is stopped."""
        waiting = iter(items)

        async def work() -> None:
            for item in waiting:
                if self.stop.is_set():
                    return
                self.in_hand += 1
                await handle(item)
                self.in_hand -= 1

        await gather_or_cancel([work() for _ in range(hands)])

    async def send(self, sent: AnsweredTask, wait_seconds: float | None = None) -> GroupReply:
        """The gateway has it when this returns. TaskSkipped where it is refused."""
        try:
            replies = await self.patience.retry_until_answered(
                GATEWAY,
                lambda: self.gateway.score([sent], self.run, self.policy, self.purpose, wait_seconds),
            )
        except (NotFound, Gone) as error:  # of this piece: others may go on
            raise TaskSkipped(error.code, error.detail) from error
        except InvalidRequest as error:
            raise TaskSkipped("gateway_refused", error.detail) from error
        if not isinstance(replies[0], GroupReply):
            raise TaskSkipped(replies[0].code, replies[0].detail)
        return replies[0]

    async def score(self, sent: AnsweredTask) -> GroupReply:
        """Sent again, a few times, while something of it has no score: what has one is not judged again."""
        reply = await self.send(sent)
        for attempt in range(1, _MOST_SENDS):
            if reply.outcome == "scored":
                break
            await asyncio.sleep(self.retry_seconds * 2**attempt)
            reply = await self.send(sent)
        return reply

    async def fetch_group(self, group_id: str) -> GroupView:
        return await self.patience.retry_until_answered(GATEWAY, lambda: self.gateway.fetch_group(group_id))

    async def find_group(self, group_id: str) -> GroupView | None:
        return await self.patience.retry_until_answered(GATEWAY, lambda: self.gateway.find_group(group_id))

    async def list_groups(self, query: Mapping[str, str]) -> GroupPage:
        return await self.patience.retry_until_answered(GATEWAY, lambda: self.gateway.list_groups(query))

    def note_result(self, fault: str | None) -> None:
        """Why a piece of work came to nothing; None for one that came to something. InvalidRequest after too many."""
        self._in_a_row = 0 if fault is None else self._in_a_row + 1
        if self._in_a_row >= self.most_in_a_row:
            raise InvalidRequest(
                f"{self.most_in_a_row} {self.unit} in a row {self.comes_to_nothing}; last reason: {fault}"
            )

    async def follow(
        self,
        work: Coroutine[Any, Any, None],
        display: ProgressDisplay,
        count_in_hand: Callable[[], int] | None = None,
    ) -> bool:
        """Whether the work was completed. Ctrl-C has what is in hand finished; a second one leaves it to the next
        start. `count_in_hand`: for work that is not done by `work_through`."""
        doing = asyncio.create_task(work)

        def stop() -> None:
            if self.stop.is_set():
                doing.cancel()
                return
            self.stop.set()
            running = self.in_hand if count_in_hand is None else count_in_hand()
            display.say(f"finishing {running} running {self.unit}; press Ctrl-C again to leave them for the next start")

        try:
            with stop_on_signals(stop):
                await doing
        except asyncio.CancelledError:
            if not self.stop.is_set():
                raise
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
        return not self.stop.is_set()


@dataclass
class RewardTally:
    """Why replies of this start earn little: each cause is said once while it happens, and its last count at the end.
    `max_tokens` is the limit of a reply."""

    gateway_url: str
    run: str
    purpose: Purpose
    max_tokens: int
    say: Callable[[str], None]
    _measures: MeasureMap = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    """The last line of each cause."""

    def add_scores(self, scores: Sequence[Score]) -> None:
        self._measures = merge_measures((self._measures, measure_scores(scores, summarise_scores(scores))))
        for finding in self._find_causes():
            if self._name(finding) not in self._said:
                self._tell(finding)

    def conclude(self) -> None:
        """Tells what has changed since it was said."""
        for finding in self._find_causes():
            self._tell(finding)

    def _find_causes(self) -> Sequence[Finding]:
        counts = Rollup(RollupKey("run", "", self.run, self.purpose), self._measures)
        return explain_low_rewards(counts, max_tokens=self.max_tokens, purpose=self.purpose)

    def _tell(self, finding: Finding) -> None:
        wanted = {"run": self.run, "flag": finding.flag, "reason": finding.reason}
        found = urlencode({name: value for name, value in wanted.items() if value})
        line = f"{finding.sentence} Examples: {describe_url(self.gateway_url)}/view/groups?{found}"
        if self._said.get(self._name(finding)) != line:
            self._said[self._name(finding)] = line
            self.say(line)

    def _name(self, finding: Finding) -> str:
        return finding.reason or finding.flag


def sum_judgement_usd(judgements: Sequence[Judgement]) -> float | None:
    """Cost of these judgements; None where a judge that was called has no price."""
    paid = [one for one in judgements if one.calls and not one.cached]
    if any(one.cost_usd is None for one in paid):
        return None
    return sum((one.cost_usd or 0.0) + one.unanswered_usd for one in paid)


# The report.

ReportT = TypeVar("ReportT")


@dataclass(frozen=True)
class CampaignOutcome(Generic[ReportT]):
    report: ReportT | None
    """None after a dry run, and where nobody went on."""
    stopped: bool = False


async def conclude(work: Awaitable[bool], write_report: Callable[[], ReportT]) -> CampaignOutcome[ReportT]:
    """The report of completed work, or of what was done of it."""
    try:
        completed = await work
    except GatewayError:  # what was scored until then has its report
        write_report()
        raise
    return CampaignOutcome(write_report(), stopped=not completed)


def tell_outcome(outcome: CampaignOutcome[Any], page: Path) -> bool:
    """Where the report is; False where there is none to tell of."""
    if outcome.report is None:
        if outcome.stopped:
            raise typer.Exit(2)
        return False
    tell_report(page, stopped=outcome.stopped)
    return True


def write_document(html: Path | None, json: Path | None, document: Document) -> None:
    if json is not None:
        write_file(json, (document.model_dump_json(indent=1), "\n"))
    if html is not None:
        write_file(html, (render_html(document),))


class _Finished(Frozen, extra="ignore"):
    finished_at: AwareDatetime | None


def find_finish_time(report: Path) -> datetime:
    """When it was first complete; a later start with nothing to do keeps this time."""
    try:
        earlier = _Finished.model_validate_json(report.read_bytes()).finished_at
    except (FileNotFoundError, ValidationError):
        earlier = None
    return earlier or datetime.now(UTC)
