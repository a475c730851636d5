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

keys = typer.Typer(help="Create, list, rotate and revoke keys of the service.", no_args_is_help=True)

_BY: Final = "command line"
"""Who did it, in the record of actions."""
_MOST_LISTED: Final = 500

_KeyName = Annotated[str, typer.Argument(help="The key's name.")]
_BOUNDS: Final = "What the key may use"
_QUOTAS: Final = "Quotas"

_RequestsPerDay = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Maximum requests per day (UTC) for tasks, scores and replies of characters.",
        rich_help_panel=_QUOTAS,
    ),
]
_JudgeTokensPerDay = Annotated[
    int | None, typer.Option(min=1, help="Maximum judge tokens per day (UTC).", rich_help_panel=_QUOTAS)
]
_JudgeUsdPerDay = Annotated[
    float | None, typer.Option(help="Maximum US dollars for judges per day (UTC).", rich_help_panel=_QUOTAS)
]
_Leases = Annotated[
    int | None, typer.Option(min=1, help="Maximum tasks leased at the same time.", rich_help_panel=_QUOTAS)
]
_Hard = Annotated[
    bool,
    typer.Option(
        "--hard",
        help="Refuse whatever may exceed a quota. Otherwise work that has begun is finished beyond it.",
        rich_help_panel=_QUOTAS,
    ),
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
    """Create, list, rotate and revoke keys of the service, in the configured store. Running services notice within
    seconds."""


@keys.command()
def create(
    name: _KeyName,
    scope: Annotated[
        list[str] | None, typer.Option(help="What the key may do; repeatable.", show_default="read, train")
    ] = None,
    expires: Annotated[
        str, typer.Option(help="When the key ends, such as 2027-01-31T00:00:00Z.", show_default="never")
    ] = "",
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this run, or with `ada-*` all that begin with `ada-`; repeatable.",
            autocompletion=complete_run,
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this environment; repeatable.", autocompletion=complete_environment, rich_help_panel=_BOUNDS
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this data set, or `built-in` for an environment's own tasks; repeatable.",
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this world; repeatable.",
            show_default="those named like its runs, if --run is given",
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    requests_per_day: _RequestsPerDay = None,
    judge_tokens_per_day: _JudgeTokensPerDay = None,
    judge_usd_per_day: _JudgeUsdPerDay = None,
    leases: _Leases = None,
    hard: _Hard = False,
    as_json: AsJson = False,
) -> None:
    """Create a key and print its secret, which is never shown again.

    Scopes: read, train, label, talk, play, author, metrics, admin. Without --run, --env, --dataset and --world the key
    may use all of them."""
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
    scope: Annotated[list[str], typer.Option(help="What the key may do from now on; repeatable.")],
    as_json: AsJson = False,
) -> None:
    """Replace all scopes of a key: those that you leave out are removed.

    Scopes: read, train, label, talk, play, author, metrics, admin."""
    with stop_on_errors():
        scopes = KeyScopes.model_validate({"scopes": scope}).scopes
        key = _run(lambda admin: admin.open(name, scopes, _BY))
    _print_key(key, f"{name}: {', '.join(key.scopes)}", as_json=as_json)


@keys.command()
def rotate(
    name: _KeyName,
    grace: Annotated[
        float, typer.Option(min=0, max=30 * 86_400, help="Seconds for which the old secret still works.")
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Give a key a new secret and print it. It is never shown again."""
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
    """Replace all quotas of a key: limits that you leave out are removed.

    A key at its limit gets no new tasks. Tasks that it has already leased are still scored."""
    with stop_on_errors():
        quotas = KeyQuotas.model_validate(
            _build_quotas(requests_per_day, judge_tokens_per_day, judge_usd_per_day, leases, hard)
        )
        key = _run(lambda admin: admin.limit(name, quotas, _BY))
    _print_key(key, f"{name}: {_show_quotas(key.quotas) or 'no quotas'}", as_json=as_json)


@keys.command()
def usage(as_json: AsJson = False) -> None:
    """List what each key has used today (UTC), beside its quotas."""
    with stop_on_errors():
        found = asyncio.run(_load_usage())
    if as_json:
        print_json(AllUsage(keys=found))
        return
    titles = ("requests today", "judge tokens today", "judge USD today", "tasks leased", "reserved for judging")
    table = Table("key", *titles, "quotas", "over quota")
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
            ", ".join(_show_quota(use.quota, use.over) for use in spent.list_uses(one.quotas) if use.over),
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
    """Revoke a key for good. Its secret stops working within seconds."""
    with stop_on_errors():
        key = _run(lambda admin: admin.revoke(name, _BY))
    _print_key(key, f"revoked {name}", as_json=as_json)


@keys.command("apply")
def apply_file(file: Annotated[Path, typer.Argument(help="A YAML file with `keys`.")], as_json: AsJson = False) -> None:
    """Create and update keys from a file, and print the changes.

    Each key has `name`, `digest` (see `keys digest`), `scopes`, `bounds`, `quotas` and `expires_at`. Keys that the file
    does not name stay unchanged."""
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
    """Print a new secret and its digest, for the file of `keys apply`. Nothing is stored."""
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


_UNITS: Final = {
    "requests_per_day": "requests a day",
    "judge_tokens_per_day": "judge tokens a day",
    "judge_usd_per_day": "USD for judges a day",
    "leases": "tasks leased at once",
}
"""Of quotas, by their names in JSON."""


def _show_quotas(quotas: KeyQuotas) -> str:
    limits = [_show_quota(name, limit) for name, limit in quotas if limit is not None and name != "hard"]
    return ", ".join([*limits, "never exceeded"] if quotas.hard and limits else limits)


def _show_quota(name: str, value: float) -> str:
    return f"{value:,.10g} {_UNITS[name]}"


def _show_time(moment: datetime | None) -> str:
    return "" if moment is None else format_time(moment)
