"""`atropos-envs demo`: a scripted policy that learns from step to step, as example data for the viewer.

The policy is a client like any trainer: it takes tasks, plays them and has them scored. Right answers come from the
same environments opened here, since the gateway reveals none; without skill one message is spoilt as models in training
spoil it. To scenes of NPC Arena it says what their sheets hold: an exemplar for the line, parts of it, or what the
character would never say. What the offline judge cannot tell apart is left out.

The policy before and after training answers the same held-out tasks, and one alarm is planted."""

import asyncio
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Final

import httpx
import typer
from pydantic import JsonValue
from rich.table import Table

from app.characters.casting import Cast
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import GatewayError, UserError
from app.domain.runs import Alarm, Purpose
from app.domain.tasks import Completion, FunctionCall, Isolation, Message, ToolCall, ToolSpec
from app.domain.values import Frozen, Split
from app.envs.npc_arena.environment import NpcArena
from app.http.viewer.sentences import tell_alarm
from app.main.components import discover
from app.main.features import import_modules
from app.service.catalogue import Catalogue
from app.service.requests import GroupReply, HandedOutTask
from app.service.runs import RunReport
from app.settings import read_settings
from app.terminal.client import AnsweredTask, ApiKey, GatewayClient, Url, find_gateway_url, open_gateway
from app.terminal.completion import complete_run
from app.terminal.consoles import (
    AsJson,
    Bar,
    DemoPart,
    PageLink,
    format_figure,
    output_console,
    print_json,
    show_bars,
    stop_on_errors,
)

_LEFT_OUT: Final = {
    "blackjack": "many hands have no winning play that the policy could copy",
    "rlaif": "the offline judge cannot tell whether a reply fits a preference",
}
_FLAGSHIP: Final = NpcArena.name
_LANGUAGE: Final = "en"
"""That of what the scripted policy says out of character."""
_MOST_TASKS: Final = 64
_LEAST_BEFORE_ALARM: Final = 300
"""With fewer groups before, run health does not notice it: each environment and label is a stratum of few."""
_MOST_DEMOS: Final = 50
_ALARM_SECONDS: Final = 20.0
"""A run is looked at every three seconds."""


@dataclass(frozen=True)
class _DemoPlan:
    steps: int
    batch_size: int
    group_size: int
    run: str
    """Of a run that is not there yet."""
    seed: int

    @property
    def last(self) -> int:
        return self.steps - 1

    def plants_alarm(self, environments: int) -> bool:
        return self.last * self.batch_size * environments >= _LEAST_BEFORE_ALARM


