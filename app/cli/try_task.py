"""`atropos-envs try`: a task of the running service, a reply typed by a person, its score, and why.

Whoever is new sees in a minute what an environment asks and what it pays. Replies go the way of a trainer's: a look
without a run, the turns of an episode, one group. Judges compare, so a judged reply has a plain one beside it.
"""

import asyncio
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from app.domain.errors import GatewayError, NotFound, Unavailable, UserError
from app.domain.scores import explain_score
from app.domain.tasks import Completion, Message
from app.domain.values import Frozen, Split, suggest
from app.http.api.models import EnvironmentInfo
from app.service.requests import GroupProblem, GroupReply, HandedOutTask
from app.terminal import ADVANCED
from app.terminal.client import AnsweredTask, ApiKey, GatewayClient, Retrier, Url, open_gateway
from app.terminal.completion import complete_environment
from app.terminal.consoles import AsJson, errors, format_figure, parse_params, print_json, stop_on_errors
from app.toolkit.texts import escape_invisible

PLAIN_REPLY: Final = "I see. Tell me a little more about that."
"""Beside a judged reply. Anybody could say it, and it fits most lines."""
MOST_LINES: Final = 10
"""Of a task, as it is shown."""
_COLUMNS: Final = 100
_SYSTEM_LINES: Final = 2
_OPENING_SECONDS: Final = 60.0
"""How long a service that has just started may take to read its data."""

ReadReply = Callable[[int], str | None]
"""What the person says in a turn, counted from 0; None once there is nothing more."""


class TriedTask(Frozen):
    """What `try --json` prints. `completions`, `why` and the scores of `reply` are in the same order."""

    task: HandedOutTask
    completions: tuple[Completion, ...]
    reply: GroupReply
    why: tuple[str, ...]
    """A sentence or two for each completion."""


@dataclass(frozen=True)
class _Choice:
    """Which task is tried: the one at `cursor` of those that fit."""

    environment: str
    split: Split
    params: Mapping[str, JsonValue]
    select: Mapping[str, Sequence[str]]
    cursor: int

    def build_request(self) -> dict[str, JsonValue]:
        wanted: dict[str, JsonValue] = {name: list(values) for name, values in self.select.items()}
        return {
            "batch_size": 1,
            "cursor": self.cursor,
            "split": self.split,
            "params": dict(self.params),
            **({"select": wanted} if wanted else {}),
        }


