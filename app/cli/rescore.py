"""`atropos-envs rescore`: score stored groups by another rule, and say what that changes.

The gateway does the work and stores each scoring; this command asks for one group after another, several at once, and
compares. A group that has this scoring already is answered from the store, so that a second start costs nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from app.cli.costs import estimate_rescoring
from app.cli.policies import gather_or_cancel
from app.domain.errors import GatewayError, UserError
from app.domain.groups import GroupSummary
from app.domain.judging import Mode
from app.domain.values import FiniteNumber, Frozen
from app.evaluation.comparison import FlipFigures, FlipReport, RescoredGroup, report_flips
from app.judges.prompts import load_rubric
from app.service.rescoring import RescoreReply, RescoreRequest
from app.terminal import ADVANCED
from app.terminal.client import ApiKey, GatewayClient, Retrier, Url, find_gateway_url, open_gateway
from app.terminal.completion import complete_environment, complete_judge, complete_run
from app.terminal.consoles import (
    RESUME,
    STOPPED,
    AsJson,
    describe_error,
    errors,
    format_estimate,
    format_figure,
    output_console,
    print_json,
    require_consent,
    show_bars,
    stop,
    stop_on_errors,
)
from app.toolkit.texts import escape_invisible

_PAGE = 100
_WAIT_SECONDS = 60.0
"""How long one request waits for a scoring, and is sent again while it is pending."""
GIVE_UP_SECONDS = 10.0
"""How long a gateway that is unreachable or overloaded at the beginning is asked again."""
_RESTART_SECONDS = 120.0
"""The same in the middle, where it may be starting again."""
_MOST_CHANGES_SHOWN = 30
_LONGEST_REASON = 200
"""Characters of what a verifier says."""
_GROUPS_ESTIMATED = 24
"""Groups that the estimate looks at, spread over all."""


@dataclass(frozen=True)
class RescoreSpec:
    environment: str | None
    run: str | None
    limit: int | None
    concurrency: int
    request: RescoreRequest
    yes: bool


Change = Literal["paid now", "no longer paid", "paid more", "paid less", "scored now", "no score now"]


class RewardChange(Frozen):
    """Completions that a dry run pays otherwise, for one reason."""

    environment: str
    change: Change
    reason: str
    """What the verifier says now."""
    completions: int
    groups: int
    example: str
    """One of the groups."""


@dataclass
class RescoreTally:
    """Results so far."""

    groups: list[RescoredGroup] = field(default_factory=list)
    judged: int = 0
    """Groups that a dry run leaves out, since judges score them."""
    changed: dict[tuple[str, Change, str], list[str]] = field(default_factory=dict)
    """The group of each completion that is paid otherwise, by environment, change and reason."""
    unscored: int = 0
    """Completions without a new reward."""
    calls: int = 0
    cost_usd: float = 0.0

    def add(self, group: GroupSummary, one: RescoreReply) -> None:
        step = None if group.policy is None else group.policy.step
        self.groups.append(RescoredGroup(group.group_id, one.original, one.rewards, group.label, step))
        self.unscored += sum(reward is None for reward in one.rewards)
        self.calls += one.calls
        self.cost_usd += one.cost_usd
        for before, score in zip(one.original, one.scoring.scores, strict=True):
            change = _name_change(before, score.reward)
            if change is not None:
                reason = score.rationale if score.reason is None else score.reason
                self.changed.setdefault((group.environment, change, reason[:_LONGEST_REASON]), []).append(
                    group.group_id
                )

    def list_changes(self) -> tuple[RewardChange, ...]:
        """The commonest first."""
        by_count = sorted(self.changed.items(), key=lambda item: (-len(item[1]), item[0]))
        return tuple(
            RewardChange(
                environment=environment,
                change=change,
                reason=reason,
                completions=len(groups),
                groups=len(set(groups)),
                example=min(groups),
            )
            for (environment, change, reason), groups in by_count
        )


def _name_change(before: float | None, now: float | None) -> Change | None:
    if before == now:
        return None
    if before is None or now is None:
        return "scored now" if before is None else "no score now"
    if before == 0.0 or now == 0.0:
        return "paid now" if before == 0.0 else "no longer paid"
    return "paid more" if now > before else "paid less"


class DryRun(Frozen):
    judged: int
    """Groups that judges score, which were left out."""
    changed_groups: int
    """Groups with a completion that is paid otherwise now."""
    changes: tuple[RewardChange, ...]


class RescoreSummary(Frozen):
    """What `rescore --json` prints."""

    groups: int
    """Groups rescored."""
    unscored: int
    """Completions without a new reward."""
    calls: int
    """Calls of this command; those of an earlier one are in the scorings that it stored."""
    cost_usd: FiniteNumber
    report: FlipReport
    dry_run: DryRun | None
    """Null without `--dry-run`."""


def rescore(
    env: Annotated[
        str | None,
        typer.Option(
            "--env", "--environment", help="Only groups of this environment.", autocompletion=complete_environment
        ),
    ] = None,
    run: Annotated[str | None, typer.Option(help="Only groups of this run.", autocompletion=complete_run)] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(help="Judge; repeatable.", show_default="those of the run", autocompletion=complete_judge),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="Judging mode; as configured by default.")] = None,
    readings: Annotated[
        int | None,
        typer.Option(
            help="Maximum readings of a group in mode listwise: 1, 2 or 4.",
            show_default="as configured",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    relative_weight: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Share of the ranking within a group in the reward; the rest is the rubric's score.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    rubric: Annotated[
        Path | None, typer.Option(help="YAML file with a rubric.", show_default="the run's, else the configured one")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of groups, newest first.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Store nothing and ask no judge: show which rewards verifiers would change."),
    ] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=256, help="Groups to rescore at once.", rich_help_panel=ADVANCED)
    ] = 8,
    url: Url = "",
    api_key: ApiKey = "",
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score stored groups by another rule, and report which pairs, best replies and advantages change.

    The cost is shown first. Original rewards stay unchanged, and both scorings are kept.
    You can stop and resume at any time: groups that already have this scoring cost nothing."""
    with stop_on_errors(1):
        request = RescoreRequest.model_validate(
            {
                "judges": tuple(judge) if judge else None,
                "mode": mode,
                "readings": readings,
                "relative_weight": relative_weight,
                "rubric": None if rubric is None else load_rubric(rubric),
                "dry_run": dry_run,
                "wait_seconds": _WAIT_SECONDS,
            }
        )
    url = url or find_gateway_url()
    tally = RescoreTally()
    failure, code = "", 0
    try:
        asyncio.run(_rescore_all(url, api_key, RescoreSpec(env, run, limit, concurrency, request, yes), tally))
    except KeyboardInterrupt:
        failure, code = f"stopped; {RESUME}", STOPPED
    except GatewayError as error:
        failure, code = describe_error(error) + (f"; {RESUME}" if tally.groups else ""), 1
    except UserError as error:
        failure, code = str(error), 1
    _print_results(tally, dry_run=dry_run, as_json=as_json)
    if failure:
        stop(failure, code)


