"""What is wrong in the settings, in sentences: where it was set, and what may have been meant."""

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, get_args

import yaml
from pydantic import BaseModel

from app.domain.suggestions import suggest

PREFIX: Final = "ATROPOS_ENVS_"
DEFAULT_FILE: Final = "gateway.yaml"
_KUBERNETES: Final = re.compile(r"PORT|PORT_\d+_\w+|SERVICE_(HOST|PORT)(_\w+)?")
"""What it sets, behind the prefix, for a service called atropos-envs."""


class SettingsError(ValueError):
    """A line for each thing that is wrong."""


def settings_file() -> Path:
    return Path(os.environ.get(PREFIX + "SETTINGS") or DEFAULT_FILE)


def find_where_set(key: Sequence[str | int]) -> str:
    """Where a setting was given: its variable, or file, line and key."""
    for end in range(len(key), 0, -1):
        variable = PREFIX + "__".join(map(str, key[:end])).upper()
        if variable in os.environ:
            return variable
    file, dotted = settings_file(), ".".join(map(str, key))
    return f"{file}, line {_line_of(key, file)}: {dotted}" if file.is_file() else dotted or "settings"


def _line_of(key: Sequence[str | int], file: Path) -> int:
    """Of the nearest part that is there."""
    node, line = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader), 1
    for part in key:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        found = next((pair for pair in pairs if pair[0].value == str(part)), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def explain(settings: type[BaseModel], kind: str, key: tuple[str | int, ...], message: str) -> str:
    """One error of pydantic's, by its type, location and message."""
    if kind != "extra_forbidden":
        return f"{find_where_set(key)}: {message.removeprefix('Value error, ')}"
    known = _fields_at(settings, key[:-1])
    return f"{find_where_set(key)}: there is no setting {key[-1]!r}{suggest(str(key[-1]), known)}"


def _fields_at(settings: type[BaseModel], key: Sequence[str | int]) -> list[str]:
    """Names of the settings inside of another one."""
    model = settings
    for part in key:
        field = model.model_fields.get(str(part))
        inside = () if field is None else (field.annotation, *get_args(field.annotation))
        models = [one for one in inside if isinstance(one, type) and issubclass(one, BaseModel)]
        model = models[0] if models else model
    return list(model.model_fields)


def unknown_variables(settings: type[BaseModel], keys: Collection[str | None]) -> list[str]:
    """A sentence for each, but for `keys`, to which settings point, and for what Kubernetes sets for a service of our
    name."""
    names = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in keys)
    known = {"settings", *settings.model_fields}
    if os.environ.get(PREFIX + "PORT", "").startswith("tcp://"):
        names = [name for name in names if not _KUBERNETES.fullmatch(name.removeprefix(PREFIX))]
    return [
        f"{name}: there is no such setting{suggest(name, [PREFIX + one.upper() for one in known])}"
        for name in names
        if name.removeprefix(PREFIX).lower().partition("__")[0] not in known
    ]
