"""The base class of all kinds of instructions."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Self

from pydantic import TypeAdapter

from app.domain.values import Frozen
from app.envs.instruction_following.constraints.text_plan import TextPlan
from app.envs.instruction_following.constraints.text_units import ParsedText
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

WORDINGS: Final = read_packaged_data(Path(__file__).with_name("wordings.yaml"), TypeAdapter(dict[str, tuple[str, ...]]))
"""Ways of asking for each kind, with the fields of the instruction as `{slots}`."""


class Instruction(Frozen):
    """One kind of instruction. The fields of a subclass are its arguments, such as a number of words.

    Two kinds conflict if both claim the same thing (`claims`), or if one `bars` what the other claims or adds. Whether
    two kinds really fit is only known once a text follows both.
    """

    kind: str
    family: ClassVar[str]
    hard: ClassVar[bool] = False
    claims: ClassVar[frozenset[str]] = frozenset()
    adds: ClassVar[frozenset[str]] = frozenset()
    """Things that several kinds may add: `blocks` are lines that are not prose."""
    bars: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    @abstractmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        """An instruction that suits the request, as far as this is known before a text is written."""

    @abstractmethod
    def find_fault(self, reading: ParsedText) -> str:
        """How the reply breaks the instruction; empty if it follows it. Takes time linear in the reply."""

    @abstractmethod
    def apply_to(self, draft: TextPlan) -> None:
        """Adds to `draft` what makes its text follow the instruction."""

    def build_slots(self) -> Mapping[str, str | int]:
        """Values for the slots of a wording: each field; several words become a quoted list."""
        return {name: _format_slot(getattr(self, name)) for name in type(self).model_fields if name != "kind"}

    def phrase_request(self, draws: SeededRandom) -> str:
        return draws.one(WORDINGS[self.kind]).format_map(self.build_slots())


def is_conflict(one: type[Instruction], other: type[Instruction]) -> bool:
    return bool(
        one.claims & other.claims
        or one.bars & (other.claims | other.adds)
        or other.bars & (one.claims | one.adds)
        or one is other
    )


def format_count(number: int, noun: str) -> str:
    """`1 word`, `3 words`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _format_slot(value: object) -> str | int:
    if isinstance(value, tuple):
        return ", ".join(f'"{word}"' for word in value)
    return value if isinstance(value, int) else str(value)
