"""What share of planted faults the tests find, in ten modules that decide money and truth: `make mutants`, once a week.

mutmut changes one thing in one function at a time (a mutant) and runs the tests that come by there; `[tool.mutmut]` in
pyproject.toml names the modules and the folders of tests. All mutants take hours. `--share 0.1` tries a tenth, always
the same tenth: a digest of its name says whether a mutant is in. `--keep FILE` keeps what became of each. `--like FILE`
tries those of an earlier run again, but for functions that have changed, names those that nothing finds any more, and
fails where fewer are found. `--go-on` takes up a run that was stopped.

Not mutated is what is no function (patterns, word lists, limits), and what is decorated (properties, validators,
whatever is cached). What only other processes run is told as `no tests`. A mutant that changes nothing survives."""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name, mangled_name_from_mutant_name

COPY: Final = Path("mutants")
"""Where mutmut puts what it mutates, with all that the tests need, and its verdicts."""
FOUND: Final = ("killed", "timeout")
"""A test failed, or the tests did not end any more."""
STATES: Final = (*FOUND, "survived", "no tests")


@dataclass(frozen=True)
class Mutant:
    module: str
    function_digest: str
    """Of the code that was mutated: where it has changed, the mutant of this name is another."""
    state: str = "not checked"

    @property
    def is_found(self) -> bool:
        return self.state in FOUND


NOT_RUN: Final = 255
"""What a copy ends with that could not run its tests; mutmut takes it for one whose tests did not end."""
Mutants = Mapping[str, Mutant]
"""By their names, which say the function and a number in it."""


def is_in_share(name: str, share: float) -> bool:
    """A larger share holds every smaller one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") < share * 2**32


def list_mutants(modules: Iterable[str]) -> dict[str, Mutant]:
    listed = {}
    for module in modules:
        mutated = mutate_file_contents(module, Path(module).read_text(encoding="utf-8"))
        for name in (get_mutant_name(Path(module), one) for one in mutated.mutant_names):
            listed[name] = Mutant(module, mutated.hash_by_function_name[_get_function(name)])
    return listed


def _get_function(name: str) -> str:
    return mangled_name_from_mutant_name(name).rpartition(".")[2]


def read_verdicts(modules: Iterable[str]) -> dict[str, Mutant]:
    """Of what mutmut has tried so far."""
    read = {}
    for module in modules:
        kept = SourceFileMutationData(path=module)
        kept.load()
        for name, code in kept.exit_code_by_key.items():
            if code is not None:
                digest = kept.hash_by_function_name[_get_function(name)]
                read[name] = Mutant(module, digest, "not run" if code == NOT_RUN else status_by_exit_code[code])
    return read


def run_mutmut(names: Iterable[str], workers: int) -> None:
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(workers), *names]
    if (ended := subprocess.run(command)).returncode != 0:
        sys.exit(ended.returncode)


def format_table(mutants: Mutants) -> Iterator[str]:
    yield f"| module | mutants | {' | '.join(STATES)} | other | found |"
    yield f"| --- |{' ---: |' * (len(STATES) + 3)}"
    modules = dict.fromkeys(one.module for one in mutants.values())
    for module in modules:
        yield _format_row(f"`{module}`", [one for one in mutants.values() if one.module == module])
    yield _format_row(f"all {len(modules)}", list(mutants.values()))


def _format_row(title: str, mutants: Sequence[Mutant]) -> str:
    counts = Counter(one.state for one in mutants)
    shown = [counts[state] for state in STATES]
    return (
        f"| {title} | {' | '.join(map(str, [len(mutants), *shown, len(mutants) - sum(shown)]))} | {rate(mutants):.1%} |"
    )


def rate(mutants: Iterable[Mutant]) -> float:
    found = [one.is_found for one in mutants]
    return sum(found) / len(found) if found else 0.0


def compare(earlier: Mutants, now: Mutants) -> Iterator[str]:
    """Both have the same mutants."""
    yield f"Found before {rate(earlier.values()):.1%}, now {rate(now.values()):.1%}."
    lost = sorted(name for name, one in earlier.items() if one.is_found and not now[name].is_found)
    gained = sum(now[name].is_found and not one.is_found for name, one in earlier.items())
    yield f"Not found any more: {len(lost)}; found for the first time: {gained}. `mutmut show NAME` shows one."
    yield from (f"- {name}: {now[name].state}" for name in lost)


def load(path: Path) -> dict[str, Mutant]:
    return {name: Mutant(**one) for name, one in json.loads(path.read_text(encoding="utf-8")).items()}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--like", type=Path, help="a file that --keep wrote")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--go-on", action="store_true")
    options = parser.parse_args(arguments)
    modules = config().only_mutate
    present = list_mutants(modules)
    earlier = load(options.like) if options.like else {}
    same = {name: one for name, one in earlier.items() if _is_same(one, present.get(name))}
    wanted = same if options.like else {name for name in present if is_in_share(name, options.share)}
    if not options.go_on:
        shutil.rmtree(COPY, ignore_errors=True)
    tried = read_verdicts(modules)
    if untried := [name for name in wanted if name not in tried]:
        run_mutmut(untried if len(wanted) < len(present) else (), options.workers)
    now = {name: one for name, one in read_verdicts(modules).items() if name in wanted}
    if options.keep:
        told = {name: asdict(one) for name, one in now.items()}
        options.keep.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    lines = [*format_table(now), "", f"{len(now)} of {len(present)} mutants were tried."]
    if len(same) < len(earlier):
        lines.append(f"Left out of {len(earlier)}, since their functions have changed: {len(earlier) - len(same)}.")
    before = {name: same[name] for name in now} if options.like else {}
    lines += compare(before, now) if before else ()
    sys.stdout.write("\n".join(lines) + "\n")
    return int(rate(now.values()) < rate(before.values()))


def _is_same(one: Mutant, other: Mutant | None) -> bool:
    return other is not None and other.function_digest == one.function_digest


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    sys.exit(main(sys.argv[1:]))
