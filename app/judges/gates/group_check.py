"""Runs all gates on the candidates of a group."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.judging import Case, GateFacts
from app.judges.gates.gate_registry import GATES, Gate, add_rubric_text, find_failed_gates, find_hints
from app.judges.limits import take_turn_at_gates
from app.judges.text_normalisation import Reply
from app.toolkit.large_texts import run_in_turn

_MOST_GATED_ON_LOOP: Final = 50_000
"""Largest group, in characters, that the gates check on the event loop."""
_SECONDS_PER_PASS: Final = 0.002
"""Replies that take less together are checked in one pass of the event loop: a pass takes as long as a gate."""


@dataclass(frozen=True)
class GateResult:
    """Gate results of one candidate, or of all with the same text. `own` is the model's own part of a transcript."""

    failed: tuple[Gate, ...]
    hints: tuple[Gate, ...]
    own: str = ""


def group_passed(seen: Sequence[str], noticed: Sequence[GateResult]) -> Mapping[str, GateResult]:
    """By text, the candidates that passed all gates. Equal transcripts may consist of different lines: their hints and
    own texts are merged."""
    alike: defaultdict[str, list[GateResult]] = defaultdict(list)
    for text, each in zip(seen, noticed, strict=True):
        if not each.failed:
            alike[text].append(each)
    return {
        text: GateResult(
            (),
            tuple(sorted({hint for each in listed for hint in each.hints}, key=GATES.index)),
            "\n".join(sorted({each.own for each in listed})),
        )
        for text, listed in alike.items()
    }


async def run_gates_on_case(case: Case) -> Sequence[GateResult]:
    """Checks candidates for some milliseconds per pass of the event loop, or a large group in a thread."""
    if (
        sum(map(len, case.candidates)) + sum(len(line.text) for lines in case.lines for line in lines)
        > _MOST_GATED_ON_LOOP
    ):
        return await run_in_turn(
            "judges", lambda: [_run_gates_on_lines(lines, case) for lines in _iterate_gate_inputs(case)]
        )
    noticed = []
    async with take_turn_at_gates():
        began = time.perf_counter()
        for lines in _iterate_gate_inputs(case):
            if time.perf_counter() - began > _SECONDS_PER_PASS:
                await asyncio.sleep(0)
                began = time.perf_counter()
            noticed.append(_run_gates_on_lines(lines, case))
    return noticed


def _iterate_gate_inputs(case: Case) -> Iterator[Sequence[tuple[str, GateFacts]]]:
    """Per candidate the texts for the gates, with their facts. A failure or hint in one line of an episode counts for
    the whole episode."""
    if case.lines:
        for lines in case.lines:
            yield [(line.text, add_rubric_text(line.gates, case.rubric)) for line in lines]
    else:
        facts = add_rubric_text(case.gates, case.rubric)
        yield from ([(text, facts)] for text in case.candidates)


def _run_gates_on_lines(lines: Sequence[tuple[str, GateFacts]], case: Case) -> GateResult:
    read = [(Reply(text), facts) for text, facts in lines]
    failed = tuple(dict.fromkeys(gate for reply, facts in read for gate in find_failed_gates(reply, facts)))
    if failed:
        return GateResult(failed, ())
    own = "\n".join(reply.visible for reply, _ in read) if case.lines else ""
    return GateResult((), tuple(dict.fromkeys(gate for reply, facts in read for gate in find_hints(reply, facts))), own)
