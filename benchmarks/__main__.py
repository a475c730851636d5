"""`make bench`: every benchmark, as a table for benchmarks/README.md."""

from app.cli.serve import tune_garbage_collection
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
    wires,
)
from benchmarks.results import describe_machine, run


def main() -> None:
    print(f"machine: {describe_machine()}; it runs the load generator too\n")
    for name, measure in (
        ("startup", startup.list_figures),
        ("scoring", scoring.measure),
        ("dispatch", dispatch.measure),
        ("wires", wires.measure),
        ("atropos", atropos.measure),
    ):
        run(name, measure)
        print()
    tune_garbage_collection()
    print("", *calls.report(calls.measure(), calls.slowest()), sep="\n")
    print("", *catalogue.report(catalogue.measure()), sep="\n")
    print("", *difficulty.report(difficulty.compare()), sep="\n")
    print()
    retrieval.main()
    judged = judging.measure()
    print(f"\n{judging.GROUPS} groups of {judging.GROUP_SIZE}, a judge of 1 s, {judging.CONCURRENCY} calls at once")
    print(f"  wall time / ideal of {judged.calls} calls {judged.factor:8.3f}   (at most 1.1 is wanted)")
    p99, most = (judged.lag(share) * 1e3 for share in (0.99, 1.0))
    print(f"  event loop late, p99 / most  {p99:.0f} / {most:.0f} ms   (at most 50 ms is wanted)")
    p99, most = (judged.own_lag(share) * 1e3 for share in (0.99, 1.0))
    print(f"  of that by its own CPU time  {p99:.0f} / {most:.0f} ms")
    print(f"  CPU per call                 {judged.cpu_seconds / judged.calls * 1e3:8.2f} ms")
    print("", *judge_calls.report(judge_calls.measure()), sep="\n")


if __name__ == "__main__":
    main()