def try_(
    environment: Annotated[str, typer.Argument(help="Environment name.", autocompletion=complete_environment)],
    reply: Annotated[
        list[str] | None,
        typer.Option(
            help="Your reply. Repeat it to compare several, or to give one for each turn.", show_default=False
        ),
    ] = None,
    task: Annotated[int, typer.Option(min=0, help="Which task, counted from 0.")] = 0,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only tasks whose metadata has this value, such as `scene=…`.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    split: Annotated[Split, typer.Option(help="Split to take the task from.")] = "train",
    params: Annotated[
        str | None, typer.Option(help="Params of the environment, as a JSON object.", rich_help_panel=ADVANCED)
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Show the whole task instead of ten lines.")] = False,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Answer a task yourself, and see what the reply earns and why.

    Takes the reply from --reply or from standard input. Without either, asks for it and then offers the next task."""
    with stop_on_errors():
        choice = _Choice(environment, split, parse_params(params), _read_selection(select or ()), task)
        asks = not reply and sys.stdin.isatty()
        if asks and as_json:
            raise UserError("--json asks no questions: give --reply, or a reply on standard input")
        given = tuple(reply or ()) if reply or asks else _read_standard_input()
        session = _Session(url, api_key, whole=whole, as_json=as_json)
        following: int | None = task
        while following is not None:
            following = asyncio.run(session.try_task(_move(choice, following), given))
            if not asks or following is None:
                break
            if not typer.confirm("\nNext task?", default=True):
                return
        if not as_json and following is not None:
            typer.echo(f"Next task: add --task {following}")


def _move(choice: _Choice, cursor: int) -> _Choice:
    return _Choice(choice.environment, choice.split, choice.params, choice.select, cursor)


def _read_selection(words: Sequence[str]) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise UserError(f"--select: {word!r} was given; wanted is KEY=VALUE, such as scene=bettany_crumb-goose")
        chosen.setdefault(name, []).append(value)
    return chosen


def _read_standard_input() -> tuple[str, ...]:
    said = sys.stdin.read().strip()
    if not said:
        raise UserError("there is no reply: give --reply, or write one to standard input")
    return (said,)


@dataclass(frozen=True)
class _Session:
    url: str
    api_key: str
    whole: bool
    as_json: bool

    async def try_task(self, choice: _Choice, given: Sequence[str]) -> int | None:
        """The cursor of the next task. `given`: replies; empty to ask for them. NotFound where no task is left."""
        async with open_gateway(self.url, self.api_key) as gateway:
            info = await _find_environment(gateway, choice.environment)
            batch = await _fetch_task(gateway, choice)
            if not batch[0]:
                raise NotFound(f"{choice.environment} has no task {choice.cursor} that fits")
            (task,), following = batch
            if not self.as_json:
                typer.echo("\n".join(describe_task(task, whole=self.whole)))
            completions = await _collect_completions(gateway, task, given, show=not self.as_json)
            if info.rubric is not None and len(completions) == 1:
                completions.append(await _play(gateway, task, lambda _: PLAIN_REPLY))
            reply = await _score(gateway, task, completions)
            tried = TriedTask(
                task=task, completions=tuple(completions), reply=reply, why=tuple(map(explain_score, reply.scores))
            )
            if self.as_json:
                print_json(tried)
            else:
                typer.echo("\n".join(_describe_result(tried, info, gateway.address)))
            return following


async def _find_environment(gateway: GatewayClient, name: str) -> EnvironmentInfo:
    try:
        listed = (await gateway.list_environments()).environments
    except Unavailable as error:
        raise Unavailable(f"{error.detail}. Is the service running? `make run` starts it.") from error
    named = {one.name: one for one in listed}
    if name not in named:
        raise NotFound(f"`{name}`: unknown environment{suggest(name, named) or '; there are ' + ', '.join(named)}")
    return named[name]


async def _fetch_task(gateway: GatewayClient, choice: _Choice) -> tuple[tuple[HandedOutTask, ...], int | None]:
    """The task, and the cursor of the next one. Waits for a service that still reads its data."""
    request = choice.build_request()
    retrier = Retrier(ends_after=_OPENING_SECONDS)
    batch = await retrier.retry_until_answered(
        "the service", lambda: gateway.fetch_next_batch(request, choice.environment)
    )
    return batch.tasks, batch.next_cursor


async def _collect_completions(
    gateway: GatewayClient, task: HandedOutTask, given: Sequence[str], *, show: bool
) -> list[Completion]:
    if not given:
        return [await _play(gateway, task, _ask_for_reply, show=show)]
    if task.max_turns == 1:
        return [Completion(text=text) for text in given]
    return [await _play(gateway, task, lambda turn: given[turn] if turn < len(given) else None, show=show)]


async def _play(
    gateway: GatewayClient, task: HandedOutTask, read_reply: ReadReply, *, show: bool = False
) -> Completion:
    """An episode until its end, or until there is nothing more to say. `show`: what the environment answers."""
    if task.max_turns == 1:
        return Completion(text=read_reply(0) or "")
    messages: list[Message] = []
    for turn in range(task.max_turns):
        said = read_reply(turn)
        if said is None:
            break
        messages.append(Message(role="assistant", content=said))
        answered = await gateway.step(task.environment, task.task_id, messages)
        messages += answered.messages
        for message in answered.messages if show else ():
            typer.echo("\n".join(_wrap(message.role, message.content or "", MOST_LINES)))
        if answered.done:
            break
    return Completion(messages=tuple(messages))


def _ask_for_reply(turn: int) -> str | None:
    """All lines up to an empty one."""
    if turn == 0:
        errors.print("Your reply; an empty line ends it:", style="bold", highlight=False)
    lines: list[str] = []
    for line in iter(lambda: sys.stdin.readline(), ""):
        if not line.strip() and lines:
            break
        if line.strip() or lines:
            lines.append(line.rstrip("\n"))
        else:
            return None if turn else ""
    return "\n".join(lines) if lines else None


async def _score(gateway: GatewayClient, task: HandedOutTask, completions: Sequence[Completion]) -> GroupReply:
    (answer,) = await gateway.score([AnsweredTask(task.task_id, task.lease_id, completions)], None, None)
    if isinstance(answer, GroupProblem):
        raise GatewayError(answer.detail, field=answer.field)
    return answer


# Words.


def describe_task(task: HandedOutTask, *, whole: bool = False) -> list[str]:
    """A heading, the beginning of the system prompt, and the last message; at most MOST_LINES lines, each at most
    100 columns, unless the whole is wanted."""
    turns = f", up to {task.max_turns} turns" if task.max_turns > 1 else ""
    heading = _cut(escape_invisible(f"A task of {task.environment}{turns}"))
    if whole:
        shown = [line for one in task.messages for line in _wrap(one.role, one.content or "", None)]
    else:
        shown = list(_shorten_messages(task.messages, MOST_LINES - 1 - bool(task.tools)))
    tools = [_cut(f"tools: {escape_invisible(', '.join(tool.function.name for tool in task.tools))}")]
    return [heading, *shown, *(tools if task.tools else [])]


def _shorten_messages(messages: Sequence[Message], most_lines: int) -> Iterator[str]:
    *before, last = messages
    if before and before[0].role == "system":
        first = _wrap("system", before.pop(0).content or "", _SYSTEM_LINES)
        most_lines -= len(first)
        yield from first
    if before:
        most_lines -= 1
        yield f"({len(before)} {'message' if len(before) == 1 else 'messages'} before; --whole shows all)"
    yield from _wrap(last.role, last.content or "", most_lines)


def _wrap(role: str, text: str, most_lines: int | None) -> list[str]:
    """`role: text` in lines that are indented but for the first, so that none looks like one of ours. What is cut off
    is said."""
    paragraphs = [escape_invisible(line) for line in text.splitlines() if line.strip()] or [""]
    wrapped = [line for one in paragraphs for line in textwrap.wrap(one, _COLUMNS - len("assistant: ")) or [""]]
    cut = wrapped if most_lines is None else wrapped[:most_lines]
    if len(cut) < len(wrapped):
        cut[-1] = f"{cut[-1][: _COLUMNS - 30]} … (--whole shows all)"
    return [f"{role}: {cut[0]}", *(f"    {line}" for line in cut[1:])]


def _cut(line: str) -> str:
    return textwrap.shorten(line, _COLUMNS, placeholder=" …")


def _describe_result(tried: TriedTask, info: EnvironmentInfo, address: str) -> Iterator[str]:
    yield ""
    for number, (completion, score, why) in enumerate(
        zip(tried.completions, tried.reply.scores, tried.why, strict=True), start=1
    ):
        is_plain = info.rubric is not None and number == 2 and completion == Completion(text=PLAIN_REPLY)
        whose = "A plain reply" if is_plain else "Your reply" if number == 1 else f"Reply {number}"
        quoted = f', "{PLAIN_REPLY}",' if is_plain else ""
        earns = "has no score" if score.reward is None else f"earns {format_figure(score.reward, '.2f')} of 1"
        yield f"{whose}{quoted} {earns}."
        yield from textwrap.wrap(
            escape_invisible(why),
            _COLUMNS,
            initial_indent="    ",
            subsequent_indent="    ",
            max_lines=4,
            placeholder=" …",
        )
    if info.offline_judge:
        yield "The offline judge counts words and has no model: for trying things, not for training."
    yield f"All of it: {address}/view/groups/{escape_invisible(tried.reply.group_id)}"
