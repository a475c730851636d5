"""What gates on words look for, per language, and the patterns made of it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Final, Literal, get_args

import re2
import yaml
from pydantic import Field

from app.domain.values import Frozen
from app.judges.text_normalisation import fold_text, replace_surrogates
from app.toolkit.large_texts import WINDOW

_FOLDER: Final = Path(__file__).with_suffix("")
LANGUAGES: Final = tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))
"""ISO 639-1 codes of the gates with word lists."""

_PART: Final = re.compile(r"\{([a-z_]+)\}")
_MEMORY: Final = 64 * 1024 * 1024
"""Bytes that RE2 may use for one set of patterns; with too few of them it becomes slow."""
_MOST_FOUND: Final = 50
"""Most matches in one text that are looked at."""

WordingKind = Literal[
    "model",
    "machine",
    "excuses",
    "policy",
    "declining",
    "offering",
    "scoring",
    "judge",
    "judge_in_story",
    "overrides",
    "score_words",
]


class NarrationWording(Frozen):
    """Patterns over folded text, without asterisk or quotation. In second person, except `of_another`."""

    parts: dict[str, str] = {}
    marks: str = "*\\[_"
    """What opens a stage direction, as a class of characters."""
    quote_marks: str = ",:"
    """What stands before a quotation, as a class of characters."""
    acts: str
    """Text after a mark that narrates the player's deeds."""
    nods_and_says: str
    """Gestures of the player with speech, anywhere but after a condition."""
    nods_and_does: str
    """Gestures of the player with a deed, as the beginning of a statement."""
    says: str
    of_another: str
    """Text after a name."""
    articles: str = ""
    conditions: str = ""
    """Words after which `you nod and say` is hypothetical."""


class Wording(Frozen):
    """The file of one language: patterns by what they say."""

    spaced: bool = True
    """Patterns match whole words."""
    parts: dict[str, str] = {}
    model: tuple[str, ...]
    """No character says these about itself, machines included."""
    machine: tuple[str, ...]
    """Characters that are machines may say these."""
    excuses: tuple[str, ...]
    """What stands before words that somebody else said, or that are only supposed."""
    policy: tuple[str, ...]
    """No character declines in these words."""
    declining: tuple[str, ...]
    """Characters may say these as well."""
    offering: tuple[str, ...]
    """A clerk or a host may offer help in these words."""
    scoring: tuple[str, ...]
    """A teacher or an archer may mention these."""
    judge: tuple[str, ...]
    judge_in_story: tuple[str, ...]
    """Only for characters: elsewhere a reply may legitimately rate a film."""
    overrides: tuple[str, ...]
    score_words: str
    """Words after an override that make it an instruction to the judge."""
    verdict_labels: str
    """Labels of a score."""
    winner_labels: str
    """Labels of a choice."""
    candidate_words: str
    players: tuple[str, ...]
    """Common transcript labels of the player, in addition to the scene's names."""
    narration: NarrationWording = Field(repr=False)

    def expand(self, pattern: str) -> str:
        return _expand(pattern, self.parts)

    def list_patterns(self, kind: WordingKind) -> tuple[str, ...]:
        found = getattr(self, kind)
        return (found,) if isinstance(found, str) else found


@cache
def read_wordings() -> Mapping[str, Wording]:
    """By language."""
    return {
        code: Wording.model_validate(yaml.safe_load((_FOLDER / f"{code}.yaml").read_text(encoding="utf-8")))
        for code in LANGUAGES
    }


def find_words(kind: WordingKind, sentences: str) -> Iterable[tuple[int, int]]:
    """Where one of the patterns matches, in text as `Reply.sentences` has it. Linear time."""
    return _iterate_words(kind, sentences) if _may_say(sentences) else ()


def _iterate_words(kind: WordingKind, sentences: str) -> Iterator[tuple[int, int]]:
    pattern = _compile_kind(kind)
    start = 0
    for _ in range(_MOST_FOUND):
        match = pattern.search(sentences, start)
        if match is None:
            return
        yield match.span()
        # the space behind one match may be the one before the next
        start = max(match.start() + 1, match.end() - 1)


