"""`atropos-envs demo`: a scripted policy that improves with each step, as example data for the viewer."""

import asyncio
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import httpx
import typer
from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.characters.world_files import read_world
from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.consoles import output_console
from app.cli.gateway_client import GatewayClient
from app.cli.scripted_policy import script_turns
from app.cli.world_commands import SAMPLE, MomentQuestion, build_retrieved_events_table, build_summary, load_world
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import GatewayError
from app.domain.programs import Isolation
from app.domain.tasks import Completion, Message, Turn
from app.http.api.models import EnvironmentList, TaskView
from app.main.discovery import discover
from app.service.catalogue import Catalogue
from app.service.request_models import GroupReply, HandedOutTask, ScoreResponse, TaskBatch
from app.settings import read_settings

console = output_console()

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


def demo(
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Policy steps per environment.")] = 6,
    batch_size: Annotated[int, typer.Option(min=1, max=64, help="Tasks per step.")] = 8,
    group_size: Annotated[int, typer.Option(min=2, max=64, help="Completions per task.")] = 6,
    run: Annotated[str, typer.Option(help="Run name.")] = "demo",
    seed: Annotated[int, typer.Option(help="Random seed of the scripted policy.")] = 0,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
) -> None:
    """Fill a running gateway with demo data.

    Loads the sample world, and runs a scripted policy that improves with each step in every environment."""
    url = url or find_gateway_url()
    headers = build_gateway_headers(api_key)
    try:
        asyncio.run(_run_demo(url, headers, DemoPlan(steps, batch_size, group_size, run, seed)))
    except GatewayError as error:
        console.print(str(error), style="red", highlight=False, markup=False)
        raise typer.Exit(1) from None
    except httpx.HTTPStatusError as error:
        console.print(f"{error.request.url}: {error.response.text[:500]}", style="red", highlight=False, markup=False)
        raise typer.Exit(1) from None
    except httpx.HTTPError as error:
        console.print(
            f"cannot reach the gateway at {url} (set --url): {error or type(error).__name__}",
            style="red",
            markup=False,
        )
        raise typer.Exit(1) from None


async def _run_demo(url: str, headers: dict[str, str], plan: DemoPlan) -> None:
    solver = await asyncio.to_thread(_open_solver)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
        listed = EnvironmentList.model_validate((await _require_success(client.get("/envs"))).json())
        served = [environment.name for environment in listed.environments if environment.available]
        console.print(await _load_sample_world(GatewayClient(client)))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        means: dict[str, list[float]] = {}
        with Progress(*columns, TextColumn("{task.fields[reward]}"), console=console) as progress:
            for name in served:
                bar = progress.add_task(name, total=plan.steps, reward="")
                means[name] = []
                for step in range(plan.steps):
                    replies = await _run_step(client, solver, plan, name, step)
                    rewards = [reward for reply in replies for reward in reply.rewards if reward is not None]
                    means[name].append(sum(rewards) / len(rewards) if rewards else 0.0)
                    progress.update(bar, advance=1, reward=f"mean reward {means[name][-1]:.2f}")
    console.print(_build_summary(means))
    console.print(f"Open {url}/ and {url}/view/stats", highlight=False)


async def _load_sample_world(gateway: GatewayClient) -> Group:
    """Loads the sample world, and shows what a character retrieves at some times."""
    loaded = await load_world(gateway, read_world(SAMPLE))
    return Group(
        build_summary(loaded), f'Hob Tarrant is asked: "{LINE}"', await build_retrieved_events_table(gateway, MOMENTS)
    )


async def _run_step(
    client: httpx.AsyncClient, solver: Catalogue, plan: DemoPlan, environment: str, step: int
) -> Sequence[GroupReply]:
    ask = {"run": plan.run, "batch_size": plan.batch_size}
    handed = await _require_success(client.post(f"/envs/{environment}/next-batch", json=ask))
    luck = random.Random(f"{plan.seed}:{environment}:{step}")  # noqa: S311  # a toy policy
    skill = 0.15 + 0.7 * step / max(1, plan.steps - 1)
    groups = []
    for task in TaskBatch.model_validate(handed.json()).tasks:
        gold = await _find_gold(client, solver, task)
        answers = await _play_attempts(
            client, task, [_choose_attempt(luck, skill, task, gold) for _ in range(plan.group_size)]
        )
        completions = [answer.model_dump(mode="json", exclude_defaults=True) for answer in answers]
        groups.append({"task_id": task.task_id, "lease_id": task.lease_id, "completions": completions})
    if not groups:
        return ()
    body = {"groups": groups, "run": plan.run, "policy": {"model": "scripted", "step": step}}
    scored = await _require_success(client.post(f"/envs/{environment}/score", json=body))
    return [reply for reply in ScoreResponse.model_validate(scored.json()).groups if isinstance(reply, GroupReply)]


async def _find_gold(client: httpx.AsyncClient, solver: Catalogue, task: HandedOutTask) -> Completion | None:
    """A right answer, computed locally: the gateway never reveals one."""
    view = TaskView.model_validate((await _require_success(client.get(f"/tasks/{task.task_id}"))).json())
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
    client: httpx.AsyncClient, task: HandedOutTask, attempts: Sequence[Completion | tuple[Message, ...]]
) -> list[Completion]:
    return list(await asyncio.gather(*(_play_attempt(client, task, attempt) for attempt in attempts)))


async def _play_attempt(
    client: httpx.AsyncClient, task: HandedOutTask, attempt: Completion | tuple[Message, ...]
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
        body = {"task_id": task.task_id, "messages": [one.model_dump(mode="json") for one in messages]}
        answer = await _require_success(client.post(f"/envs/{task.environment}/step", json=body))
        turn = Turn.model_validate(answer.json())
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


async def _require_success(request: Awaitable[httpx.Response]) -> httpx.Response:
    return (await request).raise_for_status()


def _build_summary(means: dict[str, list[float]]) -> Table:
    table = Table("environment", "first step", "last step", title="mean reward")
    for name, values in means.items():
        table.add_row(name, f"{values[0]:.3f}", f"{values[-1]:.3f}")
    return table
