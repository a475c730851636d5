"""What the shell completes behind options and arguments: names of environments, characters, judges and runs."""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx

from app.judges.offline import NAME as OFFLINE
from app.settings import read_settings
from app.terminal.client import find_gateway_url
from app.toolkit.templates import find_packaged_folder

_ENVIRONMENTS: Final = Path(__file__).parents[1] / "envs"
_RUNS_SECONDS: Final = 1.0
"""The longest that a press of Tab waits for the gateway."""


def _environment_names() -> Iterable[str]:
    """By their folders: importing them all would take seconds."""
    folders = [
        file.parent.name for pattern in ("*", "community/*") for file in _ENVIRONMENTS.glob(f"{pattern}/environment.py")
    ]
    return [*folders, *(point.name for point in entry_points(group="atropos_environments.envs"))]


def _character_names() -> Iterable[str]:
    folder = read_settings().character_sheets or find_packaged_folder("character_sheets")
    return [file.stem for file in folder.glob("*.yaml")]


def _judge_names() -> Iterable[str]:
    return [OFFLINE, *read_settings().judges]


def run_names() -> Iterable[str]:
    """Of the gateway that these settings would serve here, when it runs."""
    settings = read_settings()
    key = settings.api_key
    headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
    reply = httpx.get(f"{find_gateway_url()}/runs", headers=headers, timeout=_RUNS_SECONDS).raise_for_status()
    return [one["name"] for one in reply.json()["runs"]]


_COMPLETED: Final[Mapping[tuple[str, str], Callable[[], Iterable[str]]]] = MappingProxyType(
    {
        ("", "env"): _environment_names,
        ("", "run"): run_names,
        ("", "judge"): _judge_names,
        ("check", "where"): _environment_names,
        ("check", "name"): _judge_names,
        ("try", "sheet"): _character_names,
        ("export", "sheet"): _character_names,
    }
)
"""By command, of any name where it is empty, and parameter."""


def attach_completions(command: Any) -> None:
    """Gives options and arguments of a command, and of all below it, what lists names for the shell.

    Called on Tab alone: no other start imports what lists names, and commands need not name it in each option."""
    for parameter in command.params:
        names = _COMPLETED.get((command.name, parameter.name)) or _COMPLETED.get(("", parameter.name))
        if names is not None:
            parameter._custom_shell_complete = _build_completer(names)
    for below in getattr(command, "commands", {}).values():
        attach_completions(below)


def _build_completer(names: Callable[[], Iterable[str]]) -> Callable[[Any, Any, str], list[str]]:
    def complete(_context: Any, _parameter: Any, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in names() if name.startswith(incomplete)})
        except Exception:  # a broken setting or a gateway that is away must not break the line that is typed
            return []

    return complete
