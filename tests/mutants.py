"""What share of planted faults the tests find, in ten modules that decide money and truth: `make mutants`, once a week.

mutmut changes one thing in one function at a time (a mutant) and runs the tests that come by there; `[tool.mutmut]` in
pyproject.toml names the modules and the folders of tests. All mutants take hours. `--share 0.1` tries a tenth, always
the same tenth: a digest of its name says whether a mutant is in. `mutmut results` lists what nothing has found.

Not mutated is what is no function (patterns, word lists, limits), and what is decorated (properties, validators,
whatever is cached). What only other processes run is told as `no tests`. A mutant that changes nothing survives."""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name

COPY: Final = Path("mutants")
"""Where mutmut puts what it mutates, with all that the tests need, and its verdicts."""
FOUND: Final = ("killed", "timeout")
"""A test failed, or the tests did not end any more."""
STATES: Final = (*FOUND, "survived", "no tests")
NOT_RUN: Final = 255
"""What a copy ends with that could not run its tests; mutmut takes it for one whose tests did not end."""


@dataclass(frozen=True)
class Mutant:
    module: str
    state: str


def is_in_share(name: str, share: float) -> bool:
    """A larger share holds every smaller one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") < share * 2**32


def list_mutants(modules: Iterable[str]) -> Iterator[str]:
    for module in modules:
        mutated = mutate_file_contents(module, Path(module).read_text(encoding="utf-8"))
        yield from (get_mutant_name(Path(module), one) for one in mutated.mutant_names)


def read_verdicts(modules: Iterable[str]) -> Iterator[Mutant]:
    """Of what mutmut has tried."""
    for module in modules:
        kept = SourceFileMutationData(path=module)
        kept.load()
        codes = (code for code in kept.exit_code_by_key.values() if code is not None)
        yield from (Mutant(module, "not run" if code == NOT_RUN else status_by_exit_code[code]) for code in codes)


def run_mutmut(names: Iterable[str], workers: int) -> None:
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(workers), *names]
    if (ended := subprocess.run(command)).returncode != 0:
        sys.exit(ended.returncode)


def format_table(mutants: Sequence[Mutant]) -> Iterator[str]:
    yield f"| module | mutants | {' | '.join(STATES)} | other | found |"
    yield f"| --- |{' ---: |' * (len(STATES) + 3)}"
    modules = dict.fromkeys(one.module for one in mutants)
    for module in modules:
        yield _format_row(f"`{module}`", [one for one in mutants if one.module == module])
    yield _format_row(f"all {len(modules)}", mutants)


def _format_row(title: str, mutants: Sequence[Mutant]) -> str:
    counts = Counter(one.state for one in mutants)
    shown = [counts[state] for state in STATES]
    found = sum(counts[state] for state in FOUND) / max(1, len(mutants))
    return f"| {title} | {' | '.join(map(str, [len(mutants), *shown, len(mutants) - sum(shown)]))} | {found:.1%} |"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    modules = config().only_mutate
    present = [*list_mutants(modules)]
    shutil.rmtree(COPY, ignore_errors=True)
    run_mutmut([name for name in present if is_in_share(name, options.share)], options.workers)
    tried = [*read_verdicts(modules)]
    lines = [*format_table(tried), "", f"{len(tried)} of {len(present)} mutants were tried."]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    main(sys.argv[1:])
