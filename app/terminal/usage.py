"""What Typer, and pydantic below it, find wrong in a command line, in words of ours. Imported when something is."""

import re
from datetime import datetime
from typing import Any

import typer
from pydantic import Field
from typer._click.exceptions import BadOptionUsage, MissingParameter, NoSuchOption, UsageError
from typer.core import TyperGroup

from app.domain.faults import explain_faults, explain_unknown, make_printable, quote

_SAID_BY_TYPER = {
    "unknown": re.compile(r"No such command (['\"])(.*?)\1\.", re.DOTALL),
    "extra": re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL),
    "missing": re.compile(r"Missing command\."),
}
"""Its sentences for which it has no kind of error."""


def explain_usage(error: UsageError) -> str | None:
    """None for what is in words of ours already."""
    if isinstance(error, NoSuchOption):
        known = [] if error.ctx is None else [name for one in error.ctx.command.params for name in one.opts]
        return f"`{make_printable(error.option_name)}`: {explain_unknown(error.option_name, known, 'option')}"
    if isinstance(error, BadOptionUsage):
        is_flag = error.message.endswith("does not take a value.")
        return f"`{error.option_name}`: {'it takes no value' if is_flag else 'a value must follow'}"
    if isinstance(error, typer.BadParameter):
        return _explain_value(error)
    return None if error.ctx is None else _explain_words(error.message, error.ctx.command)


def _explain_words(message: str, command: Any) -> str | None:
    """Of what is neither an option nor a value: commands and arguments."""
    if found := _SAID_BY_TYPER["unknown"].match(message):
        return f"`{make_printable(found[2])}`: {explain_unknown(found[2], list(command.commands), 'command')}"
    if _SAID_BY_TYPER["missing"].match(message) and isinstance(command, TyperGroup):
        return "a command is missing; `--help` lists them"
    if found := _SAID_BY_TYPER["extra"].match(message):
        names = [f"`{_name(one)}`" for one in command.params if one.param_type_name == "argument"]
        wanted = f"{'is' if len(names) == 1 else 'are'} only {' and '.join(names) or 'options'}"
        return f"too many arguments: {quote(found[1])}; wanted {wanted}"
    return None


def _name(param: Any) -> str:
    return next((one for one in param.opts if one.startswith("--")), str(param.get_error_hint()).strip("'"))


def _explain_value(error: typer.BadParameter) -> str | None:
    param: Any = error.param
    if param is None:
        return error.message
    name = _name(param)
    if isinstance(error, MissingParameter):
        return f"`{name}`: missing. {param.help or ''}".strip()
    faults = getattr(error.__cause__, "errors", None)  # of pydantic's ValidationError
    if faults is None:
        return f"`{name}`: {error.message}"
    descriptor = param.type_descriptor
    found = faults(include_url=False)
    if descriptor.is_choice:
        found = [{**one, "type": "literal_error"} for one in found]
    elif descriptor.annotation is datetime:  # Typer's own sentence lists the formats of strptime
        found = [{**one, "type": "datetime_parsing"} for one in found]
    kind = Field(ge=param.min, le=param.max)
    kind.annotation = descriptor.annotation
    return f"`{name}`: {explain_faults(found, kind)[0].words}"
