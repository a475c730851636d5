"""`make bench`: every benchmark, as a table for benchmarks/README.md."""

import os
import platform
import sqlite3

from app.cli.serving import tune_garbage_collection
from benchmarks import (
    atropos,
    calls,
    catalogue,
    difficulty,
    dispatch,
    judge_calls,
    judging,
    retrieval,
    scoring,
    startup,
)


def main() -> None:
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    print(f"machine: {os.cpu_count()} x {_processor()}, {versions}; it runs the load generator too\n")
    started = startup.measure()
    print("start of the process to /readyz")
    print(f"  first, with migration        {started.first_seconds:8.2f} s   (at most 3 s are wanted)")
    print(f"  again                        {started.again_seconds:8.2f} s\n")
    scored = scoring.compare()
    print("durable GSM8K scoring, groups of 8, 16 groups a request")
    print(f"  gateway over HTTP            {scored.gateway_groups_per_second:8.0f} groups/s")
    print(f"  grader + raw sqlite3 inserts {scored.limit_groups_per_second:8.0f} groups/s")
    print(f"  ratio                        {scored.ratio:8.3f}   (at least 0.25 is wanted)")
    p50, p99 = (scored.load.percentile(share) * 1e3 for share in (0.5, 0.99))
    print(f"  request p50 / p99            {p50:.1f} / {p99:.1f} ms\n")
    print(*dispatch.report(), sep="\n")
    tune_garbage_collection()
    print("", *calls.report(calls.measure(), calls.slowest()), sep="\n")
    print("", *catalogue.report(catalogue.measure()), sep="\n")
    print("", *difficulty.report(difficulty.compare()), sep="\n")
    print()
    atropos.report()
    print()
    retrieval.main()
    print("", f"{judging.GROUPS} groups of {judging.GROUP_SIZE}", *judging.report([judging.measure()]), sep="\n")
    print("", *judge_calls.report(judge_calls.measure()), sep="\n")


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as info:  # noqa: PTH123
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
