"""What the shell completes behind options and arguments: names of environments, characters, judges and runs.

Options name these functions as their `autocompletion`."""

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer

from app.judges.offline import NAME as OFFLINE
from app.settings import read_settings
from app.terminal.client import find_gateway_url
from app.toolkit.templates import find_packaged_folder

_ENVIRONMENTS: Final = Path(__file__).parents[1] / "envs"
_RUNS_SECONDS: Final = 1.0
"""The longest that a press of Tab waits for the gateway."""


def _build_completer(list_names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        try:
            return sorted({name for name in list_names() if name.startswith(incomplete)})
        except Exception:  # a broken setting or a gateway that is away must not break the line that is typed
            return []

    return complete


@_build_completer
def complete_environment() -> Iterable[str]:
    """By their folders: importing them all would take seconds."""
    folders = [
        file.parent.name for pattern in ("*", "community/*") for file in _ENVIRONMENTS.glob(f"{pattern}/environment.py")
    ]
    return [*folders, *(point.name for point in entry_points(group="atropos_environments.envs"))]


@_build_completer
def complete_character() -> Iterable[str]:
    folder = read_settings().character_sheets or find_packaged_folder("character_sheets")
    return [file.stem for file in folder.glob("*.yaml")]


@_build_completer
def complete_judge() -> Iterable[str]:
    return [OFFLINE, *read_settings().judges]


@_build_completer
def complete_run() -> Iterable[str]:
    """Of the gateway that these settings would serve here, when it runs."""
    settings = read_settings()
    key = settings.api_key
    headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
    reply = httpx.get(f"{find_gateway_url()}/runs", headers=headers, timeout=_RUNS_SECONDS).raise_for_status()
    return [one["name"] for one in reply.json()["runs"]]


RunArgument = Annotated[str, typer.Argument(help="The run's name.", autocompletion=complete_run)]
