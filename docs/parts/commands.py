"""Every command of `atropos-envs` with its arguments and options, from the program itself."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from app.cli.main import KINDS, DeferredCommand, cli
from docs.markdown import code, table

PROGRAM = "atropos-envs"


@dataclass(frozen=True)
class ShownCommand:
    name: str
    command: Any
    """Typer's, whose own classes are private."""
    context: typer.Context


def command_table() -> str:
    """Each command in a line."""
    rows = [
        (f"[{code(one.name)}](#{one.name.replace(' ', '-')})", one.command.get_short_help_str(limit=200))
        for one in iterate_commands()
    ]
    return table(("command", "does"), rows)


def command_reference() -> str:
    """Each command with what it takes."""
    return "\n\n".join(_describe(one) for one in iterate_commands())


def iterate_commands() -> Iterator[ShownCommand]:
    command = typer.main.get_command(cli)
    yield from _walk("", command, typer.Context(command, info_name=PROGRAM))


def _walk(name: str, command: Any, context: typer.Context) -> Iterator[ShownCommand]:
    if not isinstance(command, TyperGroup):
        yield ShownCommand(name, command, context)
        return
    for part in command.list_commands(context):
        inner: Any = command.get_command(context, part)
        inner = inner.load() if isinstance(inner, DeferredCommand) else inner
        if not inner.hidden:
            yield from _walk(f"{name} {part}".strip(), inner, typer.Context(inner, parent=context, info_name=part))


def _describe(shown: ShownCommand) -> str:
    told = inspect.cleandoc(shown.command.help or "").split("\f")[0].strip()
    usage = " ".join([PROGRAM, shown.name, *shown.command.collect_usage_pieces(shown.context)])
    rows = [
        _describe_parameter(one, shown.context) for one in shown.command.params if not getattr(one, "hidden", False)
    ]
    parts = [f"### {shown.name}", told, code(" ".join(usage.split()))]
    return "\n\n".join(parts + ([table(("takes", "value", "default", "meaning"), rows)] if rows else []))


def _describe_parameter(parameter: Any, context: typer.Context) -> tuple[str, str, str, str]:
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = [parameter.metavar or str(parameter.name).upper()]
    return ", ".join(map(code, names)), _name_kind(parameter, context), _name_default(parameter), parameter.help or ""


def _name_kind(parameter: Any, context: typer.Context) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    choices = parameter.type_descriptor.choices
    told = ", ".join(code(str(getattr(one, "value", one))) for one in choices) if choices else ""
    if not told:
        is_named = parameter.param_type_name == "option"
        shown = (parameter.metavar if is_named else parameter.display_type(context)) or ""
        shown = shown.removeprefix("<").removesuffix(">").removeprefix("list[").removesuffix("]")
        told = KINDS.get(shown, shown)
    return f"{told}, repeatable" if getattr(parameter, "multiple", False) else told


def _name_default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return code(parameter.show_default) if "<" in parameter.show_default else parameter.show_default
    default = parameter.default
    if default in (None, False, (), []) or callable(default):
        return ""
    return code(str(getattr(default, "value", default)))
