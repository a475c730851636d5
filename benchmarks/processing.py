"""`make soak`: 10,000 groups through `process`, while it and the policy's server are killed and started again.

`python -m benchmarks.processing [GROUPS]` sends another number of them.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.results import read_arguments
from tests.support.interrupted_processing import interrupted

GROUPS = 10_000
MOST_SECONDS = 3_600.0


def main(groups: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        options = ("--group-size", "4", "--concurrency", "16", "--lease-seconds", "60")
        done = interrupted(Path(folder), groups, *options, down_seconds=5.0, most_seconds=MOST_SECONDS)
    tasks = Counter(line.task_id for line in done.lines)
    doubled = sum(count - 1 for count in tasks.values())
    print(f"{groups} groups of 4 in {done.seconds:.0f} s, start of the gateway included; exit code {done.exit_code}")
    print(f"  policy's server killed after {done.at_policy_kill} groups, `process` after {done.at_kill}")
    print(f"  tasks in the output: {len(tasks)}; missing: {groups - len(tasks)}; twice: {doubled}")
    right = done.exit_code == 0 and len(tasks) == groups and doubled == 0
    print("each task exactly once" if right else f"WRONG\n{done.told}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(int(next(iter(read_arguments()), GROUPS))))
