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


@dataclass(frozen=True)
class CommandPlace:
    """Where the code of a command is. `help` is the first sentence of its own help."""

    module: str
    help: str


COMMANDS: Final[Mapping[str, CommandPlace]] = MappingProxyType(
    {
        "serve": CommandPlace("app.cli.serve", "Migrate the database and serve until stopped."),
        "demo": CommandPlace(
            "app.cli.demo",
            "Load the sample world, and send a scripted policy of mixed quality through every environment of a running "
            "gateway.",
        ),
        "evaluate": CommandPlace(
            "app.cli.evaluate.command",
            "Have a model attempt the tasks of a held-out split, and report how well it did.",
        ),
        "compare": CommandPlace(
            "app.cli.evaluate.command",
            "Compare two evaluations task by task, with how much of the difference may be chance.",
        ),
        "process": CommandPlace(
            "app.cli.process.command",
            "Take tasks, sample completions from a policy's server, have them scored, and write the groups to a file "
            "or to an Atropos trainer.",
        ),
        "rescore": CommandPlace("app.cli.rescore", "Score stored groups anew, beside what their trainers were told."),
        "export": CommandPlace("app.cli.export", "Write stored rollouts as training data."),
        "tasks": CommandPlace(
            "app.cli.tasks",
            "Write an environment's tasks as prompts, each with the id that its answer is scored under.",
        ),
        "migrate": CommandPlace("app.cli.serve", "Bring the database to the newest schema and stop."),
        "version": CommandPlace("app.cli.serve", "Print the version."),
        "envs": CommandPlace("app.cli.envs.command", "List environments, check one, begin a new one."),
        "sheets": CommandPlace("app.cli.sheets", "Check, try, import and export character sheets."),
        "worlds": CommandPlace("app.cli.worlds", "Tell a running gateway what happens in a world."),
        "judges": CommandPlace("app.cli.judges", "See which judges there are, and whether one can be trusted."),
        "rlaif": CommandPlace("app.cli.rlaif", "Prepare training by a preference."),
        "settings": CommandPlace("app.cli.settings", "Check the settings before serving with them."),
    }
)


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
    gc.disable()  # what is imported stays
    try:
        return getattr(importlib.import_module(module), name)
    finally:
        gc.enable()


def _nothing() -> None:
    pass


class DeferredCommands(TyperGroup):
    """A group whose commands are those of COMMANDS, none of them imported."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: DeferredCommand(name, place) for name, place in COMMANDS.items()}


cli = typer.Typer(
    name="atropos-envs",
    cls=DeferredCommands,
    help="Reinforcement-learning environments over HTTP: tasks out, scores in, everything kept.",
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
