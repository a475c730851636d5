"""`atropos-envs keys`: makes, lists, rotates and revokes keys in the configured store. Services notice soon.

The store has only digests, so a secret is printed once, when it is made. Whoever may run these commands has the
database itself: no key is asked for, and the record of actions says that they came from the command line."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from pydantic import JsonValue
from rich.table import Table

from app.characters.loading import parse_model
from app.cli.judge_bench import open_configured_store
from app.domain.access import (
    AccessKey,
    AdminAction,
    DeclaredKey,
    KeyBounds,
    KeyOptions,
    KeyScopes,
    compute_key_digest,
    generate_key,
    name_narrowed,
)
from app.domain.budgets import KeyQuotas, KeyUsage
from app.domain.values import Frozen
from app.service.access import KeyAdmin, NewSecret
from app.settings import read_settings
from app.terminal.completion import complete_environment, complete_run
from app.terminal.consoles import AsJson, output_console, print_json, print_outcome, stop_on_errors
from app.toolkit.texts import format_time

keys = typer.Typer(help="Make, list, rotate and revoke keys of the service.", no_args_is_help=True)

_BY: Final = "command line"
"""Who did it, in the record of actions."""
_MOST_LISTED: Final = 500

_KeyName = Annotated[str, typer.Argument(help="The key's name.")]
_RequestsPerDay = Annotated[
    int | None, typer.Option(help="At most so many requests for tasks, scores and replies of characters a day (UTC).")
]
_JudgeTokensPerDay = Annotated[int | None, typer.Option(help="At most so many tokens of judges a day.")]
_JudgeUsdPerDay = Annotated[float | None, typer.Option(help="At most so many dollars for judges a day.")]
_Leases = Annotated[int | None, typer.Option(help="At most so many tasks leased at the same time.")]
_Hard = Annotated[
    bool, typer.Option("--hard", help="The quotas are caps: nothing is begun that may pass one, runs from files too.")
]
_ResultT = TypeVar("_ResultT")


class DeclaredKeys(Frozen):
    """What `keys apply` reads."""

    keys: tuple[DeclaredKey, ...]


class AllKeys(Frozen):
    keys: tuple[AccessKey, ...]


class KeyUse(Frozen):
    """What a key has used, and what it may use."""

    key: str
    usage: KeyUsage
    quotas: KeyQuotas


class AllUsage(Frozen):
    keys: tuple[KeyUse, ...]


class Audit(Frozen):
    actions: tuple[AdminAction, ...]


@keys.callback()
def callback() -> None:
    """Make, list, rotate and revoke keys of the service, in the configured store. Services notice within seconds."""


@keys.command()
def create(
    name: _KeyName,
    scope: Annotated[list[str] | None, typer.Option(help="A scope; repeat it for more. `read` and `train`.")] = None,
    expires: Annotated[str, typer.Option(help="When it ends, such as 2027-01-31T00:00:00Z.")] = "",
    run: Annotated[
        list[str] | None,
        typer.Option(help="Bind it to this run, or to all that begin `so*`.", autocompletion=complete_run),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="Bind it to this environment.", autocompletion=complete_environment)
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Bind it to this data set, or to `built-in`.")] = None,
    world: Annotated[
        list[str] | None, typer.Option(help="Bind it to this world; by default to those with the names of its runs.")
    ] = None,
    requests_per_day: _RequestsPerDay = None,
    judge_tokens_per_day: _JudgeTokensPerDay = None,
    judge_usd_per_day: _JudgeUsdPerDay = None,
    leases: _Leases = None,
    hard: _Hard = False,
    as_json: AsJson = False,
) -> None:
    """Make a key and print its secret, this once. Without `--run`, `--env`, `--dataset` and `--world` it is bound to
    nothing; each may be given more than once.

    Scopes: read, train, label, talk, play, author, metrics, admin."""
    bounds = {"runs": run or (), "environments": env or (), "datasets": dataset or (), "worlds": world or ()}
    with stop_on_errors():
        quotas = _build_quotas(requests_per_day, judge_tokens_per_day, judge_usd_per_day, leases, hard)
        fields = {"name": name, "bounds": bounds, "quotas": quotas}
        fields |= ({"scopes": scope} if scope else {}) | ({"expires_at": expires} if expires else {})
        options = KeyOptions.model_validate(fields)
        _print_secret(_run(lambda admin: admin.create(options, _BY)), as_json=as_json)


@keys.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """List all named keys, without their secrets."""
    with stop_on_errors():
        listed = _run(lambda admin: admin.list_keys())
    if as_json:
        print_json(AllKeys(keys=listed))
        return
    table = Table("name", "secret", "scopes", "bound to", "quotas", "made", "expires", "revoked")
    for key in listed:
        times = (key.expires_at, key.revoked_at)
        table.add_row(
            key.name,
            f"{key.hint}…",
            ", ".join(key.scopes),
            _show_bounds(key.bounds),
            _show_quotas(key.quotas),
            format_time(key.created_at),
            *map(_show_time, times),
        )
    output_console().print(table)
    if sentence := name_narrowed(listed):
        output_console().print(sentence, markup=False, soft_wrap=True)  # its commands are copied


@keys.command("open")
def open_scopes(
    name: _KeyName,
    scope: Annotated[list[str], typer.Option(help="A scope; repeat it for more. All others end.")],
    as_json: AsJson = False,
) -> None:
    """Set the scopes of a key anew.

    Scopes: read, train, label, talk, play, author, metrics, admin."""
    with stop_on_errors():
        scopes = KeyScopes.model_validate({"scopes": scope}).scopes
        key = _run(lambda admin: admin.open(name, scopes, _BY))
    _print_key(key, f"{name}: {', '.join(key.scopes)}", as_json=as_json)


@keys.command()
def rotate(
    name: _KeyName,
    grace: Annotated[
        float, typer.Option(min=0, max=30 * 86_400, help="Seconds for which the old secret works too.")
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Give a key a new secret and print it, this once."""
    with stop_on_errors():
        _print_secret(_run(lambda admin: admin.rotate(name, grace, _BY)), as_json=as_json)


