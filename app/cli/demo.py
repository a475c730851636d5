"""`atropos-envs demo`: a scripted policy that improves with each step, as example data for the viewer."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import httpx
import typer
from pydantic import JsonValue
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.characters.world_files import read_world
from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.consoles import AsJson, errors, format_figure, output_console, print_json, stop_on_errors
from app.cli.gateway_client import AnsweredTask, GatewayClient
from app.cli.scripted_policy import script_turns
from app.cli.world_commands import (
    SAMPLE,
    LoadedWorld,
    MomentQuestion,
    RetrievedEvents,
    build_retrieved_events_table,
    build_summary,
    explain_moments,
    load_world,
)
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import GatewayError
from app.domain.programs import Isolation
from app.domain.tasks import Completion, Message
from app.domain.values import Frozen
from app.main.discovery import discover
from app.service.catalogue import Catalogue
from app.service.request_models import GroupReply, HandedOutTask
from app.settings import read_settings

CUT = Completion(text="Let us go through this slowly and", finish_reason="length")


LINE = "Is the ferry crossing? And what of the Patience, and of the lads aboard her?"
MOMENTS = tuple(
    MomentQuestion(world, "hob_tarrant", LINE, datetime(1312, 4, day, hour, tzinfo=UTC))
    for world, day, hour in (("reedgate", 6, 12), ("reedgate", 8, 6), ("reedgate-wednesday", 8, 6))
)
"""Before and after a rope breaks, and the same time in a branch where it did not break."""


@dataclass(frozen=True)
class DemoPlan:
    steps: int
    batch_size: int
    group_size: int
    run: str
    seed: int


class DemoResults(Frozen):
    """What `demo --json` prints."""

    worlds: tuple[LoadedWorld, ...]
    retrieved: tuple[RetrievedEvents, ...]
    """What a character retrieves at some times, when it is asked about the ferry."""
    mean_rewards: dict[str, tuple[float | None, ...]]
    """By environment and step; null where nothing was scored."""


def demo(
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Policy steps per environment.")] = 6,
    batch_size: Annotated[int, typer.Option(min=1, max=64, help="Tasks per step.")] = 8,
    group_size: Annotated[int, typer.Option(min=2, max=64, help="Completions per task.")] = 6,
    run: Annotated[str, typer.Option(help="Run name.")] = "demo",
    seed: Annotated[int, typer.Option(help="Random seed of the scripted policy.")] = 0,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
    as_json: AsJson = False,
) -> None:
    """Fill a running gateway with demo data.

    Loads the sample world, and runs a scripted policy that improves with each step in every environment."""
    url = url or find_gateway_url()
    headers = build_gateway_headers(api_key)
    with stop_on_errors(1):
        results = asyncio.run(_run_demo(url, headers, DemoPlan(steps, batch_size, group_size, run, seed)))
    if as_json:
        print_json(results)
    else:
        _print_results(results, url)


async def _run_demo(url: str, headers: dict[str, str], plan: DemoPlan) -> DemoResults:
    solver = await asyncio.to_thread(_open_solver)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
        gateway = GatewayClient(client)
        listed = await gateway.list_environments()
        served = [environment.name for environment in listed.environments if environment.available]
        loaded = await load_world(gateway, read_world(SAMPLE))
        retrieved = await explain_moments(gateway, MOMENTS)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        means: dict[str, tuple[float | None, ...]] = {}
        with Progress(*columns, TextColumn("{task.fields[reward]}"), console=errors) as progress:
            for name in served:
                bar = progress.add_task(name, total=plan.steps, reward="")
                means[name] = ()
                for step in range(plan.steps):
                    replies = await _run_step(gateway, solver, plan, name, step)
                    means[name] += (_compute_mean(replies),)
                    progress.update(bar, advance=1, reward=f"mean reward {format_figure(means[name][-1])}")
    return DemoResults(worlds=tuple(loaded), retrieved=tuple(retrieved), mean_rewards=means)


def _compute_mean(replies: Sequence[GroupReply]) -> float | None:
    """None where nothing was scored."""
    rewards = [reward for reply in replies for reward in reply.rewards if reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _print_results(results: DemoResults, url: str) -> None:
    console = output_console()
    console.print(build_summary(results.worlds), f'Hob Tarrant is asked: "{LINE}"', sep="\n")
    console.print(build_retrieved_events_table(results.retrieved))
    table = Table("environment", "first step", "last step", title="mean reward")
    for name, means in results.mean_rewards.items():
        table.add_row(name, format_figure(means[0]), format_figure(means[-1]))
    console.print(table)
    console.print(f"Open {url}/ and {url}/view/stats", highlight=False)


async def _run_step(
    gateway: GatewayClient, solver: Catalogue, plan: DemoPlan, environment: str, step: int
) -> Sequence[GroupReply]:
    ask: dict[str, JsonValue] = {"run": plan.run, "batch_size": plan.batch_size, "policy": {"step": step}}
    batch = await gateway.fetch_next_batch(ask, environment)
    luck = random.Random(f"{plan.seed}:{environment}:{step}")  # noqa: S311  # a toy policy
    skill = 0.15 + 0.7 * step / max(1, plan.steps - 1)
    groups = []
    for task in batch.tasks:
        gold = await _find_gold(gateway, solver, task)
        attempts = [_choose_attempt(luck, skill, task, gold) for _ in range(plan.group_size)]
        groups.append(AnsweredTask(task.task_id, task.lease_id, await _play_attempts(gateway, task, attempts)))
    if not groups:
        return ()
    replies = await gateway.score(groups, plan.run, {"model": "scripted", "step": step})
    return [reply for reply in replies if isinstance(reply, GroupReply)]


async def _find_gold(gateway: GatewayClient, solver: Catalogue, task: HandedOutTask) -> Completion | None:
    """A right answer, computed locally: the gateway never reveals one."""
    view = await gateway.fetch_task(task.task_id)
    try:
        environment = solver.get_environment_or_current(view.environment).environment
        made = environment.task(view.split, view.index, environment.Params.model_validate(view.params))
    except (GatewayError, LookupError, ValueError):
        return None
    return environment.gold(made) if made.messages == view.messages else None


def _choose_attempt(
    luck: random.Random, skill: float, task: HandedOutTask, gold: Completion | None
) -> Completion | tuple[Message, ...]:
    """A truncated completion, or the messages of each turn."""
    return CUT if luck.random() < 0.05 else script_turns(luck, skill, task, gold)


async def _play_attempts(
    gateway: GatewayClient, task: HandedOutTask, attempts: Sequence[Completion | tuple[Message, ...]]
) -> list[Completion]:
    return list(await asyncio.gather(*(_play_attempt(gateway, task, attempt) for attempt in attempts)))


async def _play_attempt(
    gateway: GatewayClient, task: HandedOutTask, attempt: Completion | tuple[Message, ...]
) -> Completion:
    """The attempt's messages, with the environment's observations where there are several turns."""
    if isinstance(attempt, Completion):
        return attempt
    if task.max_turns == 1:
        (only,) = attempt
        return Completion(messages=attempt) if only.tool_calls else Completion(text=only.content or "")
    messages: list[Message] = []
    for said in attempt:
        messages.append(said)
        turn = await gateway.step(task.environment, task.task_id, messages)
        messages += turn.messages
        if turn.done:
            break
    return Completion(messages=tuple(messages))


def _open_solver() -> Catalogue:
    """The environments of the local settings. Nothing is scored here, so no program runs."""
    settings = read_settings()
    catalogue = Catalogue(discover())
    catalogue.open(ConfiguredDatasets(settings.datasets, hub_cache=settings.cache_dir))
    catalogue.set_isolation(Isolation(protections=()), weak_will_do=True)
    return catalogue
