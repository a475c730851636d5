"""Assignments: a request with compatible instructions, proved by a text that follows all of them."""

from collections.abc import Sequence
from typing import Final

from app.domain.values import Frozen
from app.envs.instruction_following.constraints.drafts import Draft
from app.envs.instruction_following.constraints.instruction import Instruction, conflict
from app.envs.instruction_following.constraints.kinds import KINDS, AnyInstruction
from app.envs.instruction_following.constraints.reading import Reading, read
from app.envs.instruction_following.constraints.requests import Request, drawn_request
from app.envs.instruction_following.constraints.substance import lacking
from app.toolkit.seeded import Draws

_TEXTS: Final = 4
"""Texts tried for a combination before another one is drawn."""
ROOM: Final = 45
"""Words that a gold text may have beyond the minimum, unless a length is asked for."""


class Assignment(Frozen):
    request: Request
    instructions: tuple[AnyInstruction, ...]
    asked: tuple[str, ...]
    """The instructions in words, in the same order."""
    gold: str = ""
    """A text that follows all of them."""

    @property
    def identity(self) -> str:
        """Equal for assignments that accept the same replies."""
        return self.model_dump_json(include={"request", "instructions"})


def drawn_assignment(draws: Draws, count: int, hard: int) -> Assignment:
    """`count` instructions without declared conflicts, `hard` of them of a hard kind; without a gold text."""
    request, chosen = drawn_request(draws), list[type[Instruction]]()
    while len(chosen) < count:
        chosen = _kinds(draws, count, hard)
    instructions = tuple(kind.drawn(draws, request) for kind in chosen)
    asked = tuple(instruction.asked(draws) for instruction in instructions)
    return Assignment(request=request, instructions=instructions, asked=asked)


def proved(assignment: Assignment, draws: Draws, prompt: str) -> Assignment | None:
    """Adds a gold text; None if none of a few texts follows all instructions. `prompt` is all that could be copied."""
    for _ in range(_TEXTS):
        request = assignment.request
        draft = Draft(request, words=(request.least + 12, request.least + ROOM))
        for instruction in assignment.instructions:
            instruction.shape(draft)
        reading = read(draft.written(draws))
        if not lacking(reading, request, prompt) and not any(faults(reading, assignment.instructions)):
            return assignment.model_copy(update={"gold": reading.raw})
    return None


def faults(reading: Reading, instructions: Sequence[Instruction]) -> tuple[str, ...]:
    """One fault per instruction; empty if it is followed."""
    return tuple(instruction.fault(reading) for instruction in instructions)


def _kinds(draws: Draws, count: int, hard: int) -> list[type[Instruction]]:
    chosen: list[type[Instruction]] = []
    for wanted, of_these in ((hard, True), (count, False)):
        for kind in draws.shuffled([kind for kind in KINDS.values() if kind.hard == of_these]):
            if len(chosen) < wanted and not any(conflict(kind, other) for other in chosen):
                chosen.append(kind)
    return draws.shuffled(chosen)
