"""The characters in their scenes, by split and number of turns."""

from collections.abc import Sequence
from typing import Literal, get_args

from app.characters.casting import Cast
from app.domain.values import Split

Turns = Literal["single", "multi", "both"]


class CastRoster:
    def __init__(self, casts: Sequence[Cast]) -> None:
        self._casts = {
            (split, turns): tuple(cast for cast in casts if cast.scene.split == split and _is_chosen(cast, turns))
            for split in get_args(Split)
            for turns in get_args(Turns)
        }
        self._by_ids = {(cast.sheet.id, cast.scene.id): cast for cast in casts}

    def list_casts(self, split: Split, turns: Turns) -> tuple[Cast, ...]:
        """In the order given."""
        return self._casts[split, turns]

    def find_cast(self, character: str, scene: str) -> Cast | None:
        return self._by_ids.get((character, scene))


def _is_chosen(cast: Cast, turns: Turns) -> bool:
    return turns == "both" or (turns == "multi") == (cast.scene.max_turns > 1)
