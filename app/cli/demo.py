"""`atropos-envs demo`: a scripted policy that improves with each step, as example data for the viewer.

The policy is a client like any trainer: it takes tasks, plays them and has them scored. Right answers come from the
same environments opened here, since the gateway reveals none; without skill one message is spoilt as models in training
spoil it. Judged environments have lines of three qualities in `demo.yaml`."""

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import JsonValue, TypeAdapter
from rich.table import Table

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import GatewayError
from app.domain.tasks import Completion, FunctionCall, Isolation, Message, ToolCall, ToolSpec
from app.domain.values import Frozen
from app.main.components import discover
from app.main.features import import_modules
from app.service.catalogue import Catalogue
from app.service.requests import GroupReply, HandedOutTask
from app.settings import read_settings
from app.terminal.client import AnsweredTask, ApiKey, GatewayClient, Url, find_gateway_url, open_gateway
from app.terminal.completion import complete_run
from app.terminal.consoles import AsJson, DemoPart, format_figure, output_console, print_json, show_bars, stop_on_errors


@dataclass(frozen=True)
class _DemoPlan:
    steps: int
    batch_size: int
    group_size: int
    run: str
    seed: int


class DemoResults(Frozen, extra="allow"):
    """What `demo --json` prints, after what features add."""

    mean_rewards: dict[str, tuple[float | None, ...]]
    """By environment and step; null where nothing was scored."""


