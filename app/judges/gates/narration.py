"""Detects narration of the player's words and deeds, in the languages with patterns."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from app.domain.judging import GateFacts
from app.judges.gates.wordings import NarrationWording, expand_narration, join_alternatives, read_wordings
from app.judges.text_normalisation import contains_words, split_words, to_spoken_form

_QUOTE: Final = r' ?["「『] ?([^"\n」』]{1,200})'
_STATEMENT: Final = r'(?:^|[\n.!?。*\])"]) ?'
"""What the beginning of a statement follows."""
_SENTENCE_END: Final = re.compile(r"[.!?\n。]")


@dataclass(frozen=True)
class _CompiledNarration:
    acts: re.Pattern[str]
    nods_and_says: re.Pattern[str]
    nods_and_does: re.Pattern[str]
    says_quoted: re.Pattern[str]
    conditions: frozenset[str]


def narrates_player(text: str, facts: GateFacts) -> bool:
    """`text` is folded. Checks English and the character's language. Quoting what the player really said is allowed."""
    patterns = _compile_narration(facts.language)
    if patterns.acts.search(text) is not None:
        return True
    if any(not patterns.conditions & _get_word_before(text, match) for match in patterns.nods_and_says.finditer(text)):
        return True
    if any(not _is_question(text, match) for match in patterns.nods_and_does.finditer(text)):
        return True
    if '"' not in text and "「" not in text and "『" not in text:
        return False
    said = to_spoken_form(facts.player_said)
    return any(
        not patterns.conditions & _get_word_before(text, match) and not contains_words(said, match.group(1))
        for match in patterns.says_quoted.finditer(text)
    )


def build_player_narration_pattern(names: str, language: str) -> re.Pattern[str]:
    """Matches `*Player nods*` or narrated `the player says`. `names` is a pattern."""
    return re.compile(
        "|".join(
            rf"[{telling.marks}] ?(?:{telling.articles})?(?:{names}) ?(?:{telling.of_another})"
            for telling in _select_wordings(language)
        )
    )


@lru_cache(maxsize=64)
def _compile_narration(language: str) -> _CompiledNarration:
    tellings = _select_wordings(language)
    return _CompiledNarration(
        acts=_compile_any(rf"[{telling.marks}] ?(?:{telling.acts})" for telling in tellings),
        nods_and_says=_compile_any(telling.nods_and_says for telling in tellings),
        nods_and_does=_compile_any(rf"{_STATEMENT}(?:{telling.nods_and_does})" for telling in tellings),
        # one group, whatever the language, so that what is quoted is always the first
        says_quoted=re.compile(
            f"(?:{join_alternatives(rf'(?:{each.says}) ?[{each.quote_marks}]' for each in tellings)}){_QUOTE}"
        ),
        conditions=frozenset(word for telling in tellings for word in telling.conditions.split()),
    )


def _compile_any(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile(join_alternatives(patterns))


def _select_wordings(language: str) -> tuple[NarrationWording, ...]:
    known = read_wordings()
    english = known["en"]
    own = known.get(language.casefold().replace("_", "-").split("-")[0], english)
    return tuple(expand_narration(each.narration) for each in ((english,) if own is english else (english, own)))


def _is_question(text: str, match: re.Match[str]) -> bool:
    end = _SENTENCE_END.search(text, match.end(), match.end() + 200)
    return end is not None and end.group() == "?"


def _get_word_before(text: str, match: re.Match[str]) -> frozenset[str]:
    return frozenset(split_words(text[max(0, match.start() - 12) : match.start()])[-1:])
