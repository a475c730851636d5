"""Lineups for telling characters apart: an exemplar against exemplars of other characters in the same language."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.characters.casting import Cast
from app.characters.schema import CharacterSheet


@dataclass(frozen=True)
class Lineup:
    """A scene with the character's own exemplar, and exemplars of other characters to their own lines."""

    cast: Cast
    own: str
    others: tuple[tuple[str, str], ...]
    """(character, reply)"""

    @property
    def candidates(self) -> tuple[str, ...]:
        """The own reply first; a panel shuffles."""
        return (self.own, *(reply for _, reply in self.others))


def build_lineups(casts: Sequence[Cast], sheets: Sequence[CharacterSheet], most: int | None = None) -> Iterator[Lineup]:
    """Lineups of all scenes with an exemplar, with at most `most` others, chosen deterministically."""
    for cast in casts:
        if cast.exemplar is None:
            continue
        language = cast.sheet.voice.language
        others = [
            (sheet.id, sheet.probes.exemplars[0].reply)
            for sheet in sheets
            if sheet.id != cast.sheet.id and sheet.voice.language == language and sheet.probes.exemplars
        ]
        if most is not None and most < len(others):
            others = random.Random(f"{cast.sheet.id}:{cast.scene.id}").sample(others, most)  # noqa: S311  # variety
        if others:
            yield Lineup(cast, cast.exemplar, tuple(others))
