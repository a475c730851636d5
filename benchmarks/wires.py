"""Routes that take one sample a request, beside `score` with the same groups of eight, each group a request: rewards a
second and processor time per sample, in turns. `python -m benchmarks.wires [--record]` takes half a minute.

The same 64 samples are under way at once on each wire, as slime's pool sends them: eight groups, or 64 single samples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from benchmarks.load import post
from benchmarks.results import BenchmarkFigure, count_rounds, run
from benchmarks.scoring import ENV, GROUP_SIZE, Batch, build_batches
from benchmarks.servers import send_measured, serving_gateway
from tests.support.serving import Served

ROUNDS = 5
GROUPS_A_ROUND = 24
SAMPLES_AT_ONCE = 64


@dataclass(frozen=True)
class Wire:
    name: str
    build: Callable[[Batch], list[bytes]]
    connections: int = SAMPLES_AT_ONCE


def measure() -> list[BenchmarkFigure]:
    with serving_gateway() as gateway:
        batches = build_batches(gateway.url, (ROUNDS + 1) * len(WIRES) * GROUPS_A_ROUND, 1)
        turns = [
            {wire.name: _take_turn(gateway, wire, [next(batches) for _ in range(GROUPS_A_ROUND)]) for wire in WIRES}
            for _ in count_rounds("wires", ROUNDS + 1)
        ]
    return list(_list_figures(turns[1:]))


def _take_turn(gateway: Served, wire: Wire, batches: Sequence[Batch]) -> tuple[float, float]:
    """Samples a second, and milliseconds of the processor for each."""
    requests = [request for batch in batches for request in wire.build(batch)]
    load, used = send_measured(gateway.url, gateway.process.pid, requests, wire.connections)
    samples = len(batches) * GROUP_SIZE
    return samples / load.seconds, used / samples * 1e3


def _list_figures(turns: Sequence[dict[str, tuple[float, float]]]) -> Iterator[BenchmarkFigure]:
    rates, used = ({wire.name: [turn[wire.name][place] for turn in turns] for wire in WIRES} for place in (0, 1))
    native = WIRES[0].name
    for name in rates:
        yield BenchmarkFigure.of(name, rates[name], column="rewards a second")
        yield BenchmarkFigure.of(name, used[name], "ms", column="processor time of a sample")
        if name != native:
            rewards = [one / other for one, other in zip(rates[name], rates[native], strict=True)]
            yield BenchmarkFigure.of(name, rewards, at_least=0.5, column="rewards over those of `score`")
            spent = [other / one for one, other in zip(used[name], used[native], strict=True)]
            yield BenchmarkFigure.of(name, spent, column="by processor time")


def _ask_natively(batch: Batch) -> list[bytes]:
    (task,), (group,) = batch.task_ids, batch.completions
    asked: list[JsonValue] = [{"task_id": task, "completions": [{"text": one.text} for one in group]}]
    return [post(f"/envs/{ENV}/score", {"groups": asked, "run": "bench", "policy": {"model": "bench"}})]


def _ask_as_slime(batch: Batch) -> list[bytes]:
    (task,), (group,) = batch.task_ids, batch.completions
    path = f"/compat/slime/{ENV}?run=bench&group_size={GROUP_SIZE}&model=bench"
    return [post(path, {"prompt": "", "response": one.text, "label": task}) for one in group]


def _ask_as_openrlhf(batch: Batch) -> list[bytes]:
    (task,), (group,) = batch.task_ids, batch.completions
    path = f"/compat/openrlhf/{ENV}/get_reward?run=bench&group_size={GROUP_SIZE}&model=bench"
    return [post(path, {"query": [one.text], "prompts": [""], "labels": [task]}) for one in group]


WIRES = (
    Wire("`score`, a group a request", _ask_natively, SAMPLES_AT_ONCE // GROUP_SIZE),
    Wire("`/compat/slime`", _ask_as_slime),
    Wire("`/compat/openrlhf`", _ask_as_openrlhf),
)

if __name__ == "__main__":
    run("wires", measure)
