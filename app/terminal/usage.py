"""What Typer, and pydantic below it, find wrong in a command line, in words of ours. Imported when something is."""

from pydantic import Field
from typer._click.exceptions import MissingParameter, NoSuchOption, UsageError

from app.domain.faults import explain_faults, explain_unknown


def explain_usage(error: UsageError) -> str | None:
    """None for what is in words of ours already."""
    if isinstance(error, NoSuchOption):
        known = [] if error.ctx is None else [name for one in error.ctx.command.params for name in one.opts]
        return f"`{error.option_name}`: {explain_unknown(error.option_name, known, 'option')}"
    param = getattr(error, "param", None)
    if param is None:
        return None
    name = next((one for one in param.opts if one.startswith("--")), param.get_error_hint().strip("'"))
    if isinstance(error, MissingParameter):
        return f"`{name}`: missing. {param.help or ''}".strip()
    faults = getattr(error.__cause__, "errors", None)  # of pydantic's ValidationError
    if faults is None:
        return None
    is_choice = param.type_descriptor.is_choice
    found = [{**one, "type": "literal_error"} if is_choice else one for one in faults(include_url=False)]
    kind = Field(ge=param.min, le=param.max)
    kind.annotation = param.type_descriptor.annotation
    return f"`{name}`: {explain_faults(found, kind)[0].words}"
