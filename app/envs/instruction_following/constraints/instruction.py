"""The base class of all kinds of instructions."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Self

from pydantic import TypeAdapter

from app.domain.values import Frozen
from app.envs.instruction_following.constraints.drafts import Draft
from app.envs.instruction_following.constraints.reading import Reading
from app.envs.instruction_following.constraints.requests import Request
from app.toolkit.package_data import packaged_data
from app.toolkit.seeded import Draws

WORDINGS: Final = packaged_data(Path(__file__).with_name("wordings.yaml"), TypeAdapter(dict[str, tuple[str, ...]]))
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
    def drawn(cls, draws: Draws, request: Request) -> Self:
        """An instruction that suits the request, as far as this is known before a text is written."""

    @abstractmethod
    def fault(self, reading: Reading) -> str:
        """How the reply breaks the instruction; empty if it follows it. Takes time linear in the reply."""

    @abstractmethod
    def shape(self, draft: Draft) -> None:
        """Adds to `draft` what makes its text follow the instruction."""

    def slots(self) -> Mapping[str, str | int]:
        """Values for the slots of a wording: each field; several words become a quoted list."""
        return {name: _said(getattr(self, name)) for name in type(self).model_fields if name != "kind"}

    def asked(self, draws: Draws) -> str:
        return draws.one(WORDINGS[self.kind]).format_map(self.slots())


def conflict(one: type[Instruction], other: type[Instruction]) -> bool:
    return bool(
        one.claims & other.claims
        or one.bars & (other.claims | other.adds)
        or other.bars & (one.claims | one.adds)
        or one is other
    )


def counted(number: int, noun: str) -> str:
    """`1 word`, `3 words`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _said(value: object) -> str | int:
    if isinstance(value, tuple):
        return ", ".join(f'"{word}"' for word in value)
    return value if isinstance(value, int) else str(value)