@keys.command()
def limit(
    name: _KeyName,
    requests_per_day: _RequestsPerDay = None,
    judge_tokens_per_day: _JudgeTokensPerDay = None,
    judge_usd_per_day: _JudgeUsdPerDay = None,
    leases: _Leases = None,
    hard: _Hard = False,
    as_json: AsJson = False,
) -> None:
    """Set all quotas of a key anew: what is not given is not limited. They stop the handing out of tasks, and not the
    one group for which each lease pays."""
    with stop_on_errors():
        quotas = KeyQuotas.model_validate(
            _build_quotas(requests_per_day, judge_tokens_per_day, judge_usd_per_day, leases, hard)
        )
        key = _run(lambda admin: admin.limit(name, quotas, _BY))
    _print_key(key, f"{name}: {_show_quotas(key.quotas) or 'no limits'}", as_json=as_json)


@keys.command()
def usage(as_json: AsJson = False) -> None:
    """List what each key has used today (UTC) and holds now, beside its quotas."""
    with stop_on_errors():
        found = asyncio.run(_load_usage())
    if as_json:
        print_json(AllUsage(keys=found))
        return
    table = Table("name", "requests", "judge tokens", "judge USD", "leases", "reserved", "quotas", "over")
    for one in found:
        spent = one.usage
        table.add_row(
            one.key,
            f"{spent.requests}",
            f"{spent.judge_tokens}",
            f"{spent.judge_usd:.4f}",
            f"{spent.leases}",
            f"{spent.held_tokens} tokens, {spent.held_usd:.4f} USD",
            _show_quotas(one.quotas),
            ", ".join(f"{use.quota} {use.over:.4g}" for use in spent.list_uses(one.quotas) if use.over),
        )
    output_console().print(table)


