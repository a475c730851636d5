"""`atropos-envs runs list`, `show` and `compare`: what the viewer's pages say, in a terminal or for a script."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import httpx
import typer

from app.cli.address import describe_url, find_gateway_url
from app.cli.consoles import (
    AsJson,
    errors,
    format_figure,
    format_interval,
    output_console,
    print_json,
    print_rows,
    stop,
    stop_on_errors,
)
from app.cli.gateway_client import GatewayClient
from app.cli.run_audit import ApiKey, RunArgument, Url, ask_gateway
from app.cli.run_selector import RunSelector
from app.evaluation.comparison import Comparison, Difference
from app.http.viewer.compare_pages import OWN, ComparedCheckpoints, ComparePage
from app.http.viewer.compared_replies import TaskPair
from app.http.viewer.run_pages import RunListing, RunRow, RunTotals, ShownRun
from app.toolkit.display import escape_invisible

Side = Annotated[str, typer.Argument(help="A run, or steps of one: my-run, my-run@120, my-run@100-120.")]
MOST_PAGES: Final = 400


def list_runs(url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """List runs by name, with what each is doing."""
    found = ask_gateway(url, api_key, _fetch_all)
    if as_json:
        print_json(found)
        return
    columns = ("run", "state", "newest group (UTC)", "environments", ">groups", ">reward", ">calibrated", ">low signal")
    print_rows(columns, map(_list_cells, found.runs))


def show_run(run: RunArgument, url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """Show a run: its state, what each environment adds up to, alarms, cost and pins."""
    found = ask_gateway(url, api_key, lambda client: client.fetch_page(f"/view/runs/{run}", ShownRun))
    if as_json:
        print_json(found)
        return
    print_rows(("what", "value"), _list_facts(found), title=f"run {run}")
    columns = ("environment", ">groups", ">scored", ">no score", ">reward", ">absolute", ">calibrated", ">gated")
    print_rows(columns, map(_list_totals, found.totals))


def compare_runs(
    first: Side,
    second: Side,
    env: Annotated[str | None, typer.Option(help="Only tasks of this environment.")] = None,
    label: Annotated[str | None, typer.Option(help="Only tasks of this character or label.")] = None,
    judge: Annotated[
        str | None,
        typer.Option(help="Judge whose later scorings are compared.", show_default="one of another model, if any"),
    ] = None,
    same_judge: Annotated[
        bool, typer.Option("--same-judge", help="Compare by the judge that scored the runs themselves.")
    ] = False,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Compare two runs, or two steps of one, on the tasks that both have answered.

    Ends with code 2 where there is nothing to compare."""
    with stop_on_errors():
        asked = build_question(first, second, {"environment": env, "label": label}, OWN if same_judge else judge)
    page = ask_gateway(url, api_key, lambda client: client.fetch_page("/view/compare", ComparePage, asked))
    found = page.compared
    if found is None:
        stop(" ".join(page.problems))
    if as_json:
        print_json(page)
    if found.comparison is None:
        stop(explain_nothing(found))
    if not as_json:
        print_comparison(found, found.comparison)
        address = build_address(describe_url(url or find_gateway_url()), asked)
        errors.print(f"task by task: {address}", highlight=False, markup=False, soft_wrap=True)


def build_question(first: str, second: str, about: Mapping[str, str | None], judge: str | None) -> dict[str, str]:
    """The fields of the page. ValueError for what is no run."""
    asked = {name: value for name, value in about.items() if value is not None}
    for side, text in (("first", first), ("second", second)):
        chosen = RunSelector.parse(text)
        asked[side] = chosen.run
        if chosen.steps is not None:
            asked[f"{side}_steps"] = f"{chosen.steps.first}-{chosen.steps.last}"
    return asked if judge is None else {**asked, "judge": judge}


def build_address(gateway: str, asked: Mapping[str, str]) -> str:
    return f"{gateway}/view/compare?{httpx.QueryParams(asked)}"


def explain_nothing(found: ComparedCheckpoints) -> str:
    own = ", ".join(found.scored_by.own)
    if found.scored_by.used is None and found.tasks:
        others = ", ".join(found.scored_by.others)
        known = f"; other judges that scored both: {others}" if others else ""
        return (
            f"only {own} scored these groups, when they were sent{known}: score both with a judge of another model "
            "(`atropos-envs rescore --run … --judge …`), or allow it with --same-judge"
        )
    first, second = found.looked_at
    return (
        f"{found.names[0]} and {found.names[1]} share no scored task: {first:,} groups of the first were looked at, "
        f"and {second:,} of the second on their tasks"
    )


