"""`make bench`: the benchmarks that need nothing else and take minutes. `python -m benchmarks [--record]`

`--record` keeps what was measured in `benchmarks/results`. Atropos' own API is left out unless `make bench-peers` has
installed it, and GSM8K itself unless ATROPOS_ENVS_DATASETS__GSM8K names a folder with `train.jsonl` and `test.jsonl`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchmarks import atropos, dispatch, judging, scoring, startup, step
from benchmarks.results import BenchmarkFigure, describe_machine, read_arguments, run

BENCHMARKS: Final[Mapping[str, Callable[[], Sequence[BenchmarkFigure]]]] = {
    "startup": startup.measure,
    "scoring": scoring.measure,
    "dispatch": dispatch.measure,
    "step": step.measure,
    "atropos": atropos.measure,
    "judging": judging.measure,
}

if __name__ == "__main__":
    arguments = read_arguments()
    print(f"machine: {describe_machine()}; it runs the load generator too\n")
    for name, measure in BENCHMARKS.items():
        run(name, measure, arguments)
