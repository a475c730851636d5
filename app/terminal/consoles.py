"""Where commands print, and how they end with an error.

Results go to stdout: a table on a terminal, plain lines in a pipe, or JSON. Everything for people goes to stderr.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, NoReturn, Protocol

import typer
import yaml
from pydantic import BaseModel, JsonValue, ValidationError
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from app.domain.errors import GatewayError, UserError
from app.domain.faults import (
    describe_faults,
    describe_os_error,
    explain_json_error,
    explain_yaml_error,
    find_yaml_line,
    quote,
)
from app.domain.values import Estimated
from app.toolkit.texts import escape_invisible

_PIPED_COLUMNS = 10_000
"""Wider than any table: what goes to a file or a program is not cut to the width of a terminal that is not there."""

RESUME = "run the same command again to resume"
STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

GoOn = Callable[[float | None], bool]
"""Whether to go on, given what it costs in dollars; None where that is not known."""

errors = Console(stderr=True)


@dataclass(frozen=True)
class PageLink:
    """A page that is worth opening, and what it shows."""

    path: str
    shows: str


@dataclass(frozen=True)
class DemoPart:
    """What a feature adds to `atropos-envs demo`, by a function `add_to_demo` of its commands: what is printed, what
    stands in the JSON, and which pages show it."""

    printed: Sequence[RenderableType]
    data: Mapping[str, object]
    links: Sequence[PageLink] = ()


def output_console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PIPED_COLUMNS)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """A table on a terminal; plain lines with tabs for whoever reads it from a pipe. Columns that begin with `>` hold
    numbers. Texts may be untrusted."""
    names = [column.removeprefix(">") for column in columns]
    cells = [[" ".join(escape_invisible(cell).split()) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in (names, *cells):
            typer.echo("\t".join(row))
        return
    table = Table(title=title or None)
    for column, name in zip(columns, names, strict=True):
        table.add_column(escape(name), justify="right" if column.startswith(">") else "left")
    for row in cells:
        table.add_row(*map(escape, row))
    output_console().print(table)


def format_figure(value: float | None, form: str = ".3f", missing: str = "-") -> str:
    """In Python's format; `missing` for None."""
    return missing if value is None else format(round(value, 9) + 0.0, form)  # without the sign of -0.0


def format_interval(low: float | None, high: float | None, form: str = ".3f", missing: str = "-") -> str:
    return missing if low is None or high is None else f"{low:{form}} to {high:{form}}"


def format_estimate(estimate: Estimated, form: str = ".3f") -> str:
    """Such as `0.812 (0.704 to 0.893)`; a dash without an interval."""
    interval = format_interval(estimate.low, estimate.high, form, "")
    return f"{format_figure(estimate.value, form)} ({interval})" if interval else "-"


def format_bracketed(estimate: Estimated, missing: str) -> str:
    """Such as `0.812 [0.70, 0.89]`; the figure alone where it has no interval."""
    interval = "" if estimate.low is None or estimate.high is None else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return format_figure(estimate.value, missing=missing) + interval


# Progress.


@dataclass(frozen=True)
class Bar:
    _progress: Progress
    _task: TaskID

    def show(self, done: float, words: str = "", *, name: str | None = None) -> None:
        """`words`: what else there is to say. `name`: another one from now on."""
        self._progress.update(self._task, completed=done, words=escape(words), description=name and escape(name))

    def advance(self, count: float = 1, words: str = "", *, name: str | None = None) -> None:
        self._progress.update(self._task, advance=count, words=escape(words), description=name and escape(name))

    def say(self, words: str) -> None:
        """A line for people, beside the progress."""
        self._progress.console.print(words, highlight=False, markup=False)


@dataclass(frozen=True)
class Bars:
    _progress: Progress

    def add(self, name: str, total: float | None) -> Bar:
        return Bar(self._progress, self._progress.add_task(escape(name), total=total, words=""))


