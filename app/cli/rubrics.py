"""`atropos-envs rubrics` and `rlaif`: check, show and write rubrics of one's own, by hand or by a judge's model."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from app.characters.loading import dump_yaml
from app.cli.judge_bench import open_configured_store
from app.cli.sheets import format_count, print_findings
from app.domain.errors import UserError
from app.domain.faults import explain_os_error
from app.domain.judging import OwnRubric, RubricLabel
from app.domain.values import digest_of_model
from app.envs.npc_arena.environment import STARTING_RUBRIC
from app.envs.rlaif.environment import RlaifParams
from app.judges.prompts import RubricFile, WrittenRubric, load_rubric, read_rubric, write_rubric
from app.main.components import build_judge_config
from app.settings import Settings, read_settings
from app.terminal.completion import complete_judge
from app.terminal.consoles import AsJson, errors, output_console, stop, stop_on_errors

rubrics = typer.Typer(help="Check, show and write rubrics.", no_args_is_help=True)
_console = output_console()
_START = OwnRubric.model_validate(STARTING_RUBRIC.model_dump(mode="json", exclude_none=True))

_RubricPath = Annotated[
    Path | None, typer.Argument(help="A rubric's file.", show_default="the built-in rubric of NPC Arena")
]


@rubrics.callback()
def callback() -> None:
    """Check, show and write rubrics."""


@rubrics.command()
def check(
    paths: Annotated[list[Path], typer.Argument(help="Files of rubrics.")],
    strict: Annotated[bool, typer.Option(help="Treat warnings as errors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check rubrics for errors, with the line and key of each.

    Exit code 1: errors found."""
    files = [read_rubric(path) for path in paths]
    findings = [finding for one in files for finding in one.findings]
    broken = sum(finding.level == "error" for finding in findings)
    if as_json:
        report = {"rubrics": len(files) - _count_broken(files), "errors": broken, "warnings": len(findings) - broken}
        report["findings"] = [finding.model_dump() for finding in findings]  # type: ignore[assignment]
        typer.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        print_findings(findings, format_count(len(files) - _count_broken(files), "rubric"))
    if broken or (strict and findings):
        raise typer.Exit(1)


@rubrics.command()
def show(path: _RubricPath = None, as_json: AsJson = False) -> None:
    """Show a rubric's criteria with their shares, and its defects with their caps.

    With --json it is printed as it goes into a run's `options.rubric`."""
    try:
        own = _START if path is None else load_rubric(path)
    except UserError as error:
        stop(str(error), 1)
    if as_json:
        typer.echo(own.model_dump_json(indent=2, exclude_none=True))
    else:
        _print_rubric(own)


@rubrics.command()
def write(
    path: Annotated[Path | None, typer.Argument(help="File to write.", show_default="standard output")] = None,
    force: Annotated[bool, typer.Option(help="Replace a file that is there.")] = False,
) -> None:
    """Write the built-in rubric of NPC Arena to a file, as a start for your own."""
    text = dump_yaml(_START.model_dump(mode="json", exclude_defaults=True))
    if path is None:
        typer.echo(text, nl=False)
        return
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        stop(f"{path} is there already; --force replaces it", 1)
    except OSError as error:
        stop(f"{path}: {explain_os_error(error)}", 1)
    errors.print(f"wrote {path}; check it with `atropos-envs rubrics check {path}`", highlight=False, markup=False)


def _count_broken(files: list[RubricFile]) -> int:
    return sum(one.rubric is None for one in files)


def _print_rubric(own: OwnRubric) -> None:
    label = RubricLabel.from_rubric(own.build_rubric())
    total = sum(criterion.weight for criterion in own.criteria)
    criteria = Table("criterion", "share", "requires", title=f"{label.name} {label.version} ({label.digest[:8]})")
    for criterion in own.criteria:
        needed = criterion.requires
        required = "" if needed is None else f"{needed.criterion} at least {needed.at_least:g}"
        criteria.add_row(criterion.name, f"{criterion.weight / total:.2f}", required)
    defects = Table("defect", "reward at most", "bounds", "confirms")
    for rule in own.defects:
        bound = "" if rule.bounds is None else f"{rule.bounds.criterion} at most {rule.bounds.at_most:g}"
        defects.add_row(rule.code, "" if rule.cap is None else f"{rule.cap:g}", bound, rule.confirms or "")
    _console.print(criteria, defects)


# `rlaif`: a rubric is written once before training, and comes with every request after that.

rlaif = typer.Typer(help="Write rubrics for training on a preference.", no_args_is_help=True)


@rlaif.callback()
def rlaif_callback() -> None:
    """Write rubrics for training on a preference."""


@rlaif.command()
def rubric(
    preference: Annotated[str, typer.Option(help="What judges should prefer, in a sentence or two.")],
    judge: Annotated[
        str, typer.Option(help="Judge from the settings whose model writes the rubric.", autocompletion=complete_judge)
    ],
) -> None:
    """Write a rubric for a preference with a judge's model.

    Prints `params` for requests: review and edit them, then send the same ones in every request.
    Costs count against the judge's budgets in the configured database."""
    with stop_on_errors():
        checked = RlaifParams(preference=preference)  # before anything is paid
        settings = read_settings()
        if judge not in settings.judges:
            configured = ", ".join(sorted(settings.judges)) or "none"
            raise UserError(f"unknown judge {judge!r}; judges in the settings: {configured}")
        if settings.judges[judge].kind != "chat":
            raise UserError(f"judge {judge!r} is a reward model, which writes nothing")
        written = asyncio.run(_write_rubric(settings, judge, checked.preference))
    params = RlaifParams.model_validate({"preference": checked.preference, "rubric": written.model_dump()["criteria"]})
    typer.echo(params.model_dump_json(indent=2, exclude_none=True))
    model = settings.judges[judge].model
    errors.print(f"written by {model}; digest {digest_of_model(params)}", highlight=False, markup=False)


async def _write_rubric(settings: Settings, judge: str, preference: str) -> WrittenRubric:
    config = build_judge_config(settings, judge, settings.judges[judge])
    async with open_configured_store(settings) as store:
        return await write_rubric(config, preference, store.judge_cache)
