"""`atropos-envs runs` and `groups`: lists, comparisons, estimates and settings of runs, and stored groups.

Lists and comparisons are the viewer's pages as data, so that a terminal and a browser say the same. An estimate asks no
judge: it lets the real panels judge stand-ins for replies to the environment's own tasks, with judges that answer at
once, and counts the prompts that they would have sent with replies as long as somebody says, or as a run's are."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

import httpx
import typer
from pydantic import JsonValue, TypeAdapter, ValidationError
from rich.table import Table

from app.cli.costs import (
    JudgeGroup,
    JudgingCost,
    add_up_costs,
    count_text_tokens,
    estimate_judging_cost,
    format_range,
    format_usd,
)
from app.cli.envs.check import find_environment
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import UserError
from app.domain.groups import Rollout
from app.domain.judging import Mode, PanelResult
from app.domain.runs import Alarm, CharacterChoice, LagPolicy, PanelOptions, Run, RunProgress, ScoringOptions, StepRange
from app.domain.tasks import Completion, Message, Task
from app.domain.values import FiniteNumber, Frozen, Name, take_evenly
from app.evaluation.comparison import Comparison, Difference
from app.http.api.models import GroupView
from app.http.viewer.compare_pages import OWN, ComparedCheckpoints, ComparePage, TaskPair
from app.http.viewer.run_pages import RunListing, RunRow, RunTotals
from app.http.viewer.sentences import tell_alarm, tell_comparison
from app.main.components import build_panels
from app.ports.environment import Environment, NoPrograms, NoWorkers
from app.ports.judges import Panels
from app.service.judging import score_completions
from app.service.runs import RunReport
from app.settings import Settings, read_settings
from app.terminal import ADVANCED
from app.terminal.client import (
    ApiKey,
    GatewayClient,
    Url,
    ask_gateway,
    describe_url,
    find_gateway_url,
    open_gateway,
)
from app.terminal.completion import RunArgument, complete_environment, complete_judge, complete_run
from app.terminal.consoles import (
    AsJson,
    errors,
    format_figure,
    format_interval,
    output_console,
    parse_params,
    print_json,
    print_rows,
    stop,
    stop_on_errors,
)
from app.toolkit.texts import escape_invisible
from app.toolkit.thoughts import strip_thinking

runs = typer.Typer(
    help="List, show and compare runs, estimate their cost, and create or change one.", no_args_is_help=True
)


@runs.callback()
def callback() -> None:
    """List, show and compare runs, estimate their cost, and create or change one."""


# A run, or some steps of it, as commands take it.

_RUN: Final = TypeAdapter[str](Name)


@dataclass(frozen=True)
class RunSelector:
    run: str
    steps: StepRange | None

    @classmethod
    def parse(cls, text: str) -> "RunSelector":
        """`my-run`, `my-run@120` or `my-run@100-120`. UserError for anything else."""
        run, separator, steps = text.partition("@")
        try:
            return cls(_RUN.validate_python(run), StepRange.parse(steps) if separator else None)
        except ValidationError as error:
            raise UserError(f"{text[:100]!r} is no run, such as my-run, my-run@120 or my-run@100-120") from error

    @property
    def name(self) -> str:
        return self.run if self.steps is None else f"{self.run}, {self.steps}"


# `runs list`, `show` and `compare`.

_Side = Annotated[str, typer.Argument(help="A run, or steps of one: my-run, my-run@120, my-run@100-120.")]
_MOST_PAGES: Final = 400
"""Pages of the list of runs that are asked for."""


class ShownHealth(Frozen, extra="ignore"):
    alarms: tuple[Alarm, ...]


class ShownRun(Frozen, extra="ignore"):
    """The page of a run as data, as far as it is printed. `health` is None where nobody follows it."""

    report: RunReport
    progress: RunProgress
    totals: tuple[RunTotals, ...]
    """Of all environments together, then of each."""
    health: ShownHealth | None = None


@runs.command("list")
def list_runs(url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """List runs by name, with what each is doing."""
    listing = ask_gateway(url, api_key, _fetch_all)
    if as_json:
        print_json(listing)
        return
    columns = ("run", "state", "newest group (UTC)", "environments", ">groups", ">reward", ">calibrated", ">low signal")
    print_rows(columns, map(_list_run_cells, listing.runs))


@runs.command("show")
def show_run(run: RunArgument, url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """Show a run: state, rewards by environment, alarms, cost and pinned versions."""
    page = ask_gateway(url, api_key, lambda client: client.fetch_page(f"/view/runs/{run}", ShownRun))
    if as_json:
        print_json(page)
        return
    print_rows(("what", "value"), _list_run_facts(page), title=f"run {run}")
    columns = ("environment", ">groups", ">scored", ">no score", ">reward", ">absolute", ">calibrated", ">set to 0")
    print_rows(columns, map(_list_totals, page.totals))


@runs.command("compare")
def compare_runs(
    first: _Side,
    second: _Side,
    env: Annotated[
        str | None, typer.Option(help="Only tasks of this environment.", autocompletion=complete_environment)
    ] = None,
    label: Annotated[str | None, typer.Option(help="Only tasks of this character or label.")] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Judge whose later scorings are compared.",
            show_default="one of another model, if any",
            autocompletion=complete_judge,
        ),
    ] = None,
    same_judge: Annotated[
        bool,
        typer.Option(
            "--same-judge", help="Compare by the judges that scored the runs, even if another judge has scored both."
        ),
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
    compared = page.compared
    if compared is None:
        stop(" ".join(page.problems))
    if as_json:
        print_json(page)
    if compared.comparison is None:
        stop(_explain_nothing(compared))
    if not as_json:
        _print_comparison(compared, compared.comparison)
        address = build_address(describe_url(url or find_gateway_url()), asked)
        errors.print(f"task by task: {address}", highlight=False, markup=False, soft_wrap=True)


def build_question(first: str, second: str, about: Mapping[str, str | None], judge: str | None) -> dict[str, str]:
    """The fields of the page. UserError for what is no run."""
    asked = {name: value for name, value in about.items() if value is not None}
    for side, text in (("first", first), ("second", second)):
        chosen = RunSelector.parse(text)
        asked[side] = chosen.run
        if chosen.steps is not None:
            asked[f"{side}_steps"] = f"{chosen.steps.first}-{chosen.steps.last}"
    return asked if judge is None else {**asked, "judge": judge}


def build_address(gateway: str, asked: Mapping[str, str]) -> str:
    return f"{gateway}/view/compare?{httpx.QueryParams(asked)}"


def _explain_nothing(compared: ComparedCheckpoints) -> str:
    own = ", ".join(compared.scored_by.own)
    if compared.scored_by.used is None:
        others = ", ".join(compared.scored_by.others)
        known = f"; other judges that scored both: {others}" if others else ""
        return (
            f"the judge has not scored groups of both, which {own} scored when they were sent{known}. Score both with "
            "it: `atropos-envs rescore --run … --judge …`"
        )
    return tell_comparison(compared.names, None, compared.groups, compared.tasks, {})


def _print_comparison(compared: ComparedCheckpoints, comparison: Comparison) -> None:
    """A notice comes first."""
    console = output_console()

    def say(words: str) -> None:
        console.print(escape_invisible(words), highlight=False, markup=False, soft_wrap=True)

    if compared.notice:
        say(compared.notice)
    say(f"{compared.names[0]} → {compared.names[1]}: {comparison.verdict}, over {comparison.tasks:,} tasks")
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
    print_rows(beside, map(_list_pair, compared.pairs), title="the largest differences")


async def _fetch_all(gateway: GatewayClient) -> RunListing:
    rows: list[RunRow] = []
    after: str | None = None
    for _ in range(_MOST_PAGES):
        page = await gateway.fetch_page("/view/runs", RunListing, {} if after is None else {"after": after})
        rows += page.runs
        after = page.next_after
        if after is None:
            break
    return RunListing(runs=tuple(rows), next_after=after)


def _list_run_cells(row: RunRow) -> tuple[str, ...]:
    since = "-" if row.progress.since is None else f"{row.progress.since:%Y-%m-%d %H:%M}"
    totals = row.totals
    figures = (format_figure(totals.reward), format_figure(totals.calibrated), format_figure(totals.low_signal, ".1%"))
    environments = ", ".join(row.environments) or "-"
    return row.run.name, row.progress.state, since, environments, str(totals.groups), *figures


def _list_run_facts(page: ShownRun) -> Iterator[tuple[str, str]]:
    run, cost = page.report.run, page.report.judging
    yield "state", page.progress.state + (f": {page.progress.reason}" if page.progress.reason else "")
    yield "newest group (UTC)", "-" if page.progress.since is None else f"{page.progress.since:%Y-%m-%d %H:%M}"
    yield "tasks out", str(page.progress.outstanding)
    yield "begun (UTC)", f"{run.created_at:%Y-%m-%d %H:%M}"
    yield "seed", str(run.seed)
    yield "judging", f"{cost.spent.calls} calls" + ("" if cost.usd is None else f", {cost.usd:.4f} US dollars")
    yield "judges", ", ".join(run.options.judges) or "those of the environment"
    for pin in run.pins:
        yield f"pin of {pin.environment}", f"version {pin.version}, {pin.scoring_digest[:16]}"
    for alarm in page.health.alarms if page.health is not None else ():
        if alarm.released_at is None:
            yield "ALARM", tell_alarm(alarm)


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
    difference = row.difference
    interval = format_interval(difference.low, difference.high, "+.3f")
    figures = (
        format_figure(row.before),
        format_figure(row.after),
        format_figure(difference.value, "+.3f"),
        interval,
        format_figure(None if difference.low is None else row.adjusted_p),
    )
    return row.name, str(difference.tasks), *figures


def _list_pair(pair: TaskPair) -> tuple[str, ...]:
    change = pair.change
    figures = (
        format_figure(change.before),
        format_figure(change.after),
        format_figure(change.after - change.before, "+.3f"),
    )
    groups = ("-" if reply is None else reply.group.group_id for reply in (pair.first, pair.second))
    return change.task_id, change.label or "-", *figures, *groups, pair.title


# `runs estimate` and `set`.

_MOST_MEASURED: Final = 24
"""Tasks whose prompts are built, spread over the first of the split."""
_SPREAD_OVER: Final = 1_000
_MOST_LISTED: Final = 200
"""Newest groups of a run, over which those are spread that say how long its replies are."""


class RunEstimate(Frozen):
    """What judging a run costs. Each pair is from where readings agree to where they contradict each other."""

    environment: str
    options: PanelOptions
    groups: int
    group_size: int
    reply_tokens: FiniteNumber
    judges: tuple[JudgingCost, ...]
    """For one group."""
    calls: tuple[FiniteNumber, FiniteNumber]
    """For all groups and judges, as those below."""
    input_tokens: tuple[FiniteNumber, FiniteNumber] | None
    output_tokens: tuple[FiniteNumber, FiniteNumber] | None
    usd: tuple[FiniteNumber, FiniteNumber] | None
    """Null when a judge has no price."""


@runs.command()
def estimate(
    env: Annotated[str, typer.Option(help="Environment name.", autocompletion=complete_environment)],
    groups: Annotated[int, typer.Option(min=1, help="Groups that the run will score.")] = 1_000,
    group_size: Annotated[int, typer.Option(min=1, max=256, help="Completions of a group.")] = 8,
    judge: Annotated[
        list[str] | None,
        typer.Option(help="Judge; repeatable.", show_default="those of the environment", autocompletion=complete_judge),
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="Judging mode.", show_default="that of the environment")] = None,
    votes: Annotated[
        int | None, typer.Option(min=1, max=9, help="Votes per question.", show_default="1", rich_help_panel=ADVANCED)
    ] = None,
    readings: Annotated[
        int | None,
        typer.Option(
            help="Maximum readings of a group in mode listwise: 1, 2 or 4.", show_default="4", rich_help_panel=ADVANCED
        ),
    ] = None,
    reply_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a reply without its thoughts; in an episode those of all turns."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="Run from whose newest groups the length of replies is taken.", autocompletion=complete_run),
    ] = None,
    params: Annotated[str, typer.Option(help="Environment params, as a JSON object.", rich_help_panel=ADVANCED)] = "{}",
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Estimate the calls, tokens and dollars of judging a run before it begins.

    No judge is asked: prompts of the environment's own tasks are built and counted. Say how long replies are with
    --reply-tokens, or take it from a run with --run."""
    if (reply_tokens is None) == (run is None):
        stop("say how long replies are: by --reply-tokens, or by --run with the name of a run that has some")
    length = ask_gateway(url, api_key, partial(measure_replies, env=env, run=run)) if run else float(reply_tokens or 0)
    with stop_on_errors():
        settings = read_settings()
        fields = {"mode": mode, "votes": votes, "readings": readings, "judges": tuple(judge or ())}
        options = ScoringOptions.model_validate(fields)
        estimated = asyncio.run(_estimate_run(settings, env, parse_params(params), options, groups, group_size, length))
    if as_json:
        print_json(estimated)
    else:
        _print_estimate(estimated)