@contextlib.contextmanager
def show_bars(console: Console = errors, *, transient: bool = False, quiet: bool = False) -> Iterator[Bars]:
    """Until the end of the block; `transient`: nothing of them stays."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    more = (TimeRemainingColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, *more, console=console, transient=transient, disable=quiet) as progress:
        yield Bars(progress)


# Progress of what takes long: a bar on a terminal, otherwise a line from time to time, since a log keeps every line.

_REFRESH_SECONDS: Final = 0.25
_LINE_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Standing:
    done: int
    words: Sequence[str]
    """What else there is to say."""


class ProgressDisplay(Protocol):
    def show(self, done: float, words: str) -> None: ...

    def say(self, words: str) -> None:
        """A line for people, beside the progress."""


@contextlib.asynccontextmanager
async def show_progress(
    console: Console, name: str, unit: str, total: int | None, tell: Callable[[], Standing]
) -> AsyncIterator[ProgressDisplay]:
    """Until the end of the block. `unit`: what is counted, in the plural."""
    with _open_display(console, name, unit, total) as display:

        def show() -> None:
            standing = tell()
            display.show(standing.done, ", ".join(standing.words))

        async def follow() -> None:
            while True:
                show()
                await asyncio.sleep(_REFRESH_SECONDS)

        following = asyncio.create_task(follow())
        try:
            yield display
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            show()


@contextlib.contextmanager
def _open_display(console: Console, name: str, unit: str, total: int | None) -> Iterator[ProgressDisplay]:
    if not console.is_terminal:
        yield _ProgressLines(console, unit if total is None else f"of {total} {unit}")
        return
    with show_bars(console) as bars:
        yield bars.add(name, total)


@dataclass
class _ProgressLines:
    console: Console
    counted: str
    next_at: float = field(default_factory=lambda: time.monotonic() + _LINE_SECONDS)

    def show(self, done: float, words: str) -> None:
        if time.monotonic() >= self.next_at:
            self.next_at = time.monotonic() + _LINE_SECONDS
            self.say(f"{done} {self.counted}, {words}")

    def say(self, words: str) -> None:
        self.console.print(words, highlight=False, markup=False, soft_wrap=True)


def print_json(result: BaseModel) -> None:
    typer.echo(result.model_dump_json(indent=2))


def print_outcome(words: str, *, as_json: bool, **values: JsonValue) -> None:
    """A line for people, or the same as JSON."""
    typer.echo(json.dumps(values, ensure_ascii=False, indent=2) if as_json else words)


def describe_error(error: Exception) -> str:
    """What stops a command, in words."""
    if isinstance(error, GatewayError):
        is_named = error.field is None or f"{error.field}: " in error.detail  # as in the words about a file
        return error.detail if is_named else f"`{error.field}`: {error.detail}"
    if isinstance(error, OSError):
        return describe_os_error(error)
    if isinstance(error, yaml.YAMLError):
        line = find_yaml_line(error)
        return f"not YAML{'' if line is None else f', line {line}'}: {explain_yaml_error(error)}"
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def stop(message: str, code: int = 2) -> NoReturn:
    """Ends the command with a message for people on stderr. The message may hold untrusted text from servers."""
    errors.print(escape_invisible(message), style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code)


def tell_report(file: Path, *, stopped: bool) -> None:
    """Where the report is that a command has written."""
    if stopped:
        stop_to_resume(f". Report so far: {file}")
    errors.print(str(file), highlight=False, markup=False, soft_wrap=True)


def stop_to_resume(more: str = "") -> NoReturn:
    errors.print(f"stopped; {RESUME}{more}", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(STOPPED)


def require_consent(usd: float | None, *, yes: bool, question: str = "Continue?") -> None:
    """Asks for confirmation unless it costs nothing, so also where the price is not known (None). Abort for a no;
    UserError where there is nobody to ask."""
    if yes or usd == 0:
        return
    if not (errors.is_terminal and typer.get_text_stream("stdin").isatty()):
        told = "the price is not known" if usd is None else "this costs money"
        raise UserError(f"{told} and there is no terminal to confirm: use --yes")
    typer.confirm(question, default=True, abort=True, err=True)


def confirm_cost(usd: float | None, *, yes: bool = False) -> bool:
    """Whether somebody goes on."""
    try:
        require_consent(usd, yes=yes)
    except UserError as error:
        errors.print(str(error), style="red", highlight=False)
        return False
    except typer.Abort:
        return False
    return True


@contextlib.contextmanager
def stop_on_errors(code: int = 2, *, also: type[Exception] = OSError) -> Iterator[None]:
    """Ends the command with a message where the block fails because of what it was given, or of the world around it.
    A mistake of ours keeps its traceback. `also` is one more kind of error whose words are meant for people."""
    try:
        yield
    except ValidationError as error:
        stop(describe_faults(error), code)
    except (UserError, GatewayError, OSError, UnicodeDecodeError, yaml.YAMLError, also) as error:
        stop(describe_error(error), code)


def parse_object(option: str, text: str) -> dict[str, JsonValue]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"`{option}`: not JSON: {explain_json_error(error)}") from error
    if not isinstance(value, dict):
        raise UserError(f"`{option}`: {quote(value)} was given; wanted is a JSON object, such as `{{}}`")
    return value


def parse_params(text: str | None) -> dict[str, JsonValue]:
    return parse_object("--params", text or "{}")
