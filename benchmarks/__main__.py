"""`make bench`: the benchmarks that need nothing else and take minutes."""

from app.cli.serving import tune_garbage_collection
from benchmarks import (
    atropos,
    calls,
    catalogue,
    difficulty,
    dispatch,
    judge_calls,
    judging,
    long_completions,
    processes,
    retrieval,
    scoring,
    startup,
    talk,
    wires,
)
from benchmarks.results import describe_machine, read_arguments, run


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
    print("", f"{judging.GROUPS} groups of {judging.GROUP_SIZE}", *judging.report([judging.measure()]), sep="\n")
    print("", *judge_calls.report(judge_calls.measure()), sep="\n")
    print()
    talk.main()
    print()
    long_completions.main()
    print()
    processes.main()


if __name__ == "__main__":
    read_arguments()
    main()
