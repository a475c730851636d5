"""`python -m tests.record write` keeps how the service behaves; `compare` says in what it behaves otherwise now."""

import sys
import time
import traceback
from pathlib import Path
from typing import Annotated

import typer

from app.telemetry.logs import configure_logging
from tests.record.parts import PARTS
from tests.record.rows import Blocks, NotHere, Part, line_of

MOST_SHOWN = 40
"""Lines of difference a part."""

cli = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
Only = Annotated[str, typer.Option(help="Parts, separated by commas; all without.")]
Dump = Annotated[Path | None, typer.Option(help="Folder for all rows as JSON lines.")]


@cli.command()
def write(only: Only = "", dump: Dump = None) -> None:
    """Keep what the present code does."""
    made = [(part, _make(part, dump)) for part in _choose(only)]
    for part, blocks in made:
        if blocks is not None:
            part.keep(blocks)
    raise typer.Exit(1 if any(blocks is None for _, blocks in made) else 0)


@cli.command()
def compare(only: Only = "", dump: Dump = None) -> None:
    """Compare the present code with what was kept; exit code 1 where it does otherwise."""
    differing = [part.name for part in _choose(only) if not _is_same(part, dump)]
    _say(f"DIFFERENT: {', '.join(differing)}" if differing else "everything is as it was")
    raise typer.Exit(1 if differing else 0)


def _choose(only: str) -> list[Part]:
    names = [name.strip() for name in only.split(",") if name.strip()] or list(PARTS)
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        raise typer.BadParameter(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    return [PARTS[name] for name in names]


def _is_same(part: Part, dump: Path | None) -> bool:
    blocks = _make(part, dump)
    if blocks is None:
        return False
    changed = part.compare(blocks)
    if changed:
        shown = "".join(f"\n  {line[:400]}" for line in changed[:MOST_SHOWN])
        _say(f"{part.name}: DIFFERENT in {len(changed)} lines (- as recorded, + now){shown}")
    return not changed


def _make(part: Part, dump: Path | None) -> Blocks | None:
    """None, loudly, where this machine cannot make it."""
    began = time.monotonic()
    try:
        blocks = part.made()
    except NotHere as error:
        _say(f"{part.name}: NOT LOOKED AT, since this machine cannot: {error}")
        return None
    except Exception:  # whatever broke: the other parts are compared all the same
        _say(f"{part.name}: BROKE\n{traceback.format_exc()}")
        return None
    _say(f"{part.name}: {len(blocks)} blocks, {sum(map(len, blocks.values()))} rows ({time.monotonic() - began:.1f} s)")
    if dump is not None:
        dump.mkdir(parents=True, exist_ok=True)
        rows = [{"block": name, "row": row} for name, found in sorted(blocks.items()) for row in found]
        (dump / f"{part.name}.jsonl").write_text("".join(f"{line_of(row)}\n" for row in rows), encoding="utf-8")
    return blocks


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    configure_logging("error", "console")
    cli()
