"""`atropos-envs rlaif`: what somebody who trains by a preference does from a terminal."""

import asyncio
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from app.envs.rlaif import Params
from app.errors import JudgeFailed
from app.judges.rubrics import write_rubric
from app.main import judge_config
from app.prompts import digest_of_model
from app.settings import read_settings

errors = Console(stderr=True)

rlaif = typer.Typer(help="Prepare training by a preference.", no_args_is_help=True)


@rlaif.callback()
def about() -> None:
    """Prepare training by a preference."""


@rlaif.command()
def rubric(
    preference: Annotated[str, typer.Option(help="What judges shall prefer, in a sentence or two.")],
    judge: Annotated[str, typer.Option(help="Name of a judge from the settings; its model writes.")],
) -> None:
    """Let a judge's model write down, once, which criteria a preference comes down to. Prints `params` for requests:
    read them, change what is wrong, and send the same ones from then on."""
    try:
        wanted = Params(preference=preference)
        settings = read_settings()
        if judge not in settings.judges:
            known = ", ".join(sorted(settings.judges)) or "none"
            raise ValueError(f"there is no judge {judge!r} in the settings; there are: {known}")
        written = asyncio.run(write_rubric(judge_config(settings, judge, settings.judges[judge]), wanted.preference))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        _refuse(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except (JudgeFailed, ValueError) as error:
        _refuse(str(error))
    else:
        params = Params.model_validate({"preference": wanted.preference, "rubric": written.model_dump()["criteria"]})
        typer.echo(params.model_dump_json(indent=2, exclude_none=True))
        model = settings.judges[judge].model
        errors.print(f"written by {model}; digest {digest_of_model(params)}", highlight=False, markup=False)


def _refuse(words: str) -> None:
    errors.print(words, style="red", highlight=False, markup=False)
    raise typer.Exit(2)
