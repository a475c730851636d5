"""`atropos-envs envs add`: look at another's environment, try it, and write it into the settings.

What is shown comes from the server itself: what it says it is, its first task, and what replies earn that do nothing of
what is asked. Nothing is stored but the settings' few lines."""

import asyncio
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer
import yaml
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import HostFailed, UserError
from app.domain.faults import explain_faults
from app.domain.hosting import HostedStep, ServerFacts, StoredSteps
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import Frozen
from app.envs.foreign.contract import ForeignServer, build_environment
from app.main.components import build_foreign_server, create_children, discover
from app.service.catalogue import make_task
from app.service.hosted import HostedEpisodes
from app.service.task_cache import place_context
from app.settings import EnvironmentSettings, Settings, read_settings, settings_file
from app.terminal.consoles import AsJson, format_figure, output_console, parse_object, print_json, stop_on_errors

add = typer.Typer(help="Add another's environment to the settings.", no_args_is_help=True)

_TASKS: Final = 3
"""Tasks that the replies are tried on."""
_SHOWN: Final = 1200
"""Characters of the first task's messages."""
_REPLIES: Final = ("nothing", "a few words", "the task itself")
_ECHOED: Final = 2000

NameOption = Annotated[str, typer.Option("--name", help="Under which it is served; made of what it is by default.")]
KeyOption = Annotated[str, typer.Option(help="The variable that holds its key.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Look only; write nothing.")]
TurnsOption = Annotated[int, typer.Option(min=1, max=1000, help="Replies of an episode at most.")]


class TriedReply(Frozen):
    """What a reply earned that does nothing of what is asked, on each of the first tasks."""

    reply: str
    rewards: tuple[float | None, ...]
    why_not: str
    """Of the first that has no score."""


class Look(Frozen):
    """What was found."""

    name: str
    facts: ServerFacts
    size: int | None
    """Tasks for training; null is endless."""
    prompt: tuple[str, ...]
    tools: tuple[str, ...]
    replies: tuple[TriedReply, ...]
    check: str
    """The command that checks its grader, where right answers are known."""
    block: str
    """Of the settings."""
    file: str
    """That was written; empty where none was."""

    @property
    def best(self) -> float | None:
        known = [reward for one in self.replies for reward in one.rewards if reward is not None]
        return max(known, default=None)


@add.command()
def openenv(
    url: Annotated[str, typer.Argument(help="Of the server, such as http://wordle:8000.")],
    name: NameOption = "",
    api_key_env: KeyOption = "",
    action_field: Annotated[str, typer.Option(help="Where the model's text goes in an action.")] = "",
    final_tool: Annotated[str, typer.Option(help="The tool that gets a reply without calls.")] = "",
    max_turns: TurnsOption = 16,
    dry_run: DryOption = False,
    as_json: AsJson = False,
) -> None:
    """Add a server of OpenEnv's."""
    given = {
        "url": url,
        "api_key_env": api_key_env or None,
        "action_field": action_field,
        "final_tool": final_tool,
        "max_turns": max_turns,
    }
    _add("openenv", given, name or _name_after(url), dry_run=dry_run, as_json=as_json)


@add.command()
def nemo_gym(
    url: Annotated[str, typer.Argument(help="Of the resources server, such as http://mcqa:9000.")],
    rows: Annotated[Path, typer.Option(help="A file of its rows, a JSON object a line.")],
    test_rows: Annotated[Path | None, typer.Option(help="Rows of the test split.")] = None,
    name: NameOption = "",
    api_key_env: KeyOption = "",
    max_turns: TurnsOption = 16,
    dry_run: DryOption = False,
    as_json: AsJson = False,
) -> None:
    """Add a resources server of NeMo Gym's."""
    given = {
        "url": url,
        "rows": rows,
        "test_rows": test_rows,
        "api_key_env": api_key_env or None,
        "max_turns": max_turns,
    }
    _add("nemo_gym", given, name or _name_after(url), dry_run=dry_run, as_json=as_json)