def _summarise(tally: RescoreTally, *, dry_run: bool) -> RescoreSummary:
    changed = {group for groups in tally.changed.values() for group in groups}
    return RescoreSummary(
        groups=len(tally.groups),
        unscored=tally.unscored,
        calls=tally.calls,
        cost_usd=tally.cost_usd,
        report=report_flips(sorted(tally.groups, key=lambda group: group.group_id)),
        dry_run=DryRun(judged=tally.judged, changed_groups=len(changed), changes=tally.list_changes())
        if dry_run
        else None,
    )


def _print_results(tally: RescoreTally, *, dry_run: bool, as_json: bool) -> None:
    summary = _summarise(tally, dry_run=dry_run)
    if as_json:
        print_json(summary)
        return
    print_summary(summary)


async def _rescore_all(url: str, api_key: str, spec: RescoreSpec, tally: RescoreTally) -> None:
    async with open_gateway(url, api_key, _WAIT_SECONDS + 60) as gateway:
        await rescore_groups(gateway, spec, tally)


async def rescore_groups(gateway: GatewayClient, spec: RescoreSpec, tally: RescoreTally) -> None:
    """Adds each result to `tally` as it comes."""
    groups = [group async for group in _iter_groups(gateway, spec)]
    judged = set[str]()
    if spec.request.dry_run:
        judged = {one.name for one in (await gateway.list_environments()).environments if one.mode is not None}
    else:
        await _announce_cost(gateway, groups, spec)
    waiting = iter(groups)
    with show_bars() as bars:
        bar = bars.add("rescoring", len(groups))

        async def work() -> None:
            for group in waiting:
                if spec.request.dry_run and group.environment in judged:
                    tally.judged += 1
                else:
                    tally.add(group, await _rescore_group(gateway, group.group_id, spec.request))
                bar.advance(words=f"{tally.calls} calls, ${tally.cost_usd:.4f}")

        await gather_or_cancel([work() for _ in range(spec.concurrency)])


async def _announce_cost(gateway: GatewayClient, groups: Sequence[GroupSummary], spec: RescoreSpec) -> None:
    """Says what the scorings that are not there yet will take at most, and asks unless it is nothing."""
    ids = [one.group_id for one in groups]
    some = await estimate_rescoring(gateway, _new_retrier(), ids, spec.request, _GROUPS_ESTIMATED)
    if not some.groups:
        if some.refused is not None:
            raise some.refused
        return
    scale = len(groups) / some.groups
    cost = some.cost.scale(scale)
    basis = "" if some.groups == len(groups) else f", by an estimate from {some.groups} of them"
    errors.print(
        f"{len(groups):,} groups, of which {scale * some.missing:,.0f} are not scored so yet{basis}: "
        f"{cost.describe(at_most=True)}; retries come on top",
        highlight=False,
    )
    require_consent(cost.most_usd, yes=spec.yes)


