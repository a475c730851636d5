"""`atropos-envs runs`: which there are, how two compare, what one will cost, its settings, and its health."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import httpx
import typer
from pydantic import JsonValue
from rich.table import Table

from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.consoles import AsJson, output_console, print_json, stop_on_errors
from app.cli.envs.lookup import find_environment
from app.cli.gateway_client import GatewayClient
from app.cli.judging_cost import JudgeGroup, JudgingCost, estimate_judging_cost
from app.cli.process.plan import parse_params
from app.cli.run_audit import health, release
from app.cli.run_views import compare_runs, list_runs, show_run
from app.cli.scripted_policy import LINES
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.judging import Mode
from app.domain.runs import LagPolicy, PanelOptions, Run, ScoringOptions
from app.domain.tasks import Completion, Message, Task
from app.domain.values import FiniteNumber, Frozen
from app.main.components import build_panels
from app.ports.environment import Environment
from app.ports.judges import Panels
from app.ports.sandbox import NoPrograms, NoWorkers
from app.service.judging import JudgedCompletions, score_completions
from app.service.run_registry import RunSettings
from app.settings import Settings, read_settings

runs = typer.Typer(
    help="List, show and compare runs, say what one will cost, make and change one.", no_args_is_help=True
)

TASKS_MEASURED: Final = 24
"""Tasks whose prompts are built, spread over the first of the split."""
TASKS_SPREAD: Final = 1_000


class RunEstimate(Frozen):
    """What judging a run costs. Each pair is from where readings agree to where they contradict each other."""

    environment: str
    options: PanelOptions
    groups: int
    group_size: int
    judges: tuple[JudgingCost, ...]
    """For one group."""
    calls: tuple[FiniteNumber, FiniteNumber]
    """For all groups and judges, as those below."""
    input_tokens: tuple[FiniteNumber, FiniteNumber]
    output_tokens: tuple[FiniteNumber, FiniteNumber]
    usd: tuple[FiniteNumber, FiniteNumber] | None
    """Null when a judge has no price."""


runs.command("list")(list_runs)
runs.command("show")(show_run)
runs.command("compare")(compare_runs)
runs.command()(health)
runs.command()(release)


@runs.callback()
def callback() -> None:
    """List, show and compare runs, say what one will cost, make and change one."""


@runs.command()
def estimate(
    env: Annotated[str, typer.Option(help="Environment name.")],
    groups: Annotated[int, typer.Option(min=1, help="Groups that the run will score.")] = 1_000,
    group_size: Annotated[int, typer.Option(min=1, max=256, help="Completions of a group.")] = 8,
    judge: Annotated[
        list[str] | None, typer.Option(help="Judge, repeatable.", show_default="those of the environment")
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="Mode.", show_default="that of the environment")] = None,
    votes: Annotated[int | None, typer.Option(min=1, max=9, help="Votes.", show_default="1")] = None,
    readings: Annotated[
        int | None, typer.Option(help="Most readings in listwise: 1, 2 or 4.", show_default="4")
    ] = None,
    params: Annotated[str, typer.Option(help="Environment params, as a JSON object.")] = "{}",
    as_json: AsJson = False,
) -> None:
    """Say how many calls, tokens and dollars judging a run takes, before it begins.

    Prompts of the environment's own tasks are built and counted; no judge is asked."""
    with stop_on_errors():
        settings = read_settings()
        given = {"mode": mode, "votes": votes, "readings": readings, "judges": tuple(judge or ())}
        options = ScoringOptions.model_validate(given)
        found = asyncio.run(_estimate_run(settings, env, parse_params(params), options, groups, group_size))
    if as_json:
        print_json(found)
    else:
        _print_estimate(found)


@runs.command("set")
def set_run(
    name: Annotated[str, typer.Argument(help="The run's name.")],
    seed: Annotated[int | None, typer.Option(min=0, help="Seed; fixed once the run exists.")] = None,
    strict: Annotated[
        bool | None, typer.Option("--strict/--no-strict", help="Refuse changed scoring; fixed once the run exists.")
    ] = None,
    budget_usd: Annotated[float | None, typer.Option(min=0, help="US dollars that judging may cost.")] = None,
    max_lag: Annotated[
        int | None, typer.Option(min=0, help="Most training steps between hand-out and scoring.")
    ] = None,
    lag_policy: Annotated[LagPolicy | None, typer.Option(help="What becomes of groups beyond --max-lag.")] = None,
    no_max_lag: Annotated[bool, typer.Option("--no-max-lag", help="Remove the limit.")] = False,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
) -> None:
    """Make a run, or change what may change of one: its budget, --max-lag and --lag-policy.

    What is left out stays as it is."""
    options = {"seed": seed, "strict": strict, "budget_usd": budget_usd, "max_lag": max_lag, "lag_policy": lag_policy}
    given: dict[str, object] = {key: value for key, value in options.items() if value is not None}
    if no_max_lag:
        given["max_lag"] = None
    with stop_on_errors(1):
        run = asyncio.run(_set_run(url or find_gateway_url(), api_key, name, given))
    print_json(run)


async def _set_run(url: str, api_key: str, name: str, given: Mapping[str, object]) -> Run:
    """What is fixed is sent as it is, since a PUT names all of it."""
    async with httpx.AsyncClient(base_url=url, headers=build_gateway_headers(api_key)) as client:
        gateway = GatewayClient(client)
        stored = await gateway.fetch_run(name)
        fixed = {} if stored is None else stored.model_dump(include={"seed", "strict", "options"}, exclude_unset=True)
        return await gateway.put_run(name, RunSettings.model_validate({**fixed, **given}))