@add.command()
def verifiers(
    package: Annotated[str, typer.Argument(help="The module that exports the task set, or has load_environment.")],
    python: Annotated[Path, typer.Option(help="The interpreter of a virtual environment with it and verifiers.")],
    args: Annotated[str, typer.Option(help="Fields of its config, as a JSON object.")] = "{}",
    folder: Annotated[
        list[Path] | None, typer.Option(help="What the child may read besides; modules are looked for there first.")
    ] = None,
    test: Annotated[int, typer.Option(min=0, help="How many of the tasks, the last ones, are the test split.")] = 0,
    trusted: Annotated[bool, typer.Option("--trusted", help="Run it without a jail.")] = False,
    name: NameOption = "",
    max_turns: TurnsOption = 16,
    dry_run: DryOption = False,
    as_json: AsJson = False,
) -> None:
    """Add a task set of verifiers', in a child process."""
    with stop_on_errors():
        given = {
            "package": package,
            "python": python,
            "args": parse_object("--args", args),
            "folders": tuple(folder or ()),
            "test": test,
            "trusted": trusted,
            "max_turns": max_turns,
        }
    _add("verifiers", given, name or _name_after(package), dry_run=dry_run, as_json=as_json)


def _add(serve: str, given: Mapping[str, object], name: str, *, dry_run: bool, as_json: bool) -> None:
    with stop_on_errors():
        settings = read_settings()
        said = {key: value for key, value in given.items() if value not in (None, "", (), {}, 0, False)}
        chosen = _build_settings({"serve": serve, **said})
        _require_free(name, discover(), settings)
        file = settings_file()
        block = _write_block(name, chosen)
        text = insert_block(file.read_text(encoding="utf-8") if file.is_file() else "", block)
        look = asyncio.run(_look(settings, name, chosen, block))
        if not dry_run:
            file.write_text(text, encoding="utf-8")
            look = look.model_copy(update={"file": str(file)})
    if as_json:
        print_json(look)
    else:
        _print_look(look, output_console())


def _word_check(chosen: EnvironmentSettings) -> str:
    """Three replies of nothing show the worst; the whole check wants rows with right answers."""
    if chosen.package:
        asked = [f"verifiers:{chosen.package}", "--python", str(chosen.python)]
    else:
        asked = [f"{chosen.serve}+{chosen.url}", "--rows", str(chosen.rows or "FILE")]
    return shlex.join(["atropos-envs", "graders", "check", *asked])


def _build_settings(given: Mapping[str, object]) -> EnvironmentSettings:
    try:
        return EnvironmentSettings.model_validate(given)
    except ValidationError as error:
        raise UserError(explain_faults(error, EnvironmentSettings)[0].sentence) from None


def _require_free(name: str, ours: Collection[str], settings: Settings) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
        raise UserError(f"{name!r} can be no name: small letters, digits, _ and -; choose one by --name")
    if name in ours:
        raise UserError(f"an environment of ours is called {name}: choose another name by --name")
    if name in settings.environments:
        raise UserError(f"the settings have an environment {name} already: choose another name by --name")


def _name_after(where: str) -> str:
    """`http://wordle:8000` is `wordle`."""
    host = re.sub(r"^[a-z]+://", "", where).split("/")[0].split(":")[0].split(".")[0]
    made = re.sub(r"[^a-z0-9]+", "_", host.lower()).strip("_")
    return made if re.match("[a-z]", made) and made != "localhost" else "other"


def _write_block(name: str, chosen: EnvironmentSettings) -> str:
    values = chosen.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump({name: {"serve": values.pop("serve"), **values}}, sort_keys=False, allow_unicode=True)


def insert_block(text: str, block: str) -> str:
    """The settings' text with a block more below `environments`. UserError where it cannot be added to."""
    indented = "".join(f"  {line}\n" for line in block.splitlines())
    lines = text.splitlines(keepends=True)
    place = next((number for number, line in enumerate(lines) if re.match(r"environments:\s*(#.*)?$", line)), None)
    if place is None:
        before = text if not text or text.endswith("\n") else text + "\n"
        made = f"{before}environments:\n{indented}"
    else:
        made = "".join([*lines[: place + 1], indented, *lines[place + 1 :]])
    _require_addition(text, made, block)
    return made


def _require_addition(text: str, made: str, block: str) -> None:
    """So that nothing is written that says something else."""
    try:
        before, after = yaml.safe_load(text) or {}, yaml.safe_load(made)
    except yaml.YAMLError:
        before, after = None, None
    if isinstance(before, dict) and isinstance(after, dict):
        wanted = {**before, "environments": {**(before.get("environments") or {}), **yaml.safe_load(block)}}
        if after == wanted:
            return
    raise UserError(f"{settings_file()} cannot be added to; write this below `environments` yourself:\n{block}")