def says(kind: WordingKind, sentences: str) -> bool:
    return _may_say(sentences) and _compile_kind(kind).search(sentences) is not None


def _may_say(sentences: str) -> bool:
    return len(sentences) > WINDOW or _says_any(sentences)


@lru_cache(maxsize=8)
def _says_any(sentences: str) -> bool:
    """Whether a pattern of any kind matches. Most replies have none: they are searched once instead of once a kind, and
    each search lets other threads in."""
    return _compile_all_kinds().search(sentences) is not None


def is_excused(before: str) -> bool:
    """Whether what precedes words in their sentence makes them somebody else's, or supposed."""
    return _compile_excuses().search(before) is not None


def claims_verdict(folded: str) -> bool:
    """Whether a line or a sentence consists of a label and a score, or a label and a candidate."""
    return (":" in folded or "=" in folded) and _compile_verdicts().search(replace_surrogates(folded)) is not None


def expand_narration(narration: NarrationWording) -> NarrationWording:
    """With its parts in place, folded as replies are."""
    names = ("acts", "nods_and_says", "nods_and_does", "says", "of_another")
    put = {name: fold_text(_expand(getattr(narration, name), narration.parts)) for name in names}
    return narration.model_copy(update=put)


def join_alternatives(patterns: Iterable[str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _expand(pattern: str, parts: Mapping[str, str]) -> str:
    """Parts may contain parts that stand before them."""
    while (found := _PART.search(pattern)) is not None:
        pattern = f"{pattern[: found.start()]}{parts[found.group(1)]}{pattern[found.end() :]}"
    return pattern


@cache
def _compile_kind(kind: WordingKind) -> "re2._Regexp":
    return _compile(" (?:{}) ", (kind,), "")


@cache
def _compile_all_kinds() -> "re2._Regexp":
    return _compile(" (?:{}) ", [kind for kind in get_args(WordingKind) if kind != "excuses"], "")


@cache
def _compile_excuses() -> "re2._Regexp":
    return _compile(" (?:{}) ", ("excuses",), "$")


def _compile(whole_words: str, kinds: Iterable[WordingKind], end: str) -> "re2._Regexp":
    """The patterns of all languages as one."""
    spaced: list[str] = []
    unspaced: list[str] = []
    for wording, kind in product(read_wordings().values(), kinds):
        (spaced if wording.spaced else unspaced).extend(map(wording.expand, wording.list_patterns(kind)))
    return compile_trusted(f"(?:{whole_words.format(join_alternatives(spaced))}|{join_alternatives(unspaced)}){end}")


@cache
def _compile_verdicts() -> "re2._Regexp":
    wordings = read_wordings().values()
    scores = join_alternatives(wording.expand(wording.verdict_labels) for wording in wordings)
    winners = join_alternatives(wording.expand(wording.winner_labels) for wording in wordings)
    candidates = join_alternatives(wording.expand(wording.candidate_words) for wording in wordings)
    begin = r"(?:^|[\n.!?。]) ?[*_#> ]{0,4}(?:final |overall |total )?"
    is_ = r"(?: finale?)?[*_]{0,2} ?[:=][*_ ]{0,4}"
    number = r"[0-9]{1,3}(?:[.,][0-9]{1,3})?(?: ?(?:/|out of|von|de|sur|su|sobre|из) ?[0-9]{1,3})?"
    unit = r" ?(?:%|points?|punkte|puntos|punti|pontos|баллов|分|点|점)?"
    chosen = rf"(?:(?:{candidates}) ?)?[a-d](?: wins)?"
    end = r"[*_]{0,2} ?(?:[.!。\n]|$)"
    return compile_trusted(rf"{begin}(?:(?:{scores}){is_}{number}{unit}|(?:{winners}){is_}{chosen}){end}")


def compile_trusted(pattern: str) -> "re2._Regexp":
    """For patterns of ours. Words begin and end beside letters of ASCII alone."""
    options = re2.Options()
    options.max_mem = _MEMORY
    return re2.compile(fold_text(pattern), options)
