"""`atropos-envs`: the commands by name, each with the module that is imported when it is called."""

import gc
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from app.main.features import import_packages


@dataclass(frozen=True)
class CommandPlace:
    """Where the code of a command is. `help` is the first sentence of its own help."""

    module: str
    help: str


COMMANDS: Final[Mapping[str, CommandPlace]] = MappingProxyType(
    {
        "serve": CommandPlace("app.cli.serve", "Migrate the database and serve until stopped."),
        "demo": CommandPlace("app.cli.demo", "Fill a running gateway with demo data."),
        "evaluate": CommandPlace(
            "app.cli.evaluate.command", "Evaluate a model on the tasks of a held-out split and write a report."
        ),
        "compare": CommandPlace(
            "app.cli.evaluate.command",
            "Compare two evaluations task by task and test the differences for significance.",
        ),
        "tournament": CommandPlace(
            "app.cli.tournament.command",
            "Let a judge compare checkpoints' replies in pairs, and report the strength of each, also by character.",
        ),
        "process": CommandPlace(
            "app.cli.process.command",
            "Sample and score completions for a trainer, and write the groups to a file or an Atropos trainer.",
        ),
        "rescore": CommandPlace(
            "app.cli.rescore",
            "Score stored groups by another rule, and report which pairs, best replies and advantages change.",
        ),
        "migrate": CommandPlace("app.cli.serve", "Bring the database to the newest schema and stop."),
        "prune": CommandPlace(
            "app.cli.database", "Remove old groups from the configured store, with their rollouts and judgements."
        ),
        "version": CommandPlace("app.cli.serve", "Print the version."),
        "envs": CommandPlace("app.cli.envs.commands", "List, check and create environments."),
        "data": CommandPlace("app.cli.data", "Check a data set before training on it."),
        "sheets": CommandPlace("app.cli.sheets", "Check, try, import and export character sheets."),
        "rubrics": CommandPlace("app.cli.rubrics", "Check, show and write rubrics."),
        "judges": CommandPlace("app.cli.judges", "List judges and measure their quality."),
        "runs": CommandPlace(
            "app.cli.runs", "List, show and compare runs, say what one will cost, make and change one."
        ),
        "groups": CommandPlace("app.cli.runs", "Show stored groups."),
        "rlaif": CommandPlace("app.cli.rubrics", "Prepare training on a preference."),
        "keys": CommandPlace("app.cli.keys", "Make, list, rotate and revoke keys of the service."),
        "db": CommandPlace("app.cli.database", "Look after the database of the store."),
        "settings": CommandPlace("app.cli.serve", "Check the settings before serving with them."),
    }
)


def list_commands() -> dict[str, CommandPlace]:
    """With those that features add, by name; a name of two words is of a command in a group."""
    places = dict(COMMANDS)
    for package in import_packages():
        for name, sentence in getattr(package, "COMMANDS", {}).items():
            places[name] = CommandPlace(f"{package.__name__}.commands", sentence)
    return places


class DeferredCommand(TyperCommand):
    """Stands for a command until it is called, or its own help or completion is asked for."""

    def __init__(self, name: str, place: CommandPlace) -> None:
        super().__init__(name, help=place.help)
        self._place = place

    def load(self) -> TyperCommand | TyperGroup:
        """The real command, which the module has under this command's name."""
        found = _from_module(self._place.module, str(self.name))
        parent = typer.Typer(pretty_exceptions_enable=False)
        parent.callback()(_nothing)
        if isinstance(found, typer.Typer):
            for name, place in list_commands().items():
                group, _, command = name.partition(" ")
                if command and group == self.name:
                    found.command(command)(_from_module(place.module, command))
            parent.add_typer(found, name=self.name)
        else:
            parent.command(self.name)(found)
        return typer.main.get_group(parent).commands[str(self.name)]  # type: ignore[return-value]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        command = self.load()
        if extra.get("resilient_parsing"):  # somebody pressed Tab
            _from_module("app.cli.completion", "attach_completions")(command)
        return command.make_context(info_name, args, parent, **extra)


def _from_module(module: str, name: str) -> Any:
    """What is imported stays: looking for cycles in it would take a tenth of a start."""
    gc.disable()
    try:
        return getattr(importlib.import_module(module), name)
    finally:
        gc.freeze()
        gc.enable()


def _nothing() -> None:
    pass


class DeferredCommands(TyperGroup):
    """A group whose commands are those of `list_commands`, none of them imported."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: DeferredCommand(name, one) for name, one in list_commands().items() if " " not in name}


cli = typer.Typer(
    name="atropos-envs",
    cls=DeferredCommands,
    help="Serve reinforcement-learning environments over HTTP: hand out tasks, score completions, store every result.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
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
