"""Characters in their scenes, as the params of a task choose them."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel

from app.characters.casting import Cast, build_conversation
from app.characters.lorebooks.activation import recall_from
from app.characters.lorebooks.prepared_books import PreparedBooks
from app.domain.digests import digest
from app.domain.tasks import Passage
from app.domain.token_estimate import estimate_tokens
from app.domain.values import Split

ROSTERS = 64
"""Choices of scenes by params that are kept at a time."""

Turns = Literal["single", "multi", "both"]
Written = Literal["by_hand", "composed", "all"]


class CastRoster:
    """The characters in their scenes, by what params choose."""

    def __init__(self, casts: Sequence[Cast], composed: frozenset[str] = frozenset()) -> None:
        """`composed`: ids of scenes that nobody wrote."""
        self._all = tuple(casts)
        self._composed = composed
        self._by_ids = {(cast.sheet.id, cast.scene.id): cast for cast in casts}
        self._timed = any(cast.scene.since is not None for cast in casts)
        self._list = lru_cache(maxsize=ROSTERS)(self._filter)

    def list_casts(self, split: Split, turns: Turns, written: Written, as_of: datetime | None) -> tuple[Cast, ...]:
        """In the order given."""
        return self._list(split, turns, written, as_of if self._timed else None)

    def find_cast(self, character: str, scene: str) -> Cast | None:
        return self._by_ids.get((character, scene))

    def _filter(self, split: Split, turns: Turns, written: Written, as_of: datetime | None) -> tuple[Cast, ...]:
        return tuple(
            cast
            for cast in self._all
            if cast.scene.split == split
            and _is_chosen(cast, turns)
            and (written == "all" or (written == "composed") == (cast.scene.id in self._composed))
            and (as_of is None or cast.scene.since is None or cast.scene.since <= as_of)
        )


def _is_chosen(cast: Cast, turns: Turns) -> bool:
    return turns == "both" or (turns == "multi") == (cast.scene.max_turns > 1)


def list_utterances(cast: Cast) -> tuple[str, ...]:
    return tuple(message.content or "" for message in build_conversation(cast))


def derive_seed(character: str, scene: str, params: BaseModel, said: Sequence[str]) -> str:
    """Seed for the random parts of a task, the same for every caller."""
    return digest([character, scene, params.model_dump(mode="json"), said])


def recall_passages(book: PreparedBooks, cast: Cast, seed: str, budget_tokens: int) -> tuple[Passage, ...]:
    """What a scene recalls from the character's own lorebook."""
    return tuple(
        Passage(id=one.entry.id, text=one.entry.content, source=f"lorebook/{one.book}", kind="lore")
        for one in recall_from(book, list_utterances(cast), seed, budget_tokens, estimate_tokens)
        if one.told
    )


def compose_brief(prompt: str, cast: Cast) -> str:
    """What the character is told of the scene, the conversation, and what its last line is meant to test."""
    said = [f"{'player' if one.role == 'user' else 'character'}: {one.content}" for one in build_conversation(cast)]
    return "\n".join((prompt, "", "The conversation:", *said, *filter(None, (cast.scene.probes.notes,))))
