"""Gates on who speaks, not the assistant behind the character and not the player, and on what is told instead."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import re2

from app.domain.judging import GateFacts
from app.judges.gates.wordings import (
    NarrationWording,
    WordingKind,
    compile_trusted,
    expand_narration,
    find_words,
    is_excused,
    join_alternatives,
    read_wordings,
)
from app.judges.text_normalisation import Reply, contains_words, count_words, split_words, to_spoken_form

MOST_NARRATED_SHARE: Final = 0.6
"""Largest share of a reply's words inside asterisks or brackets."""
FEWEST_NARRATED_WORDS: Final = 12
"""Words below which the gate does not apply: a gesture alone is a valid reply."""

_NARRATED: Final = re.compile(r"\*\*[^*\n]*\*\*|\*([^*\n]{1,2000})\*|\(([^()\n]{1,2000})\)|\[([^\[\]\n]{1,2000})\]")
"""Double asterisks are emphasis and do not count."""
_ACTION: Final = re.compile(r"\[ ?([a-z][a-z0-9_]{0,63}) ?\](?!\()")
"""One name in brackets, as the prompt asks for. Links do not match."""

_WINDOW: Final = 40
"""Characters before a phrase that tell whose words it is."""
_BEFORE: Final = re.compile(r"[^.!?。\n]*$")
_ENDING: Final = re.compile(r"[.!?。\n]")
_QUOTE: Final = r' ?["「『] ?([^"\n」』]{1,200})'
_STATEMENT: Final = r'(?:^|[\n.!?。*\])"]) ?'
"""What the beginning of a statement follows."""
_SENTENCE_END: Final = re.compile(r"[.!?\n。]")


def breaks_character(reply: Reply, facts: GateFacts) -> bool:
    sentences = reply.sentences
    kinds: tuple[WordingKind, ...] = ("model",) if facts.is_machine else ("model", "machine")
    return any(not _is_excused(sentences, start, end) for kind in kinds for start, end in find_words(kind, sentences))


def speaks_for_player(reply: Reply, facts: GateFacts) -> bool:
    others = _get_other_speakers(facts)
    return (
        (":" in reply.folded and others.label.search(reply.folded) is not None)
        or _narrates_player(reply.folded, facts)
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
    return _compile_other_speakers(_list_other_speakers((facts.speaker, *facts.aliases), facts.others), facts.language)


@lru_cache(maxsize=1024)
def _list_other_speakers(own_names: tuple[str, ...], others: tuple[str, ...]) -> str:
    """A pattern of their names."""
    own = {to_spoken_form(name) for name in own_names}
    players = (name for wording in read_wordings().values() for name in wording.players)
    named = (*others, *players) if others else ()
    distinct = {" ".join(name.casefold().split()) for name in named if to_spoken_form(name) not in own}
    return "|".join(re.escape(name) for name in sorted(distinct) if name) or "(?!)"


@lru_cache(maxsize=1024)
def _compile_other_speakers(names: str, language: str) -> _OtherSpeakers:
    """Apart from who speaks: most characters have no name of a player, and share the patterns, which take
    milliseconds to compile."""
    return _OtherSpeakers(
        label=re.compile(rf"(?:^|[\n.!?。\"*)\]])[ \n]{{0,3}}[*_\[(<\"]{{0,3}}(?:{names})[*_\])>\"]{{0,3}} ?:"),
        deed=_build_player_narration_pattern(names, language),
    )


@dataclass(frozen=True)
class _CompiledNarration:
    any_in_ascii: "re2._Regexp"
    """Whether one of the next three matches."""
    acts: re.Pattern[str]
    nods_and_says: re.Pattern[str]
    nods_and_does: re.Pattern[str]
    says_quoted: re.Pattern[str]
    conditions: frozenset[str]


def _narrates_player(text: str, facts: GateFacts) -> bool:
    """`text` is folded. Checks English and the character's language. Quoting what the player really said is allowed."""
    patterns = _compile_narration(facts.language)
    may_tell = not text.isascii() or patterns.any_in_ascii.search(text) is not None
    if may_tell and _tells_of_player(text, patterns):
        return True
    if '"' not in text and "「" not in text and "『" not in text:
        return False
    said = to_spoken_form(facts.player_said)
    return any(
        not patterns.conditions & _get_word_before(text, match) and not contains_words(said, match.group(1))
        for match in patterns.says_quoted.finditer(text)
    )


def _tells_of_player(text: str, patterns: _CompiledNarration) -> bool:
    return (
        patterns.acts.search(text) is not None
        or any(
            not patterns.conditions & _get_word_before(text, match) for match in patterns.nods_and_says.finditer(text)
        )
        or any(not _is_question(text, match) for match in patterns.nods_and_does.finditer(text))
    )


def _build_player_narration_pattern(names: str, language: str) -> re.Pattern[str]:
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
    acts = join_alternatives(rf"[{telling.marks}] ?(?:{telling.acts})" for telling in tellings)
    nods_and_says = join_alternatives(telling.nods_and_says for telling in tellings)
    nods_and_does = join_alternatives(rf"{_STATEMENT}(?:{telling.nods_and_does})" for telling in tellings)
    return _CompiledNarration(
        any_in_ascii=compile_trusted(f"{acts}|{nods_and_says}|{nods_and_does}"),
        acts=re.compile(acts),
        nods_and_says=re.compile(nods_and_says),
        nods_and_does=re.compile(nods_and_does),
        # one group, whatever the language, so that what is quoted is always the first
        says_quoted=re.compile(
            f"(?:{join_alternatives(rf'(?:{each.says}) ?[{each.quote_marks}]' for each in tellings)}){_QUOTE}"
        ),
        conditions=frozenset(word for telling in tellings for word in telling.conditions.split()),
    )


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


def overuses_stage_directions(reply: Reply, facts: GateFacts) -> bool:
    """Only for characters whose sheet forbids stage directions."""
    return facts.spoken_words_only and _is_mostly_narrated(reply)


def may_overuse_stage_directions(reply: Reply, facts: GateFacts) -> bool:
    return not facts.spoken_words_only and _is_mostly_narrated(reply)


def _is_mostly_narrated(reply: Reply) -> bool:
    told = count_words(
        word
        for match in _NARRATED.finditer(reply.folded)
        for word in split_words("".join(group or "" for group in match.groups()))
    )
    return told >= FEWEST_NARRATED_WORDS and told > MOST_NARRATED_SHARE * reply.length


def uses_unlisted_action(reply: Reply, facts: GateFacts) -> bool:
    """Only for characters whose sheet lists actions."""
    if not facts.allowed_actions:
        return False
    allowed = {action.casefold() for action in facts.allowed_actions}
    return any(match.group(1) not in allowed for match in _ACTION.finditer(reply.folded))


def exceeds_action_limit(reply: Reply, facts: GateFacts) -> bool:
    """Counts every occurrence, listed or not. Only for characters whose sheet lists actions."""
    if not facts.allowed_actions or facts.most_actions is None:
        return False
    return sum(1 for _ in _ACTION.finditer(reply.folded)) > facts.most_actions