async def _iter_groups(gateway: GatewayClient, spec: RescoreSpec) -> AsyncIterator[GroupSummary]:
    """Newest first; without those that never had a reward."""
    if spec.run is not None:
        await gateway.require_run(spec.run)
    fields = {"env": spec.environment, "run": spec.run}
    filters = {name: value for name, value in fields.items() if value is not None}
    left, before = spec.limit, None
    while left is None or left > 0:
        count = _PAGE if left is None else min(_PAGE, left)
        query = filters | {"limit": str(count)} | ({} if before is None else {"before": str(before)})
        page = await _new_retrier().retry_until_answered("groups", partial(gateway.list_groups, query))
        for group in page.groups:
            if any(reward is not None for reward in group.rewards):
                yield group
        left, before = (None if left is None else left - len(page.groups)), page.next_before
        if before is None:
            return


async def _rescore_group(gateway: GatewayClient, group_id: str, request: RescoreRequest) -> RescoreReply:
    ask = partial(gateway.rescore, group_id, request)
    while True:
        reply = await Retrier(ends_after=_RESTART_SECONDS).retry_until_answered(group_id, ask)
        if reply.scoring.outcome != "pending":
            return reply


def _new_retrier() -> Retrier:
    return Retrier(ends_after=GIVE_UP_SECONDS)


# The summary.


def print_summary(summary: RescoreSummary) -> None:
    console = output_console()
    if summary.dry_run is not None:
        console.print(_build_changes(summary, summary.dry_run))
        return
    console.print(_build_summary(summary))
    for title, rows in (("by label", summary.report.labels), ("by policy step", summary.report.steps)):
        if rows:
            console.print(_build_table(title, rows))


def _build_summary(summary: RescoreSummary) -> Table:
    report, overall = summary.report, summary.report.overall
    table = Table("against the original", "", title=f"{summary.groups} groups rescored")
    table.add_row("pairs in the other order", format_estimate(overall.flipped_share, ".1%"))
    table.add_row(
        "pairs: differed, flipped, tied now", f"{overall.pairs}, {overall.pairs_flipped}, {overall.pairs_tied}"
    )
    table.add_row("groups whose best completion changed", format_estimate(overall.best_changed, ".1%"))
    table.add_row("advantages with the other sign", format_estimate(overall.signs_flipped, ".1%"))
    table.add_row("shift of the mean reward", format_estimate(overall.mean_shift))
    table.add_row("Spearman within groups", format_estimate(overall.rank_correlation))
    table.add_row("Spearman of rewards", format_figure(report.spearman))
    table.add_row("mean absolute difference", format_figure(report.mean_difference))
    table.add_row("completions compared", str(report.completions))
    table.add_row("completions without a new score", str(summary.unscored))
    table.add_row("judge calls, paid", f"{summary.calls}, ${summary.cost_usd:.4f}")
    return table


def _build_changes(summary: RescoreSummary, run: DryRun) -> Table:
    table = Table(
        title=f"{run.changed_groups:,} of {summary.groups:,} groups would be paid otherwise; nothing is stored"
    )
    for name in ("environment", "change", "why", "completions", "groups", "one of them"):
        table.add_column(name)
    for one in run.changes[:_MOST_CHANGES_SHOWN]:
        words = (one.environment, one.change, one.reason)
        table.add_row(
            *(escape(escape_invisible(word)) for word in words), str(one.completions), str(one.groups), one.example
        )
    notes = []
    if len(run.changes) > _MOST_CHANGES_SHOWN:
        notes.append(f"{len(run.changes) - _MOST_CHANGES_SHOWN} rarer changes are in --json")
    if run.judged:
        notes.append(f"{run.judged:,} groups are left out, since judges score them")
    table.caption = "; ".join(notes)
    return table


def _build_table(title: str, rows: Sequence[FlipFigures]) -> Table:
    table = Table(title=title)
    for name in ("", "groups", "pairs flipped", "best changed", "signs flipped", "mean shift", "Spearman"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        shares = (row.flipped_share, row.best_changed, row.signs_flipped)
        figures = (row.mean_shift, row.rank_correlation)
        table.add_row(
            escape(escape_invisible(row.name)),
            str(row.groups),
            *(format_estimate(share, ".1%") for share in shares),
            *(format_estimate(figure) for figure in figures),
        )
    return table
