"""Faults of one line each, and which tier of the tests finds them: `python -m benchmarks.seeded_faults --tier quick`.

One at a time is put into a copy of the checkout. The tests of its own room run first, and where these find nothing, all
of the tier. What quick finds, all finds too, since it begins with the same tests: of the others, all runs what it has
beyond quick. What was found is kept in a file, so that the next start goes on. `--check` says which no longer apply."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.fault_table import FAULTS, Fault

ROOT: Final = Path(__file__).resolve().parents[1]
LEFT_OUT: Final = shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", ".*_cache", ".hypothesis", "*.db*")
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


@dataclass(frozen=True)
class Result:
    fault: str
    tier: str
    found: bool
    by: str
    seconds: int


def apply_fault(fault: Fault, checkout: Path) -> str:
    """Returns the text of the file with the fault in it. ValueError when it does not apply."""
    text = (checkout / fault.file).read_text(encoding="utf-8") if (checkout / fault.file).is_file() else ""
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: the text is there {text.count(fault.old)} times")
    return text.replace(fault.old, fault.new)


def list_selections(fault: Fault) -> Iterator[list[str]]:
    """The tests of the room, those that every environment must pass, all."""
    room = Path("tests", *Path(fault.file).parts[1:-1])
    while not (ROOT / room).is_dir():
        room = room.parent
    if room != Path("tests"):
        yield [str(room)]
    if fault.file.startswith("app/envs/"):
        yield ["tests/envs/test_environments.py", "tests/envs/test_verifiers.py", "-k", room.name]
    yield ["-n", "auto", "--dist", "loadgroup", "--ignore=tests/trainers"]


def find_first_failure(copy: Path, arguments: Sequence[str]) -> str:
    """Returns the test that fails first, or that nothing can be collected; empty when all pass."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-x", "-rfE", *arguments]
    ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode in (0, NO_TESTS):
        return ""
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0] if lines else f"pytest left with {ran.returncode}: {ran.stdout[-300:]}{ran.stderr[-300:]}"


class Trial:
    """Runs tests in a copy of the checkout. RuntimeError where they fail without a fault: then they find nothing."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._sound: set[tuple[str, ...]] = set()

    def ensure_sound(self, arguments: Sequence[str]) -> None:
        if tuple(arguments) not in self._sound:
            if failure := find_first_failure(self._copy, arguments):
                raise RuntimeError(f"without a fault: {failure}")
            self._sound.add(tuple(arguments))

    def find_failure(self, fault: Fault, arguments: Sequence[str]) -> str:
        self.ensure_sound(arguments)
        file = self._copy / fault.file
        whole = file.read_text(encoding="utf-8")
        file.write_text(apply_fault(fault, self._copy), encoding="utf-8")
        try:
            return find_first_failure(self._copy, arguments)
        finally:
            file.write_text(whole, encoding="utf-8")

    def try_fault(self, fault: Fault, tier: str) -> Result:
        began = time.monotonic()
        runs = ([*selection, *SELECTED[tier]] for selection in list_selections(fault))
        by = next((failure for arguments in runs if (failure := self.find_failure(fault, arguments))), "")
        return Result(fault.name, tier, bool(by), by, round(time.monotonic() - began))

    def try_tier(self, fault: Fault, tier: str, quick: Result | None) -> Iterator[Result]:
        """Yields what is new. `quick` is what the quick tier is known to have found."""
        if quick is None:
            quick = self.try_fault(fault, QUICK)
            yield quick
        if tier == ALL:
            yield replace(quick, tier=ALL, seconds=0) if quick.found else self.try_fault(fault, ALL)


def read_results(file: Path) -> list[Result]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [Result(**json.loads(line)) for line in lines]


def keep_result(result: Result, file: Path) -> None:
    with file.open("a", encoding="utf-8") as output:
        output.write(json.dumps(asdict(result)) + "\n")
    verdict = "found" if result.found else "MISSED"
    print(f"{result.tier:5} {verdict:7} {result.seconds:5} s  {result.fault}  {result.by}", flush=True)


def summarize(results: Sequence[Result]) -> str:
    found = {tier: {one.fault for one in results if one.tier == tier and one.found} for tier in SELECTED}
    lines = [f"{tier}: found {len(found[tier])} of {sum(one.tier == tier for one in results)}" for tier in SELECTED]
    both = {one.fault for one in results if one.tier == QUICK} & found[ALL]
    if both:
        share = len(both & found[QUICK]) / len(both)
        lines.append(f"of those that all finds, quick finds {share:.0%} (wanted: {WANTED:.0%})")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", choices=sorted(SELECTED), default=QUICK)
    parser.add_argument("--only", default="", help="faults whose name holds this")
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
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        trial = Trial(copy)
        for fault in left:
            for result in trial.try_tier(fault, given.tier, results.get((fault.name, QUICK))):
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
