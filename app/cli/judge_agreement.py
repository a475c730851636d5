"""`atropos-envs judges agreement`: how far a judge agrees with the people who labelled its groups."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import httpx
import typer
from rich.markup import escape
from rich.table import Table

from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.consoles import AsJson, describe_error, output_console, print_json, stop
from app.cli.gateway_client import GatewayClient
from app.domain.errors import GatewayError
from app.evaluation.agreement_figures import AgreementSlice, CriterionAgreement
from app.evaluation.judge_agreement import FEWEST_EFFECTIVE
from app.evaluation.label_agreement import AgreementFigure
from app.http.api.label_routes import JudgeAgreement
from app.toolkit.display import escape_invisible


def agreement(
    judge: Annotated[str, typer.Argument(help="Judge to look at.")],
    env: Annotated[str | None, typer.Option(help="Only groups of this environment.")] = None,
    run: Annotated[str | None, typer.Option(help="Only groups of this run.")] = None,
    url: Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")] = "",
    api_key: Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show how far a judge agrees with people, beside how far people agree with one another."""
    address = (url or find_gateway_url()).rstrip("/")
    try:
        found = asyncio.run(_fetch(address, api_key, judge, env, run))
    except GatewayError as error:
        stop(describe_error(error))
    if as_json:
        print_json(found)
    else:
        print_agreement(found)


async def _fetch(url: str, api_key: str, judge: str, env: str | None, run: str | None) -> JudgeAgreement:
    headers = build_gateway_headers(api_key)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=httpx.Timeout(30, read=600)) as client:
        return await GatewayClient(client).fetch_agreement(judge, env, run)


def print_agreement(found: JudgeAgreement) -> None:
    console = output_console()
    for part in (found.overall, *found.languages, *found.rubrics):
        console.print(_build_pair_table(part, found.judge))
        if part.criteria:
            console.print(_build_criterion_table(part))
        for line in _describe_defects(part):
            console.print(escape_invisible(line), highlight=False, markup=False)
    for arm, counts in found.draws.items():
        tried = counts.labelled + counts.skipped
        share = f", {counts.skipped / tried:.0%} skipped" if tried else ""
        console.print(escape_invisible(f"{arm}: {counts.labelled:,} labelled{share}"), highlight=False, markup=False)
    if found.with_others:
        words = f"{found.with_others:,} groups have only the scores of a panel of several judges"
        console.print(words, highlight=False, markup=False)
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.labels.items())) or "none"
    words = f"labels: {kinds}; only those of the queue are in the figures"
    console.print(escape_invisible(words), highlight=False, markup=False)


def _build_pair_table(part: AgreementSlice, judge: str) -> Table:
    pairs = part.pairs
    judge = _make_plain(judge)
    title = f"{_make_plain(part.name)}: pairs, {_count(pairs.groups, pairs.effective)}"
    table = Table("whose order", "pairs", "right", title=title)
    table.add_row(judge, f"{pairs.pairs:,}", _format_figure(pairs.judge, pairs.effective))
    table.add_row("another person, same pairs", f"{pairs.shared_pairs:,}", _format_figure(pairs.people))
    table.add_row(f"{judge}, same pairs", f"{pairs.shared_pairs:,}", _format_figure(pairs.judge_on_shared))
    table.add_row("a constant", "", f"{pairs.constant:.2f}")
    return table


def _build_criterion_table(part: AgreementSlice) -> Table:
    titles = ("criterion", "replies", "weighted kappa", "equal", "constant", "PABAK", "bias", "people 0-4", "judge 0-4")
    table = Table(*titles, title=f"{_make_plain(part.name)}: criteria")
    for one in part.criteria:
        table.add_row(*_describe_criterion(one))
    return table


def _describe_criterion(one: CriterionAgreement) -> Iterator[str]:
    yield _make_plain(one.criterion)
    yield f"{one.replies:,}"
    yield _format_figure(one.kappa, one.effective)
    yield _format_figure(one.agreement, one.effective)
    for value in (one.constant, one.pabak, one.bias):
        yield "" if value is None else f"{value:.2f}"
    for rates in (one.people, one.judge):
        yield " ".join(f"{rate:.0%}" for rate in rates)


def _describe_defects(part: AgreementSlice) -> Iterator[str]:
    found = part.defects
    if not found.replies:
        return
    yield f"{part.name}: defects, {found.replies:,} replies, {_count(found.groups, found.effective)}"
    if found.base_rate is not None:
        yield f"  people see a defect in {found.base_rate:.0%}; a constant is right in {found.constant or 0:.0%}"
    for name in ("auc", "gate_precision", "gate_recall", "cap_precision", "cap_recall"):
        yield f"  {name.replace('_', ' ')}: {_format_figure(getattr(found, name), found.effective)}"


def _make_plain(text: str) -> str:
    """For cells and titles of tables, which would read markup in a language or the name of a criterion."""
    return escape(escape_invisible(text))


def _count(groups: int, effective: float) -> str:
    return f"{groups:,} groups, worth {effective:,.0f}"


def _format_figure(figure: AgreementFigure, effective: float | None = None) -> str:
    if effective is not None and effective < FEWEST_EFFECTIVE:
        return f"needs {FEWEST_EFFECTIVE} effective groups"
    if figure.value is None:
        return "not defined"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.2f}, {figure.high:.2f}]"