@runs.command("set")
def set_run(
    name: Annotated[str, typer.Argument(help="The run's name.")],
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; fixed once the run exists.")] = None,
    strict: Annotated[
        bool | None, typer.Option("--strict/--no-strict", help="Refuse changed scoring; fixed once the run exists.")
    ] = None,
    budget_usd: Annotated[float | None, typer.Option(min=0, help="US dollars that judging may cost.")] = None,
    characters: Annotated[
        CharacterChoice | None,
        typer.Option(help="`pinned` keeps the characters of the run's first use; fixed once the run exists."),
    ] = None,
    max_lag: Annotated[
        int | None, typer.Option(min=0, help="Maximum training steps between handing out a task and scoring it.")
    ] = None,
    lag_policy: Annotated[
        LagPolicy | None,
        typer.Option(
            help="What happens to groups beyond --max-lag: a flag, no score, or no new tasks until they are scored."
        ),
    ] = None,
    no_max_lag: Annotated[bool, typer.Option("--no-max-lag", help="Remove the limit of --max-lag.")] = False,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Create a run, or change its budget, --max-lag or --lag-policy.

    Options that you leave out stay unchanged."""
    options: dict[str, object] = {"seed": seed, "strict": strict, "characters": characters, "budget_usd": budget_usd}
    options |= {"max_lag": max_lag, "lag_policy": lag_policy}
    changes = {key: value for key, value in options.items() if value is not None}
    if no_max_lag:
        changes["max_lag"] = None
    with stop_on_errors(1):
        run = asyncio.run(_set_run(url or find_gateway_url(), api_key, name, changes))
    if as_json:
        print_json(run)
        return
    typer.echo(f"{run.name}: " + ", ".join(f"{_NAMES.get(one, one)} {_show(getattr(run, one))}" for one in options))


_NAMES: Final = {"budget_usd": "budget in USD", "max_lag": "max lag", "lag_policy": "lag policy"}


def _show(setting: object) -> str:
    if setting is None:
        return "none"
    return ("yes" if setting else "no") if isinstance(setting, bool) else str(setting)


async def _set_run(url: str, api_key: str, name: str, changes: Mapping[str, object]) -> Run:
    async with open_gateway(url, api_key) as gateway:
        return await gateway.change_run(name, changes)


async def measure_replies(gateway: GatewayClient, env: str, run: str) -> float:
    """The mean tokens of what a judge reads of a reply. UserError for a run that has no text of any here."""
    await gateway.require_run(run)
    listed = await gateway.list_groups({"run": run, "env": env, "limit": str(_MOST_LISTED)})
    chosen = take_evenly([one.group_id for one in listed.groups], _MOST_MEASURED)
    replies = [one for group_id in chosen for one in (await gateway.fetch_group(group_id)).group.rollouts]
    texts = [text for one in replies if (text := _write_spoken(one.completion))]
    if not texts:
        raise UserError(f"{run} has no replies in {env} whose texts are kept: say how long they are by --reply-tokens")
    return count_text_tokens(texts) / len(texts)


def _write_spoken(completion: Completion) -> str:
    """What the model said, without thoughts."""
    said = (message.content or "" for message in completion.messages or () if message.role == "assistant")
    texts = said if completion.text is None else [completion.text]
    return "\n".join(strip_thinking(text).text.strip() for text in texts)


async def _estimate_run(
    settings: Settings,
    env: str,
    params: dict[str, JsonValue],
    options: ScoringOptions,
    groups: int,
    size: int,
    reply_tokens: float,
) -> RunEstimate:
    environment = _open_environment(env, settings)
    if environment.rubric is None:
        raise UserError(f"{env} is scored by a verifier: no judge is asked, and nothing is paid")
    panel = build_panels(settings).build_panel(environment.name, options)
    chosen = build_panels(settings).resolve_options(environment.name, options)
    tasks = _list_tasks(environment, params)
    sampled = [_prepare_group(environment, task, chosen, size, number) for number, task in enumerate(tasks)]
    costs = await estimate_judging_cost(panel.judges, sampled, settings, reply_tokens)
    whole = add_up_costs(costs).scale(groups)
    return RunEstimate(
        environment=environment.name,
        options=chosen,
        groups=groups,
        group_size=size,
        reply_tokens=reply_tokens,
        judges=costs,
        calls=whole.calls,
        input_tokens=whole.input_tokens,
        output_tokens=whole.output_tokens,
        usd=whole.usd,
    )


def _open_environment(env: str, settings: Settings) -> Environment:
    kind = find_environment(env).kind
    folders = {"character_sheets": settings.character_sheets}
    return kind.open(ConfiguredDatasets(settings.datasets, folders=folders, hub_cache=settings.cache_dir))


def _list_tasks(environment: Environment, params: dict[str, JsonValue]) -> tuple[Task, ...]:
    """Spread over the split."""
    checked = environment.Params.model_validate(params)
    size = min(environment.size("train", checked) or _SPREAD_OVER, _SPREAD_OVER)
    return tuple(environment.task("train", index, checked) for index in take_evenly(range(size), _MOST_MEASURED))


def _prepare_group(environment: Environment, task: Task, chosen: PanelOptions, size: int, number: int) -> JudgeGroup:
    """Stand-ins for replies: what they say costs nothing, and their length is not counted."""
    completions = [_play(environment, task, random.Random(f"{number} {sample}")) for sample in range(size)]  # noqa: S311
    options = ScoringOptions.model_validate(chosen.model_dump())

    async def judge_group(panels: Panels) -> PanelResult:
        panel = panels.build_panel(environment.name, options)
        return await score_completions(
            environment, task, completions, options, panel, NoWorkers(), NoPrograms(), what="an estimate"
        )

    return judge_group


def _play(environment: Environment, task: Task, luck: random.Random) -> Completion:
    if task.max_turns == 1:
        return Completion(text=_compose_reply(luck))
    messages: list[Message] = []
    for _ in range(task.max_turns):
        messages.append(Message(role="assistant", content=_compose_reply(luck)))
        turn = environment.step(task, tuple(messages))
        messages += turn.messages
        if turn.done:
            break
    return Completion(messages=tuple(messages))


_SENTENCES: Final = tuple(
    f"{who} told me so, {when}."
    for who in ("The ferryman", "My sister", "A trader", "The smith", "An old friend")
    for when in ("years ago", "only last winter", "on market day", "at the well", "in the rain")
)


def _compose_reply(luck: random.Random) -> str:
    """No gate fails it, and no two of a group are the same, since equal ones would be read once."""
    return f"{luck.choice(_SENTENCES)} It took {luck.randrange(2, 100_000):,} steps."


def _print_estimate(estimated: RunEstimate) -> None:
    console = output_console()
    size, mode = estimated.group_size, estimated.options.mode
    replies = f"{size} replies of {estimated.reply_tokens:,.0f} tokens"
    table = Table(title=f"{estimated.environment}: {estimated.groups:,} groups of {replies}, {mode}")
    for title in ("judge", "calls a group", "tokens in", "tokens out", "$ / 1,000 groups"):
        table.add_column(title, no_wrap=True)
    for cost in estimated.judges:
        table.add_row(
            cost.judge,
            format_range(cost.calls, 1),
            format_range(cost.input_tokens),
            format_range(cost.output_tokens),
            "no price" if cost.usd is None else format_range((1000 * cost.usd[0], 1000 * cost.usd[1]), 2),
        )
    console.print(table)
    total = "unknown without prices" if estimated.usd is None else format_usd(*estimated.usd)
    console.print(
        f"in all {format_range(estimated.calls)} calls, {format_range(estimated.input_tokens)} tokens in, "
        f"{format_range(estimated.output_tokens)} out: {total}",
        highlight=False,
    )
    console.print(
        "The lower figures hold where readings agree, the upper ones where they contradict each other. Corrections and "
        "retries come on top; what a provider's cache saves comes off.",
        highlight=False,
    )


# `groups`.

groups = typer.Typer(help="Show stored groups.", no_args_is_help=True)

_MOST_SHOWN: Final = 160
"""Characters of a completion in its row."""


@groups.callback()
def groups_callback() -> None:
    """Show stored groups."""


@groups.command()
def show(
    group: Annotated[str, typer.Argument(help="The group's id.")],
    texts: Annotated[bool, typer.Option("--texts", help="Print completions and rationales in full.")] = False,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Show a group: what was asked, and each completion with its score and why."""
    view = ask_gateway(url, api_key, lambda client: client.fetch_group(group))
    if as_json:
        print_json(view)
        return
    print_rows(("what", "value"), _list_group_facts(view), title=f"group {view.group.group_id}")
    columns = (">sent as", "outcome", ">reward", ">absolute", ">relative", "flags", "judges", "completion")
    print_rows(columns, (_list_rollout_cells(number, one) for number, one in enumerate(view.group.rollouts, 1)))
    if texts:
        _print_texts(view)


def _list_group_facts(view: GroupView) -> Iterator[tuple[str, str]]:
    group, task = view.group, view.task
    yield "environment", group.environment
    yield "task", group.task_id
    yield "run", group.run or "-"
    policy = group.policy
    if policy is not None:
        yield "policy", policy.model if policy.step is None else f"{policy.model}, step {policy.step}"
    yield "purpose", group.purpose
    yield "time (UTC)", f"{group.created_at:%Y-%m-%d %H:%M:%S}"
    yield "outcome", group.outcome
    yield "mean", f"{format_figure(view.reply.mean)}, std {format_figure(view.reply.std)}"
    if group.flags:
        yield "flags", ", ".join(group.flags)
    yield "asked", _cut(next((message.content or "" for message in reversed(task.messages)), ""))
    yield "readings", f"{len(view.judgements)} of its own, {len(view.scorings)} later scorings"


def _list_rollout_cells(number: int, one: Rollout) -> tuple[str, ...]:
    score = one.score
    parts = (format_figure(score.reward), format_figure(score.absolute), format_figure(score.relative))
    outcome = score.outcome if score.reason is None else f"{score.outcome}: {score.reason}"
    return str(number), outcome, *parts, ", ".join(score.flags), ", ".join(score.judges), _cut(_write(one.completion))


def _print_texts(view: GroupView) -> None:
    console = output_console()
    for number, one in enumerate(view.group.rollouts, 1):
        reply = f"\n{number}: {format_figure(one.score.reward)}\n{_write(one.completion)}"
        why = f"\nwhy: {one.score.rationale}" if one.score.rationale else ""
        lines = (escape_invisible(line) for line in f"{reply}{why}".split("\n"))
        console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _write(completion: Completion) -> str:
    if completion.text is not None:
        return completion.text
    return "\n".join(f"{message.role}: {message.content or ''}" for message in completion.messages or ())


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} …"