async def _load_usage() -> tuple[KeyUse, ...]:
    async with open_configured_store(read_settings()) as store:
        named = await KeyAdmin(store.keys).list_keys()
        return tuple(
            [KeyUse(key=key.name, usage=await store.quotas.load_usage(key.name), quotas=key.quotas) for key in named]
        )


@keys.command()
def revoke(name: _KeyName, as_json: AsJson = False) -> None:
    """End a key for good."""
    with stop_on_errors():
        key = _run(lambda admin: admin.revoke(name, _BY))
    _print_key(key, f"revoked {name}", as_json=as_json)


@keys.command("apply")
def apply_file(file: Annotated[Path, typer.Argument(help="A YAML file with `keys`.")], as_json: AsJson = False) -> None:
    """Make the keys what a file says, and print what that changes.

    Each has `name`, `digest` (see `keys digest`), `scopes`, `bounds`, `quotas` and `expires_at`. Keys that the file
    does not name stay."""
    with stop_on_errors():
        declared = parse_model(file.read_text(encoding="utf-8"), file.name, DeclaredKeys).keys
        changes = _run(lambda admin: admin.apply(declared, _BY))
    unchanged = len(declared) - len(changes)
    lines = [f"{change.action} {change.key}" for change in changes]
    words = "\n".join([*lines, f"{len(changes)} changed, {unchanged} as they were"])
    listed: list[JsonValue] = [{"action": change.action, "key": change.key} for change in changes]
    print_outcome(words, as_json=as_json, changes=listed, unchanged=unchanged)


@keys.command()
def digest(as_json: AsJson = False) -> None:
    """Print a new secret and its digest, for a file of `keys apply`. Nothing is stored."""
    secret = generate_key()
    made = compute_key_digest(secret)
    print_outcome(f"secret: {secret}\ndigest: {made}", as_json=as_json, secret=secret, digest=made)


@keys.command()
def audit(as_json: AsJson = False) -> None:
    """List what was done to keys, and by whom, newest first."""
    with stop_on_errors():
        found = tuple(action for _, action in _run(lambda admin: admin.list_actions(None, _MOST_LISTED)))
    if as_json:
        print_json(Audit(actions=found))
        return
    for action in found:
        typer.echo(f"{format_time(action.at)}  {action.by}: {action.action} {action.key}")


def _run(work: Callable[[KeyAdmin], Awaitable[_ResultT]]) -> _ResultT:
    async def work_in_store() -> _ResultT:
        async with open_configured_store(read_settings()) as store:
            return await work(KeyAdmin(store.keys))

    return asyncio.run(work_in_store())


def _print_key(key: AccessKey, words: str, *, as_json: bool) -> None:
    if as_json:
        print_json(key)
    else:
        typer.echo(words)


def _print_secret(made: NewSecret, *, as_json: bool) -> None:
    """Alone on stdout, so that a script can take it."""
    if as_json:
        print_json(made)
        return
    typer.echo(f"{made.key.name}: {', '.join(made.key.scopes)}. The secret is shown this once:", err=True)
    typer.echo(made.secret)


def _show_bounds(bounds: KeyBounds) -> str:
    lists = bounds.model_dump()
    return "; ".join(f"{what} {', '.join(names)}" for what, names in lists.items() if names)


def _build_quotas(
    requests_per_day: int | None,
    judge_tokens_per_day: int | None,
    judge_usd_per_day: float | None,
    leases: int | None,
    hard: bool,
) -> dict[str, JsonValue]:
    return {
        "requests_per_day": requests_per_day,
        "judge_tokens_per_day": judge_tokens_per_day,
        "judge_usd_per_day": judge_usd_per_day,
        "leases": leases,
        "hard": hard,
    }


def _show_quotas(quotas: KeyQuotas) -> str:
    limits = [f"{name} {limit:g}" for name, limit in quotas if limit is not None and name != "hard"]
    return ", ".join([*limits, "hard"] if quotas.hard else limits)


def _show_time(moment: datetime | None) -> str:
    return "" if moment is None else format_time(moment)
