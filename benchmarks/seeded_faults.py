"""Faults of one line each, and which tier of the tests finds them: `python -m benchmarks.seeded_faults --tier quick`.

One at a time is put into a copy of the checkout. The tests that its row names run first, then those of its room, and
where these find nothing, all of the tier: what a part of the tier finds, the tier finds. What quick finds, all finds
too: of the others, all runs what it has beyond quick. No run of tests takes longer than `--limit`: one that is stopped
has found what failed until then, and otherwise the fault is told as `did not end`. What was found is kept in a file, so
that the next start goes on. `--near` leaves out the whole tier, and keeps only what is found. `--check` says which no
longer apply."""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from benchmarks.fault_table import FAULTS, Fault

ROOT: Final = Path(__file__).resolve().parents[1]
LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv", ".cache", "mutants", "__pycache__", ".*_cache", ".hypothesis", "*.db*"
)
QUICK: Final = "quick"
ALL: Final = "all"
SELECTED: Final = {
    QUICK: ["--hypothesis-profile=quick", "-m", "not slow"],
    ALL: ["--hypothesis-profile=all", "-m", "slow or deep or hypothesis"],
}
"""What `make test` runs, and what `make test-all` runs beyond that."""
NO_TESTS: Final = 5
"""What pytest exits with when nothing was selected."""
WANTED: Final = 0.9
PATIENCE_SECONDS: Final = 30
"""How long stopped tests may tidy up: some have a database's server of their own."""
_FAILED: Final = re.compile(
    r"^(?:\[gw\d+\] \[ *\d+%\] )?(?:FAILED|ERROR) (?P<named>\S.*)$|^(?P<told>\S+::.*?) (?:FAILED|ERROR) +\[",
    re.MULTILINE,
)
"""A failure as it is told at once, in one process or many, or at the end."""

State = Literal["found", "missed", "did not end", "no verdict"]
"""`no verdict`: the tests that fail also fail without the fault."""


@dataclass(frozen=True)
class Outcome:
    state: State
    by: str = ""


@dataclass(frozen=True)
class Result:
    fault: str
    tier: str
    state: State
    by: str
    seconds: int

    @property
    def found(self) -> bool:
        return self.state == "found"


def apply_fault(fault: Fault, checkout: Path) -> str:
    """Returns the text of the file with the fault in it. ValueError when it does not apply."""
    text = (checkout / fault.file).read_text(encoding="utf-8") if (checkout / fault.file).is_file() else ""
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: the text is there {text.count(fault.old)} times")
    return text.replace(fault.old, fault.new)


def list_selections(fault: Fault, *, near: bool) -> Iterator[list[str]]:
    """The tests that the row names, those of the room, those that every environment must pass, all."""
    if fault.tests:
        yield [*fault.tests]
    room = Path("tests", *Path(fault.file).parts[1:-1])
    while not (ROOT / room).is_dir():
        room = room.parent
    if room != Path("tests"):
        yield [str(room)]
    if fault.file.startswith("app/envs/"):
        yield ["tests/envs/test_environments.py", "tests/envs/test_verifiers.py", "-k", room.name]
    if not near:
        yield ["-n", "auto", "--dist", "loadgroup", "--ignore=tests/trainers"]


