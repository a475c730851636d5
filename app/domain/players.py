"""A player that a model plays: which model, what it said, and what that took."""

from collections.abc import Mapping
from operator import not_
from typing import Annotated, Final

from pydantic import Field

from app.domain.judging import Judgement
from app.domain.values import Frozen, Name

PLAYER_PURPOSE: Final = "player"
"""Purpose of the judgements that are lines of a player, discarded ones included."""


class PlayerChoice(Frozen):
    """The model that plays the player."""

    policy: Name
    """A name under `policies` in the settings, with `as_player`."""
    version: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Which model that was, and how it was asked. The service fills it in, so that another model means other tasks."""


class PlayerLine(Frozen):
    """What a player says next. `done` with words: the character answers once more. Without words it has left."""

    say: str = ""
    done: bool = False


class PlayedLine(Frozen):
    """What became of the player's turn at one place of an episode."""

    line: PlayerLine | None = None
    """None where the player failed."""
    fault: str = ""
    """Why it failed."""
    passing: bool = False
    """It failed because its server did: who steps again asks it again."""
    made: tuple[Judgement, ...] = ()
    """Every answer of the model, those included that were discarded."""


StoredLines = Mapping[str, PlayedLine]
"""By key. The answers of those that a stored group has paid for cost nothing any more."""