def print_comparison(found: ComparedCheckpoints, comparison: Comparison) -> None:
    """A notice comes first."""
    console = output_console()

    def say(words: str) -> None:
        console.print(escape_invisible(words), highlight=False, markup=False, soft_wrap=True)

    if found.notice:
        say(found.notice)
    say(f"{found.names[0]} → {found.names[1]}: {comparison.verdict}, over {comparison.tasks:,} tasks")
    even = comparison.tasks - comparison.improved - comparison.declined
    say(f"the second is ahead on {comparison.improved:,}, the first on {comparison.declined:,}, alike on {even:,}")
    for obstacle in comparison.obstacles:
        say(f"no verdict: {obstacle.what} differs, {obstacle.before} and {obstacle.after}")
    columns = ("what", ">tasks", ">first", ">second", ">difference", "95 %", ">p")
    rows = (comparison.overall, *comparison.criteria, *comparison.labels)
    print_rows(columns, map(_list_difference, rows))
    beside = (
        "task",
        "label",
        ">first",
        ">second",
        ">difference",
        "group of the first",
        "group of the second",
        "asked",
    )
    print_rows(beside, map(_list_pair, found.pairs), title="the largest differences")


async def _fetch_all(gateway: GatewayClient) -> RunListing:
    rows: list[RunRow] = []
    after: str | None = None
    for _ in range(MOST_PAGES):
        page = await gateway.fetch_page("/view/runs", RunListing, {} if after is None else {"after": after})
        rows += page.runs
        after = page.next_after
        if after is None:
            break
    return RunListing(runs=tuple(rows), next_after=after)


def _list_cells(row: RunRow) -> tuple[str, ...]:
    since = "-" if row.progress.since is None else f"{row.progress.since:%Y-%m-%d %H:%M}"
    totals = row.totals
    figures = (format_figure(totals.reward), format_figure(totals.calibrated), format_figure(totals.low_signal, ".1%"))
    environments = ", ".join(row.environments) or "-"
    return row.run.name, row.progress.state, since, environments, str(totals.groups), *figures


def _list_facts(found: ShownRun) -> Iterator[tuple[str, str]]:
    run, cost = found.report.run, found.report.judging
    yield "state", found.progress.state + (f": {found.progress.reason}" if found.progress.reason else "")
    yield "newest group (UTC)", "-" if found.progress.since is None else f"{found.progress.since:%Y-%m-%d %H:%M}"
    yield "tasks out", str(found.progress.outstanding)
    yield "begun (UTC)", f"{run.created_at:%Y-%m-%d %H:%M}"
    yield "seed", str(run.seed)
    yield "judging", f"{cost.spent.calls} calls" + ("" if cost.usd is None else f", {cost.usd:.4f} US dollars")
    yield "judges", ", ".join(run.options.judges) or "those of the environment"
    for pin in run.pins:
        yield f"pin of {pin.environment}", f"version {pin.version}, {pin.scoring_digest[:16]}"
    for alarm in found.health.alarms:
        if alarm.released_at is None:
            yield "ALARM", f"{alarm.series} since about group {alarm.since_group}: {alarm.evidence}"


def _list_totals(totals: RunTotals) -> tuple[str, ...]:
    counts = (totals.groups, totals.scored, totals.unscored)
    means = (totals.reward, totals.absolute, totals.calibrated)
    return (
        totals.environment or "all",
        *map(str, counts),
        *map(format_figure, means),
        format_figure(totals.gated, ".1%"),
    )


def _list_difference(row: Difference) -> tuple[str, ...]:
    moved = row.difference
    interval = format_interval(moved.low, moved.high, "+.3f")
    figures = (
        format_figure(row.before),
        format_figure(row.after),
        format_figure(moved.value, "+.3f"),
        interval,
        format_figure(row.adjusted_p),
    )
    return row.name, str(moved.tasks), *figures


def _list_pair(pair: TaskPair) -> tuple[str, ...]:
    change = pair.change
    figures = (
        format_figure(change.before),
        format_figure(change.after),
        format_figure(change.after - change.before, "+.3f"),
    )
    groups = ("-" if reply is None else reply.group.group_id for reply in (pair.first, pair.second))
    return change.task_id, change.label or "-", *figures, *groups, pair.title