def demo(
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Policy steps per environment.")] = 6,
    batch_size: Annotated[int, typer.Option(min=1, max=64, help="Tasks per step.")] = 8,
    group_size: Annotated[int, typer.Option(min=2, max=64, help="Completions per task.")] = 6,
    run: Annotated[str, typer.Option(help="Run name.", autocompletion=complete_run)] = "demo",
    seed: Annotated[int, typer.Option(help="Random seed of the scripted policy.")] = 0,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Fill a running gateway with demo data.

    Loads the sample world, and runs a scripted policy that improves with each step in every environment."""
    url = url or find_gateway_url()
    with stop_on_errors(1):
        parts, means = asyncio.run(_run_demo(url, api_key, _DemoPlan(steps, batch_size, group_size, run, seed)))
    if as_json:
        added = {name: value for part in parts for name, value in part.data.items()}
        print_json(DemoResults(**added, mean_rewards=means))
    else:
        _print_results(parts, means, url)


_MeanRewards = dict[str, tuple[float | None, ...]]
"""By environment and step; None where nothing was scored."""


async def _run_demo(url: str, api_key: str, plan: _DemoPlan) -> tuple[list[DemoPart], _MeanRewards]:
    solver = await asyncio.to_thread(_open_solver)
    async with open_gateway(url, api_key, 120) as gateway:
        listed = await gateway.list_environments()
        served = [environment.name for environment in listed.environments if environment.available]
        adding = (getattr(module, "add_to_demo", None) for module in import_modules("commands"))
        parts: list[DemoPart] = [await add(gateway) for add in adding if add is not None]
        means: _MeanRewards = {}
        with show_bars() as bars:
            for name in served:
                bar = bars.add(name, plan.steps)
                means[name] = ()
                for step in range(plan.steps):
                    replies = await _run_step(gateway, solver, plan, name, step)
                    means[name] += (_compute_mean(replies),)
                    bar.advance(words=f"mean reward {format_figure(means[name][-1])}")
    return parts, means


def _compute_mean(replies: Sequence[GroupReply]) -> float | None:
    """None where nothing was scored."""
    rewards = [reward for reply in replies for reward in reply.rewards if reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _print_results(parts: Sequence[DemoPart], mean_rewards: _MeanRewards, url: str) -> None:
    console = output_console()
    for part in parts:
        console.print(*part.printed, sep="\n")
    table = Table("environment", "first step", "last step", title="mean reward")
    for name, means in mean_rewards.items():
        table.add_row(name, format_figure(means[0]), format_figure(means[-1]))
    console.print(table)
    console.print(f"Open {url}/ and {url}/view/stats", highlight=False)


async def _run_step(
    gateway: GatewayClient, solver: Catalogue, plan: _DemoPlan, environment: str, step: int
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
    return _CUT_OFF if luck.random() < 0.05 else _script_turns(luck, skill, task, gold)


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


# The scripted policy: right answers, and typical mistakes of a model in training.

_CUT_OFF = Completion(text="Let us go through this slowly and", finish_reason="length")
_NO_ANSWER = "I would rather not commit myself to an answer."
_NOTHING_TO_CALL = "All done."
_MARKS = ".,;:!?'\""
_NUMBER = re.compile(r"\d+")


class ScriptedLines(Frozen):
    poor: tuple[str, ...]
    plain: tuple[str, ...]
    good: tuple[str, ...]


LINES = TypeAdapter(dict[str, ScriptedLines]).validate_python(
    yaml.safe_load(Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8"))
)


def _script_turns(
    luck: random.Random, skill: float, task: HandedOutTask, gold: Completion | None
) -> tuple[Message, ...]:
    """Messages by turn. Without skill one of the right messages is changed: one with tool calls, if any."""
    if gold is None:
        return tuple(_build_text_message(line) for line in _choose_lines(luck, skill, task))
    right = [message for message in gold.messages or (_build_text_message(gold.answer),) if message.role == "assistant"]
    calling = [index for index, message in enumerate(right) if message.tool_calls]
    spoilt = len(right) if luck.random() < skill else luck.choice(calling or range(len(right)))
    words = (task.messages[-1].content or "").split()
    return tuple(
        _spoil_message(luck, message, task.tools, words) if index == spoilt else message
        for index, message in enumerate(right)
    )


def _choose_lines(luck: random.Random, skill: float, task: HandedOutTask) -> list[str]:
    """One line per turn, without repetition where possible."""
    lines = LINES.get(task.environment, LINES["anywhere"])
    line = task.messages[-1].content or ""
    words = sorted(dict.fromkeys(line.split()), key=len)[-2:]
    chosen_texts: list[str] = []
    for _ in range(task.max_turns):
        quality = lines.good if luck.random() < skill else lines.plain if luck.random() < skill else lines.poor
        text = luck.choice([one for one in quality if one not in chosen_texts] or quality)
        chosen_texts.append(text)
    longest = " and ".join(word.strip(_MARKS) for word in words)
    return [text.replace("{words}", longest).replace("{line}", line[:60]) for text in chosen_texts]


def _spoil_message(luck: random.Random, message: Message, tools: Sequence[ToolSpec], words: Sequence[str]) -> Message:
    """Changes a tool call or a number; without either, gives no answer."""
    calls = message.tool_calls
    if calls:
        return _spoil_last_call(luck, calls, words)
    text = message.content or ""
    numbers = [*_NUMBER.finditer(text)]
    if numbers:
        last = numbers[-1]
        return _build_text_message(f"{text[: last.start()]}{int(last[0]) + luck.randint(1, 9)}{text[last.end() :]}")
    if tools and luck.random() < 0.7:
        return _build_call_message((_build_call(luck.choice(tools), words),))
    return _build_text_message(_NO_ANSWER)


def _spoil_last_call(luck: random.Random, calls: tuple[ToolCall, ...], words: Sequence[str]) -> Message:
    *before, last = calls  # the last is what the others prepare
    others = ((*calls, last), tuple(before), (*before, _change_call(luck, last, words)))
    (chosen,) = luck.choices(others, weights=(1, 2, 6))
    return _build_call_message(chosen) if chosen else _build_text_message(_NOTHING_TO_CALL)


def _change_call(luck: random.Random, call: ToolCall, words: Sequence[str]) -> ToolCall:
    """The same tool with a changed value or an extra argument."""
    given = call.function.arguments
    arguments: dict[str, JsonValue] = {**given} if isinstance(given, dict) else {}
    if arguments and luck.random() < 0.8:
        name = luck.choice(sorted(arguments))
        arguments[name] = _change_value(luck, arguments[name], words)
    else:
        arguments["note"] = luck.choice(words or ["soon"])
    return call.model_copy(update={"function": FunctionCall(name=call.function.name, arguments=arguments)})


def _change_value(luck: random.Random, value: JsonValue, words: Sequence[str]) -> JsonValue:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + luck.randint(1, 9)
    if isinstance(value, list):
        return value[:-1]
    if isinstance(value, str):
        return luck.choice([word.strip(_MARKS) for word in words] or ["soon"])
    return None


def _build_call(tool: ToolSpec, words: Sequence[str]) -> ToolCall:
    """Fills required arguments with words of the request."""
    required = tool.function.parameters.get("required")
    names = required if isinstance(required, list) else []
    longest = sorted(dict.fromkeys(words), key=len)[::-1]
    arguments: Mapping[str, JsonValue] = {
        str(name): word.strip(_MARKS) for name, word in zip(names, longest, strict=False)
    }
    return ToolCall(function=FunctionCall(name=tool.function.name, arguments=dict(arguments)))


def _build_call_message(calls: tuple[ToolCall, ...]) -> Message:
    return Message(role="assistant", tool_calls=calls)


def _build_text_message(text: str) -> Message:
    return Message(role="assistant", content=text)
