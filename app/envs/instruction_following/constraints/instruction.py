"""What one kind of instruction says of itself."""

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
    """The fields of a subclass are what is asked for, such as how many words.

    Two do not go together where both decide the same (`claims`), or where one `bars` what the other decides or adds;
    whether they really do is known once a text has been written that follows both.
    """

    kind: str
    family: ClassVar[str]
    hard: ClassVar[bool] = False
    claims: ClassVar[frozenset[str]] = frozenset()
    adds: ClassVar[frozenset[str]] = frozenset()
    """What others may add as well: `blocks` are lines that are not prose."""
    bars: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    @abstractmethod
    def drawn(cls, draws: Draws, request: Request) -> Self:
        """One that suits the request, as far as can be said before a text is written."""

    @abstractmethod
    def fault(self, reading: Reading) -> str:
        """How the reply does not follow it, in words of ours; empty when it does. In time linear in the reply."""

    @abstractmethod
    def shape(self, draft: Draft) -> None:
        """Adds to `draft` what makes its text follow this."""

    def slots(self) -> Mapping[str, str | int]:
        """What stands in the places of a wording: each field, several words as a list in quotation marks."""
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
