"""Faults of one line each, and which tier of the tests finds them: `python -m benchmarks.seeded_faults --tier quick`.

One at a time is put into a copy of the checkout. The tests of its own room run first, and where these find nothing, all
of the tier. What was found is kept in a file, so that the next start goes on. `--check` says which no longer apply."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.fault_table import FAULTS, Fault

ROOT: Final = Path(__file__).resolve().parents[1]
LEFT_OUT: Final = shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", ".*_cache", ".hypothesis", "*.db*")
TIERS: Final = {
    "quick": ["--hypothesis-profile=quick", "-m", "not slow"],
    "all": ["--hypothesis-profile=all"],
}
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


def seeded(fault: Fault, checkout: Path) -> str:
    """The text of the file with the fault in it. ValueError when it does not apply."""
    text = (checkout / fault.file).read_text(encoding="utf-8") if (checkout / fault.file).is_file() else ""
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: the text is there {text.count(fault.old)} times")
    return text.replace(fault.old, fault.new)


def selections(fault: Fault) -> Iterator[list[str]]:
    """Of tests: those of the room, those that every environment must pass, all."""
    room = Path("tests", *Path(fault.file).parts[1:-1])
    while not (ROOT / room).is_dir():
        room = room.parent
    if room != Path("tests"):
        yield [str(room)]
    if fault.file.startswith("app/envs/"):
        yield ["tests/envs/test_environments.py", "tests/envs/test_verifiers.py", "-k", room.name]
    yield ["-n", "auto", "--dist", "loadgroup", "--ignore=tests/trainers"]


def first_failure(copy: Path, arguments: Sequence[str]) -> str:
    """The test that fails first, or that nothing can be collected; empty when all pass."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-x", "-rfE", *arguments]
    ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode in (0, NO_TESTS):
        return ""
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0] if lines else f"pytest left with {ran.returncode}: {ran.stdout[-300:]}{ran.stderr[-300:]}"


class Tests:
    """Of one tier, in a copy of the checkout. RuntimeError where they fail without a fault: then they find nothing."""

    def __init__(self, tier: str, copy: Path) -> None:
        self.tier = tier
        self.copy = copy
        self._sound: set[tuple[str, ...]] = set()

    def ensure_sound(self, selection: Sequence[str]) -> None:
        if tuple(selection) not in self._sound:
            if failed := first_failure(self.copy, [*selection, *TIERS[self.tier]]):
                raise RuntimeError(f"without a fault: {failed}")
            self._sound.add(tuple(selection))

    def finding(self, fault: Fault, selection: Sequence[str]) -> str:
        self.ensure_sound(selection)
        file = self.copy / fault.file
        whole = file.read_text(encoding="utf-8")
        file.write_text(seeded(fault, self.copy), encoding="utf-8")
        try:
            return first_failure(self.copy, [*selection, *TIERS[self.tier]])
        finally:
            file.write_text(whole, encoding="utf-8")


def tried(fault: Fault, tests: Tests) -> Result:
    began = time.monotonic()
    by = next((said for one in selections(fault) if (said := tests.finding(fault, one))), "")
    return Result(fault.name, tests.tier, bool(by), by, round(time.monotonic() - began))


def kept(file: Path) -> list[Result]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [Result(**json.loads(line)) for line in lines]


def told(results: Sequence[Result]) -> str:
    found = {tier: {one.fault for one in results if one.tier == tier and one.found} for tier in TIERS}
    lines = [f"{tier}: found {len(found[tier])} of {sum(one.tier == tier for one in results)}" for tier in TIERS]
    both = {one.fault for one in results if one.tier == "quick"} & found["all"]
    if both:
        share = len(both & found["quick"]) / len(both)
        lines.append(f"of those that all finds, quick finds {share:.0%} (wanted: {WANTED:.0%})")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", choices=sorted(TIERS), default="quick")
    parser.add_argument("--only", default="", help="faults whose name holds this")
    parser.add_argument("--results", type=Path, default=ROOT / ".cache" / "seeded_faults.jsonl")
    parser.add_argument("--check", action="store_true", help="only say which faults no longer apply")
    given = parser.parse_args()
    stale = list(complaints())
    if given.check or stale:
        print(*stale, f"{len(FAULTS)} faults, {len(stale)} do not apply", sep="\n")
        return 1 if stale else 0
    done = {(one.fault, one.tier) for one in kept(given.results)}
    left = [one for one in FAULTS if given.only in one.name and (one.name, given.tier) not in done]
    given.results.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        tests = Tests(given.tier, copy)
        for fault in left:
            result = tried(fault, tests)
            with given.results.open("a", encoding="utf-8") as output:
                output.write(json.dumps(asdict(result)) + "\n")
            print(
                f"{'found' if result.found else 'MISSED':7} {result.seconds:5} s  {fault.name}  {result.by}", flush=True
            )
    print(told(kept(given.results)))
    return 0


def complaints() -> Iterator[str]:
    for fault in FAULTS:
        try:
            seeded(fault, ROOT)
        except ValueError as error:
            yield str(error)


if __name__ == "__main__":
    sys.exit(main())