# The look


@dataclass
class _Steps:
    """Answers of this look alone."""

    known: dict[str, HostedStep] = field(default_factory=dict)

    async def find_steps(self, keys: Collection[str]) -> StoredSteps:
        return {key: self.known[key] for key in keys if key in self.known}

    async def put(self, key: str, task_id: str, step: HostedStep) -> HostedStep:
        return self.known.setdefault(key, step)


async def _look(settings: Settings, name: str, chosen: EnvironmentSettings, block: str) -> Look:
    server = build_foreign_server(settings, name, chosen, create_children(settings))
    await server.open()
    episodes = HostedEpisodes(_Steps())
    try:
        return await _try_server(server, episodes, chosen, block)
    except HostFailed as error:
        raise UserError(error.detail) from error
    finally:
        await episodes.close()
        await server.close()


async def _try_server(server: ForeignServer, episodes: HostedEpisodes, chosen: EnvironmentSettings, block: str) -> Look:
    environment = await asyncio.to_thread(build_environment(server).open, ConfiguredDatasets({}))
    params = environment.Params()
    size = environment.size("train", params)
    count = _TASKS if size is None else min(_TASKS, size)
    tasks = []
    for index in range(count):
        task = make_task(environment, "train", index, params)
        if not task.messages:
            (context,) = await episodes.open_all([environment.find_host(task)])
            task = place_context(environment, task, context)
        tasks.append(task)
    scores = [
        await episodes.score(f"look {number}", environment.find_host(task), _list_replies(task))
        for number, task in enumerate(tasks)
    ]
    first = tasks[0] if tasks else Task(messages=())
    return Look(
        name=server.name,
        facts=environment.server_facts,
        size=size,
        prompt=tuple(f"{message.role}: {(message.content or '')[:_SHOWN]}" for message in first.messages),
        tools=tuple(tool.function.name for tool in first.tools),
        replies=tuple(_tell_reply(name, [one[number] for one in scores]) for number, name in enumerate(_REPLIES)),
        check=_word_check(chosen),
        block=block,
        file="",
    )


def _list_replies(task: Task) -> list[Completion]:
    """One for each of `_REPLIES`."""
    return [Completion(text=text) for text in ("", "I do not know.", (task.messages[-1].content or "")[:_ECHOED])]


def _tell_reply(name: str, scores: Sequence[Score]) -> TriedReply:
    why_not = next((one.rationale for one in scores if one.reward is None), "")
    return TriedReply(reply=name, rewards=tuple(one.reward for one in scores), why_not=why_not)


def _print_look(look: Look, console: Console) -> None:
    facts = look.facts
    size = "endless" if look.size is None else f"{look.size:,} tasks"
    version = facts.server_version or "it names no version, so its rule may change unseen"
    console.print(Text.assemble((look.name, "bold"), f"  {facts.kind}, {size}; version: {version}"), soft_wrap=True)
    console.print("lost sessions are played again" if facts.replayable else "lost sessions have no score")
    for note in facts.notes:
        console.print(Text(note, style="yellow"), soft_wrap=True)
    console.print()
    console.print("The first task:", style="bold")
    for line in look.prompt:
        console.print(Text(f"  {line}"), soft_wrap=True)
    if look.tools:
        console.print(Text(f"  tools: {', '.join(look.tools)}"), soft_wrap=True)
    console.print()
    table = Table("a reply of", *(f"task {number + 1}" for number in range(len(look.replies[0].rewards))), box=None)
    for one in look.replies:
        table.add_row(one.reply, *(format_figure(reward) for reward in one.rewards), Text(one.why_not))
    console.print(table)
    console.print(Text(_word_verdict(look)), soft_wrap=True)
    console.print(Text(f"With right answers its grader is checked by:\n  {look.check}"), soft_wrap=True)
    console.print()
    written = f"Written into {look.file}. Start the service anew to serve it." if look.file else "Nothing was written."
    console.print(Text(f"{look.block}\n{written}"), soft_wrap=True)


def _word_verdict(look: Look) -> str:
    if look.best is None:
        return "None of these replies has a score. A policy would get none for them either."
    if look.best > 0:
        return f"Up to {look.best:.3f} is paid for replies that do nothing of what is asked: look at its grader first."
    return "Nothing is paid for replies that do nothing of what is asked."
