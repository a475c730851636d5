"""`atropos-envs`: the commands by name, each with the module that is imported when it is called.

A start of the command line imports none of them, as the service behind them takes seconds. Help lists the commands by
the sentences that stand here, which are those of the commands themselves; a feature's commands stand in its package."""

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from keyword import iskeyword
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from typer._click.exceptions import NoArgsIsHelpError, UsageError
from typer.core import TyperCommand, TyperGroup

from app.main.features import import_packages
from app.terminal import ADVANCED


@dataclass(frozen=True)
class _CommandSource:
    """Where the code of a command is. `help` is the first sentence of its own help."""

    module: str
    help: str


COMMANDS: Final[Mapping[str, _CommandSource]] = MappingProxyType(
    {
        "serve": _CommandSource("app.cli.serve", "Migrate the database and serve until stopped."),
        "try": _CommandSource("app.cli.try_task", "Answer a task yourself, and see what the reply earns and why."),
        "demo": _CommandSource("app.cli.demo", "Fill a running gateway with demo data."),
        "evaluate": _CommandSource(
            "app.cli.evaluate.command", "Evaluate a model on the tasks of a held-out split and write a report."
        ),
        "compare": _CommandSource(
            "app.cli.evaluate.command",
            "Compare two evaluations task by task and test the differences for significance.",
        ),
        "tournament": _CommandSource(
            "app.cli.tournament.command",
            "Let a judge compare checkpoints' replies in pairs, and report the strength of each, also by character.",
        ),
        "process": _CommandSource(
            "app.cli.process.command",
            "Sample and score completions for a trainer, and write the groups to a file or an Atropos trainer.",
        ),
        "rescore": _CommandSource(
            "app.cli.rescore",
            "Score stored groups by another rule, and report which pairs, best replies and advantages change.",
        ),
        "migrate": _CommandSource("app.cli.serve", "Bring the database to the newest schema and stop."),
        "prune": _CommandSource(
            "app.cli.database", "Remove old groups from the configured store, with their rollouts and judgements."
        ),
        "version": _CommandSource("app.cli.serve", "Print the version."),
        "envs": _CommandSource("app.cli.envs.commands", "List, check, add and create environments."),
        "graders": _CommandSource("app.cli.graders", "Check graders that are not ours."),
        "data": _CommandSource("app.cli.data", "Check a data set before training on it."),
        "sheets": _CommandSource("app.cli.sheets", "Check, try, import and export character sheets."),
        "rubrics": _CommandSource("app.cli.rubrics", "Check, show and write rubrics."),
        "judges": _CommandSource("app.cli.judges", "List judges and measure their quality."),
        "runs": _CommandSource(
            "app.cli.runs", "List, show and compare runs, estimate their cost, and create or change one."
        ),
        "runs log": _CommandSource(
            "app.cli.curves", "Write a run's curves into TensorBoard, W&B or a logger of yours."
        ),
        "groups": _CommandSource("app.cli.runs", "Show stored groups."),
        "rlaif": _CommandSource("app.cli.rubrics", "Write rubrics for training on a preference."),
        "keys": _CommandSource("app.cli.keys", "Create, list, rotate and revoke keys of the service."),
        "db": _CommandSource("app.cli.database", "Measure, copy and repair the database."),
        "settings": _CommandSource("app.cli.serve", "Check the settings before serving with them."),
    }
)


FIRST: Final = frozenset({"serve", "try", "demo", "evaluate", "compare", "process", "export", "envs", "sheets", "runs"})
"""The commands that a newcomer needs. Help lists the others as advanced."""


def list_commands() -> dict[str, _CommandSource]:
    """With those that features add, by name; a name of two words is of a command in a group."""
    sources = dict(COMMANDS)
    for package in import_packages():
        for name, sentence in getattr(package, "COMMANDS", {}).items():
            sources[name] = _CommandSource(f"{package.__name__}.commands", sentence)
    return sources


class DeferredCommand(TyperCommand):
    """Stands for a command until it is called, or its own help or completion is asked for."""

    def __init__(self, name: str, source: _CommandSource) -> None:
        super().__init__(name, help=source.help, rich_help_panel=None if name in FIRST else ADVANCED)
        self._source = source

    def load(self) -> TyperCommand | TyperGroup:
        """The real command, which the module has under this command's name."""
        loaded = _import_from(self._source.module, str(self.name))
        # With a callback Typer makes a group also of one command, so that it can be taken out by its name.
        parent = typer.Typer(pretty_exceptions_enable=False)
        parent.callback()(_do_nothing)
        if isinstance(loaded, typer.Typer):
            for name, source in list_commands().items():
                group, _, command = name.partition(" ")
                # Whoever loads the group again finds them there.
                registered = {one.name for one in loaded.registered_commands}
                if command and group == self.name and command not in registered:
                    loaded.command(command)(_import_from(source.module, command))
            parent.add_typer(loaded, name=self.name)
        else:
            parent.command(self.name)(loaded)
        found = typer.main.get_group(parent).commands[str(self.name)]
        for one in (found, *getattr(found, "commands", {}).values()):
            _tidy_help(one)
        return found  # type: ignore[return-value]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent, **extra)


KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "str": "text",
        "int": "whole number",
        "int range": "whole number",
        "float": "number",
        "float range": "number",
        "Path": "path",
    }
)
"""What help and documentation call the kinds of values."""


def _tidy_help(command: Any) -> None:
    """Help breaks lines where the terminal ends, not where the code does, and shows what an option takes in words:
    Typer's own are Python's types."""
    context = typer.Context(command)
    command.help = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    for param in command.get_params(context):
        if param.param_type_name == "option" and param.metavar is None:
            kind = param.display_type(context).strip("<>").removeprefix("list[").removesuffix("]")
            param.metavar = "" if param.is_flag else f"<{'time' if kind.startswith('%') else KINDS.get(kind, kind)}>"


def _import_from(module: str, name: str) -> Any:
    """Imports without looking for reference cycles, and looks never at what was imported: that would take a tenth of a
    start, and modules stay."""
    gc.disable()
    try:
        # A word of Python's own names no function: `try` is `try_`.
        return getattr(importlib.import_module(module), f"{name}_" if iskeyword(name) else name)
    finally:
        gc.freeze()
        gc.enable()


def _do_nothing() -> None:
    pass


@contextlib.contextmanager
def _say_in_our_words() -> Iterator[None]:
    """Of what Typer, and pydantic below it, find wrong in a command line."""
    try:
        yield
    except NoArgsIsHelpError:
        raise
    except UsageError as error:
        # Imported when something is wrong: pydantic would take a part of every start.
        words = _import_from("app.terminal.usage", "explain_usage")(error)
        if words is None:
            raise
        raise UsageError(words, error.ctx) from error


class _DeferredCommands(TyperGroup):
    """A group whose commands are those of `list_commands`, none of them imported."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {
            name: DeferredCommand(name, source) for name, source in list_commands().items() if " " not in name
        }

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        _tidy_help(self)  # here, as Typer adds the options of completion late
        with _say_in_our_words():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _say_in_our_words():
            return super().invoke(ctx)


cli = typer.Typer(
    name="atropos-envs",
    cls=_DeferredCommands,
    help="Serve reinforcement-learning environments over HTTP: hand out tasks, score completions, store every result.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(version("atropos-environments"))
        raise typer.Exit


@cli.callback()
def about(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Reinforcement-learning environments over HTTP: tasks out, scores in, everything kept."""


def run() -> None:
    """The entry point of the `atropos-envs` command."""
    sys.exit(cli())
