"""Gates on who speaks: only the character, not the assistant behind it and not the player."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from app.domain.judging import GateFacts
from app.judges.gates.narration import build_player_narration_pattern, narrates_player
from app.judges.gates.wordings import WordingKind, find_words, is_excused, read_wordings
from app.judges.text_normalisation import Reply, to_spoken_form

_WINDOW: Final = 40
"""Characters before a phrase that tell whose words it is."""
_BEFORE: Final = re.compile(r"[^.!?。\n]*$")
_ENDING: Final = re.compile(r"[.!?。\n]")


def breaks_character(reply: Reply, facts: GateFacts) -> bool:
    sentences = reply.sentences
    kinds: tuple[WordingKind, ...] = ("model",) if facts.is_machine else ("model", "machine")
    return any(not _is_excused(sentences, start, end) for kind in kinds for start, end in find_words(kind, sentences))


def speaks_for_player(reply: Reply, facts: GateFacts) -> bool:
    others = _get_other_speakers(facts)
    return (
        others.label.search(reply.folded) is not None
        or narrates_player(reply.folded, facts)
        or others.deed.search(reply.folded) is not None
    )


def _is_excused(sentences: str, start: int, end: int) -> bool:
    """Whether the words are part of a question, or reported speech or doubt of somebody else."""
    words = sentences[start:end]
    if words.isascii() and " " not in words.strip():
        return False
    before = _BEFORE.search(sentences[max(0, start - _WINDOW) : start + words.startswith(" ")])
    if before is not None and is_excused(before.group()):
        return True
    after = _ENDING.search(sentences, max(start + 1, end - 1), end + 5 * _WINDOW)
    return after is not None and after.group() == "?"


@dataclass(frozen=True)
class _OtherSpeakers:
    """Patterns for speakers for whom the character must not speak."""

    label: re.Pattern[str]
    """A dialogue label with another name, at the start of a line or after a sentence."""
    deed: re.Pattern[str]


def _get_other_speakers(facts: GateFacts) -> _OtherSpeakers:
    return _build_other_speakers((facts.speaker, *facts.aliases), facts.others, facts.language)


@lru_cache(maxsize=1024)
def _build_other_speakers(own_names: tuple[str, ...], others: tuple[str, ...], language: str) -> _OtherSpeakers:
    own = {to_spoken_form(name) for name in own_names}
    players = (name for wording in read_wordings().values() for name in wording.players)
    named = (*others, *players) if others else ()
    distinct = {" ".join(name.casefold().split()) for name in named if to_spoken_form(name) not in own}
    names = "|".join(re.escape(name) for name in sorted(distinct) if name) or "(?!)"
    return _OtherSpeakers(
        label=re.compile(rf"(?:^|[\n.!?。\"*)\]])[ \n]{{0,3}}[*_\[(<\"]{{0,3}}(?:{names})[*_\])>\"]{{0,3}} ?:"),
        deed=build_player_narration_pattern(names, language),
    )
