"""`atropos-envs groups`: stored groups in a terminal."""

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from app.cli.consoles import AsJson, format_figure, output_console, print_json, print_rows
from app.cli.run_audit import ApiKey, Url, ask_gateway
from app.domain.groups import Rollout
from app.domain.tasks import Completion
from app.http.api.models import GroupView
from app.toolkit.display import escape_invisible

groups = typer.Typer(help="Show stored groups.", no_args_is_help=True)

SHOWN: Final = 160
"""Characters of a completion in its row."""


@groups.callback()
def callback() -> None:
    """Show stored groups."""


@groups.command()
def show(
    group: Annotated[str, typer.Argument(help="The group's id.")],
    texts: Annotated[bool, typer.Option("--texts", help="Print completions and rationales in full.")] = False,
    url: Url = "",
    api_key: ApiKey = "",
    as_json: AsJson = False,
) -> None:
    """Show a group: what was asked, and each completion with its score and why."""
    found = ask_gateway(url, api_key, lambda client: client.fetch_group(group))
    if as_json:
        print_json(found)
        return
    print_rows(("what", "value"), _list_facts(found), title=f"group {found.group.group_id}")
    columns = (">sent as", "outcome", ">reward", ">absolute", ">relative", "flags", "judges", "completion")
    print_rows(columns, (_list_cells(place, one) for place, one in enumerate(found.group.rollouts, 1)))
    if texts:
        _print_texts(found)


def _list_facts(found: GroupView) -> Iterator[tuple[str, str]]:
    group, task = found.group, found.task
    yield "environment", group.environment
    yield "task", group.task_id
    yield "run", group.run or "-"
    policy = group.policy
    if policy is not None:
        yield "policy", policy.model if policy.step is None else f"{policy.model}, step {policy.step}"
    yield "purpose", group.purpose
    yield "time (UTC)", f"{group.created_at:%Y-%m-%d %H:%M:%S}"
    yield "outcome", group.outcome
    yield "mean", f"{format_figure(found.reply.mean)}, std {format_figure(found.reply.std)}"
    if group.flags:
        yield "flags", ", ".join(group.flags)
    yield "asked", _cut(next((message.content or "" for message in reversed(task.messages)), ""))
    yield "readings", f"{len(found.judgements)} of its own, {len(found.scorings)} later scorings"


def _list_cells(place: int, one: Rollout) -> tuple[str, ...]:
    score = one.score
    parts = (format_figure(score.reward), format_figure(score.absolute), format_figure(score.relative))
    outcome = score.outcome if score.reason is None else f"{score.outcome}: {score.reason}"
    return str(place), outcome, *parts, ", ".join(score.flags), ", ".join(score.judges), _cut(_write(one.completion))


def _print_texts(found: GroupView) -> None:
    console = output_console()
    for place, one in enumerate(found.group.rollouts, 1):
        told = f"\n{place}: {format_figure(one.score.reward)}\n{_write(one.completion)}"
        why = f"\nwhy: {one.score.rationale}" if one.score.rationale else ""
        lines = (escape_invisible(line) for line in f"{told}{why}".split("\n"))
        console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _write(completion: Completion) -> str:
    if completion.text is not None:
        return completion.text
    return "\n".join(f"{message.role}: {message.content or ''}" for message in completion.messages or ())


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