@dataclass(frozen=True)
class _Course:
    """One environment, and which of its tasks the policy answers in each split: `times` as many as of others."""

    name: str
    times: int = 1
    skill: tuple[float, float] = (0.2, 0.75)
    """Shares of good replies at the first and the last step. More right answers would leave many groups without a
    signal, which is an alarm."""
    params: Mapping[str, JsonValue] = field(default_factory=dict)
    select: Mapping[Split, Mapping[str, JsonValue]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Lesson:
    """The tasks that the policy answers at one step, in training or to be compared."""

    course: _Course
    step: int
    split: Split
    purpose: Purpose
    thinks: bool = False


class DemoResults(Frozen, extra="allow"):
    """What `demo --json` prints, after what features add."""

    mean_rewards: dict[str, tuple[float | None, ...]]
    """Absolute, by environment and step; null where nothing was scored."""
    held_out: dict[str, tuple[float | None, ...]]
    """The same of the first and the last step on the same held-out tasks."""
    left_out: dict[str, str]
    """Environments, and why."""
    planted: str
    """The alarm that is meant to be there; empty where the run is too short for one."""
    alarms: tuple[str, ...]
    """Those that run health raised, as the page of the run tells them."""
    worth_opening: dict[str, str]
    """What there is to see, by address."""


def demo(
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Policy steps per environment.")] = 6,
    batch_size: Annotated[int, typer.Option(min=1, max=_MOST_TASKS, help="Tasks per step.")] = 8,
    group_size: Annotated[int, typer.Option(min=2, max=64, help="Completions per task.")] = 6,
    run: Annotated[
        str | None,
        typer.Option(
            help="Name of a new run.", show_default="demo, or demo-2 where that is taken", autocompletion=complete_run
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the scripted policy.")] = 0,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Fill a running gateway with demo data.

    Loads the sample world, and trains a scripted policy that gets better with each step. The run ends as finished, with
    one planted alarm, and its first and last step are compared on the same held-out tasks."""
    url = url or find_gateway_url()
    with stop_on_errors(1):
        parts, results = asyncio.run(_run_demo(url, api_key, _DemoPlan(steps, batch_size, group_size, run or "", seed)))
    if as_json:
        print_json(results)
    else:
        _print_results(parts, results)


@dataclass
class _Played:
    """Groups by environment and step."""

    trained: dict[str, list[Sequence[GroupReply]]] = field(default_factory=dict)
    held_out: dict[str, list[Sequence[GroupReply]]] = field(default_factory=dict)


async def _run_demo(url: str, api_key: str, plan: _DemoPlan) -> tuple[list[DemoPart], DemoResults]:
    solver = await asyncio.to_thread(_open_solver)
    async with open_gateway(url, api_key, 120) as gateway:
        plan = replace(plan, run=await _choose_run(gateway, plan.run))
        listed = await gateway.list_environments()
        served = [environment.name for environment in listed.environments if environment.available]
        # The flagship comes last, so that the newest groups are its.
        names = sorted((name for name in served if name not in _LEFT_OUT), key=lambda name: (name == _FLAGSHIP, name))
        courses = [_plan_course(solver, name) for name in names]
        adding = (getattr(module, "add_to_demo", None) for module in import_modules("commands"))
        parts: list[DemoPart] = [await add(gateway) for add in adding if add is not None]
        policy = _Policy(gateway, solver, plan)
        with show_bars() as bars:
            played = await _play_courses(policy, courses, bars.add(plan.run, plan.steps * len(courses)))
        await _finish_run(gateway, plan.run)
        planted = plan.plants_alarm(len(courses))
        alarms = await _wait_for_alarms(gateway, plan.run) if planted else ()
    means = {name: tuple(map(_compute_mean, steps)) for name, steps in played.trained.items()}
    held_out = {name: tuple(map(_compute_mean, steps)) for name, steps in played.held_out.items()}
    links = [*_list_links(plan, played), *(link for part in parts for link in part.links)]
    results = DemoResults(
        **{name: value for part in parts for name, value in part.data.items()},
        mean_rewards=means,
        held_out=held_out,
        left_out={name: why for name, why in _LEFT_OUT.items() if name in served},
        planted=_describe_planted(plan) if planted else "",
        alarms=tuple(map(tell_alarm, alarms)),
        worth_opening={f"{url}{link.path}": link.shows for link in links},
    )
    return parts, results


async def _choose_run(gateway: GatewayClient, wanted: str) -> str:
    """A name that no run has: two policies in one run would look like one that forgets. UserError for a wanted one that
    is taken."""
    if wanted:
        if await gateway.fetch_run(wanted) is not None:
            raise UserError(f"`--run`: there is a run {wanted} already; wanted is the name of a new run")
        return wanted
    names = ("demo", *(f"demo-{number}" for number in range(2, _MOST_DEMOS + 1)))
    for name in names:
        if await gateway.fetch_run(name) is None:
            return name
    raise UserError(f"there are {_MOST_DEMOS} demos already: name a new run with --run")


async def _play_courses(policy: "_Policy", courses: Sequence[_Course], bar: Bar) -> _Played:
    """All environments step by step, as a trainer on a mixture. The policy is compared before and after training."""
    plan, played = policy.plan, _Played()
    planted = plan.plants_alarm(len(courses))
    for step in range(plan.steps):
        for course in courses:
            groups = await policy.play(_Lesson(course, step, "train", "train", planted and step == plan.last))
            played.trained.setdefault(course.name, []).append(groups)
            if step in {0, plan.last}:
                groups = await policy.play(_Lesson(course, step, "test", "eval"))
                played.held_out.setdefault(course.name, []).append(groups)
            bar.advance(words=f"step {step}, {course.name}")
    return played


def _compute_mean(replies: Sequence[GroupReply]) -> float | None:
    """Of the absolute rewards, as pages of runs and comparisons have them: what a reply earned beside its group says
    nothing of a step. None where nothing was scored."""
    scores = [score for reply in replies for score in reply.scores if score.reward is not None]
    absolute = [score.reward if score.absolute is None else (score.gate or 0.0) * score.absolute for score in scores]
    rewards = [reward for reward in absolute if reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


async def _finish_run(gateway: GatewayClient, name: str) -> None:
    health = (await gateway.require_run(name)).health.model_copy(update={"finished": True})
    await gateway.change_run(name, {"health": health})


async def _wait_for_alarms(gateway: GatewayClient, name: str) -> Sequence[Alarm]:
    """Those that stand; none where run health is too slow."""
    until = time.monotonic() + _ALARM_SECONDS
    while time.monotonic() < until:
        report = RunReport.model_validate_json(await gateway.send_request("GET", f"/runs/{name}"))
        if report.alarms:
            return report.alarms
        await asyncio.sleep(0.5)
    return ()


def _describe_planted(plan: _DemoPlan) -> str:
    return f"from step {plan.last} on replies are longer, since the policy begins to think aloud"


def _list_links(plan: _DemoPlan, played: _Played) -> list[PageLink]:
    """Of the flagship, or else of the first environment."""
    name = _FLAGSHIP if _FLAGSHIP in played.trained else next(iter(played.trained), "")
    run, groups = f"/view/runs/{plan.run}", [group for step in played.trained.get(name, ()) for group in step]
    if not groups:
        return []
    steps = [[group for step in one for group in step] for one in zip(*played.trained.values(), strict=True)]
    links = [
        PageLink(run, f"the run learns: absolute reward {_tell_rise(steps)}"),
        PageLink(f"{run}?environment={name}", f"{name} alone: each criterion over the steps"),
    ]
    differing = max(groups, key=lambda group: (len(set(group.rewards)), group.std or 0.0))
    links.append(PageLink(f"/view/groups/{differing.group_id}", "replies to the same line, good and bad, and why"))
    if plan.last > 0:
        words: dict[str, str | int] = {
            "first": plan.run,
            "first_steps": 0,
            "second_steps": plan.last,
            "environment": name,
            "judge": "own",
        }
        compared = f"step 0 against step {plan.last} on the same held-out tasks: {_tell_rise(played.held_out[name])}"
        links.append(PageLink(f"/view/compare?{httpx.QueryParams(words)}", compared))
    return links


def _tell_rise(steps: Sequence[Sequence[GroupReply]]) -> str:
    first, last = (format_figure(_compute_mean(steps[place]), ".2f") for place in (0, -1))
    return f"{first} at the first step, {last} at the last"


def _print_results(parts: Sequence[DemoPart], results: DemoResults) -> None:
    console = output_console()
    for part in parts:
        console.print(*part.printed, sep="\n")
    table = Table(
        "environment", "first step", "last step", "held out, first", "held out, last", title="mean absolute reward"
    )
    for name, means in results.mean_rewards.items():
        table.add_row(
            name, *(format_figure(mean) for one in (means, results.held_out[name]) for mean in (one[0], one[-1]))
        )
    console.print(table)
    say = partial(console.print, highlight=False, markup=False)
    for name, why in results.left_out.items():
        say(f"Left out: {name}, since {why}.")
    if results.planted:
        say(f"One alarm is planted: {results.planted}.")
        say("\n".join(f"Run health: {alarm}" for alarm in results.alarms) or "Run health has not noticed it yet.")
    say("Worth opening:")
    for address, shows in results.worth_opening.items():
        say(f"  {address}\n    {shows}")


# How the policy takes tasks and plays them.


@dataclass(frozen=True)
class _Policy:
    gateway: GatewayClient
    solver: Catalogue
    plan: _DemoPlan

    async def play(self, lesson: _Lesson) -> Sequence[GroupReply]:
        course, plan = lesson.course, self.plan
        luck = random.Random(f"{plan.seed}:{course.name}:{lesson.step}:{lesson.purpose}")  # noqa: S311  # a toy policy
        first, last = course.skill
        skill = first + (last - first) * lesson.step / max(1, plan.last)
        batch = await self.gateway.fetch_next_batch(self._ask(lesson), course.name)
        scripts = await asyncio.gather(*map(self._write_script, batch.tasks))
        chosen = [
            [_choose_attempt(luck, skill, task, script) for _ in range(plan.group_size)]
            for task, script in zip(batch.tasks, scripts, strict=True)
        ]
        played = await asyncio.gather(*map(self._play_attempts, batch.tasks, chosen))
        groups = [
            AnsweredTask(
                task.task_id, task.lease_id, [_think_aloud(luck, one) if lesson.thinks else one for one in some]
            )
            for task, some in zip(batch.tasks, played, strict=True)
        ]
        policy: dict[str, JsonValue] = {"model": "scripted", "step": lesson.step}
        replies = await self.gateway.score(groups, plan.run, policy, lesson.purpose) if groups else ()
        return [reply for reply in replies if isinstance(reply, GroupReply)]

    def _ask(self, lesson: _Lesson) -> dict[str, JsonValue]:
        course = lesson.course
        ask: dict[str, JsonValue] = {
            "run": self.plan.run,
            "batch_size": min(_MOST_TASKS, course.times * self.plan.batch_size),
            "split": lesson.split,
            "purpose": lesson.purpose,
            "params": dict(course.params),
            "select": dict(course.select.get(lesson.split, {})),
        }
        return {**ask, "cursor": 0} if lesson.purpose == "eval" else {**ask, "policy": {"step": lesson.step}}

    async def _write_script(self, task: HandedOutTask) -> "_Script":
        """From the environment as it is here: the gateway never reveals a right answer."""
        view = await self.gateway.fetch_task(task.task_id)
        try:
            environment = self.solver.get_environment_or_current(view.environment).environment
            if isinstance(environment, NpcArena):
                return _list_lines(environment, task)
            made = environment.task(view.split, view.index, environment.Params.model_validate(view.params))
        except (GatewayError, LookupError, ValueError):
            return _NO_SCRIPT
        return environment.gold(made) or _NO_SCRIPT if made.messages == view.messages else _NO_SCRIPT

    async def _play_attempts(
        self, task: HandedOutTask, attempts: Sequence[Completion | tuple[Message, ...]]
    ) -> list[Completion]:
        return list(await asyncio.gather(*(self._play_attempt(task, attempt) for attempt in attempts)))

    async def _play_attempt(self, task: HandedOutTask, attempt: Completion | tuple[Message, ...]) -> Completion:
        """The attempt's messages, with the environment's observations where there are several turns."""
        if isinstance(attempt, Completion):
            return attempt
        if task.max_turns == 1:
            (only,) = attempt
            return Completion(messages=attempt) if only.tool_calls else Completion(text=only.content or "")
        messages: list[Message] = []
        for said in attempt:
            messages.append(said)
            turn = await self.gateway.step(task.environment, task.task_id, messages)
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


# What the characters of NPC Arena say.


@dataclass(frozen=True)
class _Lines:
    """Replies to one line. Without any the policy gives no answer."""

    good: Sequence[str] = ()
    plain: Sequence[str] = ()
    poor: Sequence[str] = ()


_Script = Completion | _Lines
_NO_SCRIPT: Final = _Lines()
_ASSISTANT: Final = (
    "As an AI language model, I do not have personal experiences, but I would be happy to help you with that!"
)
_PASSAGE: Final = re.compile(r"\*[^*]*\*|[^.!?…*]+[.!?…\"”’]*")
"""A stage direction, or a sentence."""


def _plan_course(solver: Catalogue, name: str) -> _Course:
    """Of NPC Arena the scenes for whose line somebody wrote an exemplar: twice as many, since only some are of each
    kind."""
    try:
        environment = solver.get_environment_or_current(name).environment
    except GatewayError:
        return _Course(name)
    if not isinstance(environment, NpcArena):
        return _Course(name)
    splits: tuple[Split, ...] = ("train", "test")
    scenes: dict[Split, list[JsonValue]] = {
        split: [
            cast.scene.id
            for cast in environment.roster.list_casts(split, "single", "by_hand", "without", None)
            if cast.exemplar is not None and cast.sheet.voice.language == _LANGUAGE
        ]
        for split in splits
    }
    select: dict[Split, dict[str, JsonValue]] = {split: {"scene": some} for split, some in scenes.items()}
    return _Course(name, 2, (0.1, 0.9), {"turns": "single", "scenes": "by_hand"}, select)


def _list_lines(arena: NpcArena, task: HandedOutTask) -> _Lines:
    cast = arena.roster.find_cast(str(task.metadata.get("character")), str(task.metadata.get("scene")))
    return _NO_SCRIPT if cast is None or cast.exemplar is None else _sort_lines(cast, cast.exemplar)


def _sort_lines(cast: Cast, exemplar: str) -> _Lines:
    """What the sheet has, from the exemplar down to what the character would never say."""
    passages = [passage.strip() for passage in _PASSAGE.findall(exemplar) if passage.strip()]
    parts = [" ".join(passages[: max(1, round(share * len(passages)))]) for share in (0.75, 0.5, 0.25)]
    written = cast.references
    voice, probes = cast.sheet.voice, cast.sheet.probes
    return _Lines(
        good=tuple(dict.fromkeys((exemplar, parts[0]))),
        plain=tuple(dict.fromkeys((*(written[kind] for kind in ("plain",) if kind in written), *parts[1:]))),
        poor=(
            *(written[kind] for kind in ("generic",) if kind in written),
            *(each.reply for each in voice.counter_examples),
            *probes.distractors,
            _ASSISTANT,
        ),
    )


def _choose_line(luck: random.Random, skill: float, lines: _Lines) -> str:
    some = lines.good if luck.random() < skill else lines.plain if luck.random() < skill else lines.poor
    return luck.choice(some) if some else _NO_ANSWER


# The scripted policy: right answers, and typical mistakes of a model in training.

_CUT_OFF = Completion(text="Let us go through this slowly and", finish_reason="length")
_NO_ANSWER = "I would rather not commit myself to an answer."
_NOTHING_TO_CALL = "All done."
_MARKS = ".,;:!?'\""
_NUMBER = re.compile(r"\d+")
_THOUGHTS = (
    "Let me read that once more before I answer, so that nothing of it is missed.",
    "First what is asked, then what I know, and only then the answer.",
    "I should not hurry. What would be wrong with my first idea?",
)


def _think_aloud(luck: random.Random, completion: Completion) -> Completion:
    """Of replies that are one text: verifiers and judges read what stands behind a thought."""
    if completion.text is None:
        return completion
    return completion.model_copy(update={"text": f"<think>{luck.choice(_THOUGHTS)}</think>\n{completion.text}"})


def _choose_attempt(
    luck: random.Random, skill: float, task: HandedOutTask, script: _Script
) -> Completion | tuple[Message, ...]:
    """A truncated completion, or the messages of each turn."""
    if luck.random() < 0.1 * (1 - skill):
        return _CUT_OFF
    if isinstance(script, _Lines):
        return (_build_text_message(_choose_line(luck, skill, script)),) * task.max_turns
    return _script_turns(luck, skill, task, script)


def _script_turns(luck: random.Random, skill: float, task: HandedOutTask, gold: Completion) -> tuple[Message, ...]:
    """Messages by turn. Without skill one of the right messages is changed: one with tool calls, if any."""
    right = [message for message in gold.messages or (_build_text_message(gold.answer),) if message.role == "assistant"]
    calling = [index for index, message in enumerate(right) if message.tool_calls]
    spoilt = len(right) if luck.random() < skill else luck.choice(calling or range(len(right)))
    words = (task.messages[-1].content or "").split()
    return tuple(
        _spoil_message(luck, message, task.tools, words) if index == spoilt else message
        for index, message in enumerate(right)
    )


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
