"""`python -m tests.record write` keeps how the service behaves; `compare` says in what it behaves otherwise now."""

import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.telemetry.logs import configure_logging
from tests.record.keeping import differences, keep
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
    made = [(part, _made(part, dump)) for part in _chosen(only)]
    for part, blocks in made:
        if blocks is not None:
            keep(part, blocks)
    raise typer.Exit(1 if any(blocks is None for _, blocks in made) else 0)


@cli.command()
def compare(only: Only = "", dump: Dump = None) -> None:
    """Compare the present code with what was kept; exit code 1 where it does otherwise."""
    differing = [part.name for part in _chosen(only) if not _same(part, dump)]
    _say(f"DIFFERENT: {', '.join(differing)}" if differing else "everything is as it was")
    raise typer.Exit(1 if differing else 0)


def _chosen(only: str) -> list[Part]:
    names = [name.strip() for name in only.split(",") if name.strip()] or list(PARTS)
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        raise typer.BadParameter(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    return [PARTS[name] for name in names]


def _same(part: Part, dump: Path | None) -> bool:
    blocks = _made(part, dump)
    if blocks is None:
        return False
    changed = differences(part, blocks)
    if changed:
        _say(f"{part.name}: DIFFERENT in {len(changed)} lines (- as recorded, + now)")
    for line in changed[:MOST_SHOWN]:
        _say(f"  {line[:400]}")
    if len(changed) > MOST_SHOWN:
        _say(f"  … and {len(changed) - MOST_SHOWN} more")
    return not changed


def _made(part: Part, dump: Path | None) -> Blocks | None:
    """None, loudly, where this machine cannot make it."""
    began, spent = time.monotonic(), _processor_seconds()
    try:
        blocks = part.made()
    except NotHere as error:
        _say(f"{part.name}: NOT LOOKED AT, since this machine cannot: {error}")
        return None
    except Exception:  # whatever broke: the other parts are compared all the same
        _say(f"{part.name}: BROKE\n{traceback.format_exc()}")
        return None
    rows = sum(map(len, blocks.values()))
    seconds, processor = time.monotonic() - began, _processor_seconds() - spent
    _say(f"{part.name}: {len(blocks)} blocks, {rows} rows ({seconds:.1f} s, {processor:.1f} s of processor time)")
    if dump is not None:
        dump.mkdir(parents=True, exist_ok=True)
        with (dump / f"{part.name}.jsonl").open("w", encoding="utf-8") as file:
            for name, found in sorted(blocks.items()):
                file.writelines(line_of({"block": name, "row": row}) + "\n" for row in found)
    return blocks


def _processor_seconds() -> float:
    """Of this process and those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    configure_logging("error", "console")
    cli(args=arguments)


if __name__ == "__main__":
    main()