def run_tests(copy: Path, arguments: Sequence[str], limit: float) -> Outcome:
    """Found are the test that fails first, or that nothing can be collected."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-x", "-vv", "-rfE", *arguments]
    with tempfile.TemporaryFile() as output:
        running = subprocess.Popen(
            command, cwd=copy, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        ended = _await_end(running, limit)
        output.seek(0)
        told = output.read().decode("utf-8", "replace")
    if failed := _FAILED.search(told):
        return Outcome("found", failed["named"] or failed["told"])
    if not ended:
        return Outcome("did not end")
    return Outcome("missed") if running.returncode in (0, NO_TESTS) else Outcome("found", f"pytest left: {told[-300:]}")


def _await_end(running: subprocess.Popen[bytes], limit: float) -> bool:
    """Stops the tests and their processes after `limit` seconds, and whenever this program is stopped."""
    try:
        running.wait(limit)
    except subprocess.TimeoutExpired:
        return False
    finally:
        _stop(running)
    return True


def _stop(running: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        if running.poll() is None:
            os.killpg(running.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(PATIENCE_SECONDS)


class Trial:
    """Runs tests in a copy of the checkout. Tests that fail without the fault too find nothing."""

    def __init__(self, copy: Path, limit: float, *, near: bool) -> None:
        self._copy = copy
        self._limit = limit
        self._near = near
        self._sound: dict[tuple[str, ...], Outcome] = {}

    def _check_sound(self, arguments: Sequence[str]) -> Outcome:
        key = tuple(arguments)
        if key not in self._sound:
            self._sound[key] = run_tests(self._copy, arguments, self._limit)
        return self._sound[key]

    def run_with_fault(self, fault: Fault, selection: Sequence[str], marks: Sequence[str]) -> Outcome:
        file = self._copy / fault.file
        whole = file.read_text(encoding="utf-8")
        file.write_text(apply_fault(fault, self._copy), encoding="utf-8")
        try:
            outcome = run_tests(self._copy, [*selection, *marks], self._limit)
        finally:
            file.write_text(whole, encoding="utf-8")
        alone = [outcome.by, *marks] if "::" in outcome.by else [*selection, *marks]
        if outcome.state == "found" and (without := self._check_sound(alone)).state != "missed":
            return Outcome("no verdict", f"without the fault: {without.by or without.state}")
        return outcome

    def try_fault(self, fault: Fault, tier: str) -> Result:
        began, seen = time.monotonic(), Outcome("missed")
        for selection in list_selections(fault, near=self._near):
            outcome = self.run_with_fault(fault, selection, SELECTED[tier])
            seen = outcome if outcome.state != "missed" else seen
            if outcome.state == "found":
                break
        return Result(fault.name, tier, seen.state, seen.by, round(time.monotonic() - began))

    def try_tier(self, fault: Fault, tier: str, quick: Result | None) -> Iterator[Result]:
        """Yields what is new. `quick` is what the quick tier is known to have found."""
        if quick is None:
            quick = self.try_fault(fault, QUICK)
            yield quick
        if tier == ALL:
            yield replace(quick, tier=ALL, seconds=0) if quick.found else self.try_fault(fault, ALL)


def read_results(file: Path) -> list[Result]:
    """Those of faults that are still in the table."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    names = {fault.name for fault in FAULTS}
    return [result for line in lines if (result := Result(**json.loads(line))).fault in names]


def keep_result(result: Result, file: Path) -> None:
    with file.open("a", encoding="utf-8") as output:
        output.write(json.dumps(asdict(result)) + "\n")


def summarize(results: Sequence[Result]) -> str:
    found = {tier: {one.fault for one in results if one.tier == tier and one.found} for tier in SELECTED}
    tried = {tier: sum(one.tier == tier for one in results) for tier in SELECTED}
    lines = [f"{tier}: found {len(found[tier])}, tried {tried[tier]} of {len(FAULTS)}" for tier in SELECTED]
    lines += [f"{one.tier}: {one.state}: {one.fault} {one.by}" for one in results if not one.found]
    both = {one.fault for one in results if one.tier == QUICK} & found[ALL]
    if both:
        share = len(both & found[QUICK]) / len(both)
        lines.append(f"of those that all finds, quick finds {share:.0%} (wanted: {WANTED:.0%})")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", choices=sorted(SELECTED), default=QUICK)
    parser.add_argument("--only", default="", help="faults whose name holds this")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that one run of tests may take")
    parser.add_argument("--near", action="store_true", help="only the tests that a row names and those of its room")
    parser.add_argument("--results", type=Path, default=ROOT / ".cache" / "seeded_faults.jsonl")
    parser.add_argument("--check", action="store_true", help="only say which faults no longer apply")
    given = parser.parse_args()
    stale = list(list_stale_faults())
    if given.check or stale:
        print(*stale, f"{len(FAULTS)} faults, {len(stale)} do not apply", sep="\n")
        return 1 if stale else 0
    results = {(one.fault, one.tier): one for one in read_results(given.results)}
    left = [one for one in FAULTS if given.only in one.name and (one.name, given.tier) not in results]
    given.results.parent.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the tests that run are stopped, too
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        trial = Trial(copy, given.limit, near=given.near)
        for fault in left:
            for result in trial.try_tier(fault, given.tier, results.get((fault.name, QUICK))):
                print(
                    f"{result.tier:5} {result.state:11} {result.seconds:5} s  {result.fault}  {result.by}", flush=True
                )
                if result.found or not given.near:
                    keep_result(result, given.results)
    print(summarize(read_results(given.results)))
    return 0


def list_stale_faults() -> Iterator[str]:
    for fault in FAULTS:
        try:
            apply_fault(fault, ROOT)
        except ValueError as error:
            yield str(error)


if __name__ == "__main__":
    sys.exit(main())
