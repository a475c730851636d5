"""`atropos-envs rlaif`: prepare training on a preference."""

import asyncio
from typing import Annotated

import typer

from app.cli.consoles import errors, stop_on_errors
from app.cli.judge_setup import open_configured_store
from app.domain.digests import digest_of_model
from app.envs.rlaif.environment import RlaifParams
from app.judges.rubric_writing import WrittenRubric, write_rubric
from app.main.components import build_judge_config
from app.settings import Settings, read_settings

rlaif = typer.Typer(help="Prepare training on a preference.", no_args_is_help=True)


@rlaif.callback()
def callback() -> None:
    """Prepare training on a preference."""


@rlaif.command()
def rubric(
    preference: Annotated[str, typer.Option(help="What judges should prefer, in a sentence or two.")],
    judge: Annotated[str, typer.Option(help="Judge from the settings whose model writes the rubric.")],
) -> None:
    """Write a rubric for a preference with a judge's model.

    Prints `params` for requests: review and edit them, then send the same ones in every request.
    Costs count against the judge's budgets in the configured database."""
    with stop_on_errors():
        wanted = RlaifParams(preference=preference)
        settings = read_settings()
        if judge not in settings.judges:
            known = ", ".join(sorted(settings.judges)) or "none"
            raise ValueError(f"unknown judge {judge!r}; judges in the settings: {known}")
        if settings.judges[judge].kind != "chat":
            raise ValueError(f"judge {judge!r} is a reward model, which writes nothing")
        written = asyncio.run(_write_rubric(settings, judge, wanted.preference))
    params = RlaifParams.model_validate({"preference": wanted.preference, "rubric": written.model_dump()["criteria"]})
    typer.echo(params.model_dump_json(indent=2, exclude_none=True))
    model = settings.judges[judge].model
    errors.print(f"written by {model}; digest {digest_of_model(params)}", highlight=False, markup=False)


async def _write_rubric(settings: Settings, judge: str, preference: str) -> WrittenRubric:
    config = build_judge_config(settings, judge, settings.judges[judge])
    async with open_configured_store(settings) as store:
        return await write_rubric(config, preference, store.judge_cache)
