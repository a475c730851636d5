"""Routes that take one sample a request, beside `score` with the same groups of eight, each group a request: rewards a
second and processor time per sample, in turns. `python -m benchmarks.wires [--record]` takes half a minute.

The same 64 samples are under way at once on each wire, as slime's pool sends them: eight groups, or 64 single samples.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from benchmarks.load import post, send_all
from benchmarks.results import BenchmarkFigure, count_rounds, run
from benchmarks.scoring import ENV, GROUP_SIZE, Batch, build_batches
from benchmarks.server_trees import read_processor_seconds
from tests.support.serving import Served, serving

ROUNDS = 5
GROUPS_A_ROUND = 24
SAMPLES_AT_ONCE = 64


@dataclass(frozen=True)
class Wire:
    name: str
    build: Callable[[Batch], list[bytes]]
    connections: int = SAMPLES_AT_ONCE


@dataclass(frozen=True)
class Turn:
    samples_per_second: float
    processor_ms: float
    """Of one sample."""


def measure() -> list[BenchmarkFigure]:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), python=sys.executable) as gateway:
        turns: list[dict[str, Turn]] = []
        batches = build_batches(gateway.url, (ROUNDS + 1) * len(WIRES) * GROUPS_A_ROUND, 1)
        for _ in count_rounds("wires", ROUNDS + 1):
            turns.append(
                {wire.name: _take_turn(gateway, wire, [next(batches) for _ in range(GROUPS_A_ROUND)]) for wire in WIRES}
            )
    return list(_list_figures(turns[1:]))


def _take_turn(gateway: Served, wire: Wire, batches: Sequence[Batch]) -> Turn:
    requests = [request for batch in batches for request in wire.build(batch)]
    before = read_processor_seconds(gateway.process.pid)
    load = send_all(gateway.url, requests, wire.connections)
    used = read_processor_seconds(gateway.process.pid) - before
    samples = len(batches) * GROUP_SIZE
    return Turn(samples / load.seconds, used / samples * 1e3)


def _list_figures(turns: Sequence[dict[str, Turn]]) -> list[BenchmarkFigure]:
    native = WIRES[0].name
    found = []
    for wire in WIRES:
        mine = [turn[wire.name] for turn in turns]
        found.append(BenchmarkFigure.of(f"{wire.name}: rewards", [one.samples_per_second for one in mine], "a second"))
        found.append(
            BenchmarkFigure.of(f"{wire.name}: processor time of a sample", [one.processor_ms for one in mine], "ms")
        )
        if wire.name != native:
            rates = [turn[wire.name].samples_per_second / turn[native].samples_per_second for turn in turns]
            found.append(BenchmarkFigure.of(f"{wire.name}: rewards over those of `score`", rates, at_least=0.5))
            used = [turn[native].processor_ms / turn[wire.name].processor_ms for turn in turns]
            found.append(BenchmarkFigure.of(f"{wire.name}: the same by processor time", used))
    return found


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