async def _estimate_run(
    settings: Settings, env: str, params: dict[str, JsonValue], options: ScoringOptions, groups: int, size: int
) -> RunEstimate:
    environment = _open_environment(env, settings)
    if environment.rubric is None:
        raise ValueError(f"{env} is scored by a verifier: no judge is asked, and nothing is paid")
    panel = build_panels(settings).build_panel(environment.name, options)
    chosen = build_panels(settings).resolve_options(environment.name, options)
    tasks = _list_tasks(environment, params)
    sampled = [_prepare_group(environment, task, chosen, size, place) for place, task in enumerate(tasks)]
    costs = await estimate_judging_cost(panel.judges, sampled, settings)
    paid = [cost.usd for cost in costs if cost.usd is not None]
    return RunEstimate(
        environment=environment.name,
        options=chosen,
        groups=groups,
        group_size=size,
        judges=costs,
        calls=_add_up([cost.calls for cost in costs], groups),
        input_tokens=_add_up([cost.input_tokens for cost in costs], groups),
        output_tokens=_add_up([cost.output_tokens for cost in costs], groups),
        usd=_add_up(paid, groups) if len(paid) == len(costs) else None,
    )


def _add_up(ranges: Sequence[tuple[float, float]], groups: int) -> tuple[float, float]:
    return groups * sum(least for least, _ in ranges), groups * sum(most for _, most in ranges)


def _open_environment(env: str, settings: Settings) -> Environment:
    kind = find_environment(env).kind
    folders = {"character_sheets": settings.character_sheets}
    return kind.open(ConfiguredDatasets(settings.datasets, folders=folders, hub_cache=settings.cache_dir))


def _list_tasks(environment: Environment, params: dict[str, JsonValue]) -> tuple[Task, ...]:
    """Spread over the split."""
    checked = environment.Params.model_validate(params)
    size = min(environment.size("train", checked) or TASKS_SPREAD, TASKS_SPREAD)
    count = min(size, TASKS_MEASURED)
    return tuple(environment.task("train", place * size // count, checked) for place in range(count))


def _prepare_group(environment: Environment, task: Task, chosen: PanelOptions, size: int, number: int) -> JudgeGroup:
    """Replies of the length that is common in role play; what they say costs nothing."""
    completions = [_play(environment, task, random.Random(f"{number} {place}")) for place in range(size)]  # noqa: S311
    options = ScoringOptions.model_validate(chosen.model_dump())

    async def judge_group(panels: Panels) -> JudgedCompletions:
        panel = panels.build_panel(environment.name, options)
        return await score_completions(
            environment, task, completions, options, panel, NoWorkers(), NoPrograms(), what="an estimate"
        )

    return judge_group


def _play(environment: Environment, task: Task, luck: random.Random) -> Completion:
    if task.max_turns == 1:
        return Completion(text=_compose_reply(luck))
    said: list[Message] = []
    for _ in range(task.max_turns):
        said.append(Message(role="assistant", content=_compose_reply(luck)))
        turn = environment.step(task, tuple(said))
        said += turn.messages
        if turn.done:
            break
    return Completion(messages=tuple(said))


def _compose_reply(luck: random.Random) -> str:
    """Three sentences. No two replies of a group are the same, since equal ones would be read once."""
    lines = [*LINES["anywhere"].good, *LINES["anywhere"].plain]
    first, second = luck.sample([line for line in lines if "{" not in line and len(line.split()) <= _LONGEST], 2)
    return f"{first} {second} {luck.choice(_ENDINGS)} It took {luck.randrange(2, 100_000):,} steps."


_LONGEST: Final = 20
"""Words of a sentence, so that no gate holds two of them for overlong, and every group is read."""
_ENDINGS: Final = tuple(
    f"{who} told me so, {when}."
    for who in ("The ferryman", "My sister", "A trader", "The smith", "An old friend")
    for when in ("years ago", "only last winter", "on market day", "at the well", "in the rain")
)


def _print_estimate(found: RunEstimate) -> None:
    console = output_console()
    table = Table(title=f"{found.environment}: {found.groups:,} groups of {found.group_size}, {found.options.mode}")
    for title in ("judge", "calls a group", "tokens in", "tokens out", "$ / 1,000 groups"):
        table.add_column(title, no_wrap=True)
    for cost in found.judges:
        table.add_row(
            cost.judge,
            _format_range(cost.calls, 1),
            _format_range(cost.input_tokens),
            _format_range(cost.output_tokens),
            "no price" if cost.usd is None else _format_range((1000 * cost.usd[0], 1000 * cost.usd[1]), 2),
        )
    console.print(table)
    total = "unknown without prices" if found.usd is None else f"{_format_range(found.usd, 2)} US dollars"
    console.print(
        f"in all {_format_range(found.calls)} calls, {_format_range(found.input_tokens)} tokens in, "
        f"{_format_range(found.output_tokens)} out: {total}",
        highlight=False,
    )
    console.print(
        "The lower figures hold where readings agree, the upper ones where they contradict each other. Corrections and "
        "retries come on top; what a provider's cache saves comes off.",
        highlight=False,
    )


def _format_range(ends: tuple[float, float], digits: int = 0) -> str:
    low, high = (f"{end:,.{digits}f}" for end in ends)
    return low if low == high else f"{low} to {high}"
