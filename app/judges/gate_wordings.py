"""What replies say, in words: text normalised for comparison, the wordings that gates look for, and gates on wordings.

A reply is hostile text: it may hide characters, pile up marks, or be a million characters long. It is normalised once
for all gates, in linear time. Wordings lie in a file for each language; the patterns of all languages are searched as
one, by RE2, since a reply may be in any of them. A phrase that the player used first is no fault of the reply.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice, product
from pathlib import Path
from typing import Final, Literal, get_args

import re2
import yaml
from pydantic import Field

from app.domain.judging import GateFacts
from app.domain.values import MEBIBYTE, Frozen, remember
from app.toolkit.texts import WINDOW, iterate_pieces, iterate_words
from app.toolkit.thoughts import strip_leading_thoughts

# Normalised text.

_UNSEGMENTED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts written without spaces: Thai, Lao, Burmese, Khmer, kana, Han. Each character counts as a word."""

_BESIDE_UNSEGMENTED: Final = re.compile(rf" (?=[{_UNSEGMENTED}])|(?<=[{_UNSEGMENTED}]) ")
_WORD: Final = re.compile(rf"[{_UNSEGMENTED}]|[^\W_{_UNSEGMENTED}]+")
_WORD_OR_END: Final = re.compile(rf"[{_UNSEGMENTED}]|[^\W_{_UNSEGMENTED}]+|[.!?\n。！？]")
_ENDS: Final = frozenset(".!?\n。！？")
_ASCII_GAPS: Final = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))
"""What stands between words of ASCII. Replacing it takes a tenth of the time of looking for words."""
_ASCII_GAPS_BUT_ENDS: Final = "".join(
    "\x00" if sign == "\n" else sign if sign in _ENDS else gap
    for sign, gap in zip(map(chr, range(128)), _ASCII_GAPS, strict=True)
)
"""The same but for ends. NUL stands for the end of a line, since white space is lost where words are split."""
_ASCII_WINDOW: Final = 8 * WINDOW
_STANDS_ALONE: Final = re.compile("[\x00-\x7f\u3001\u3002\u4e00-\u9fff]")
"""Characters that NFKC leaves as they are, and never joins with those before them."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MARKS_KEPT: Final = 4
"""Most combining marks kept in a row, since normalising longer runs takes quadratic time."""

_LONGEST_CACHED: Final = 20_000
"""Longest text whose words are cached."""

_PLAIN_QUOTES: Final = {ord(fancy): plain for fancy, plain in zip("’‘ʼ‛“”„‟«»", '\'\'\'\'""""""', strict=True)}

_INVISIBLE_RANGES: Final = (
    (0x00AD, 0x00AD),
    (0x180E, 0x180E),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x2069),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xE0000, 0xE01EF),
)
_INVISIBLE: Final = re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in _INVISIBLE_RANGES) + "]+")


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, so that the text can be encoded as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def strip_region(language: str) -> str:
    """The language of a code that may name a region too, as `de-AT` or `pt_BR` do."""
    return language.casefold().replace("_", "-").split("-")[0]


def fold_text(text: str) -> str:
    """Folds text for comparison: NFKC, case folded, straight quotation marks, no invisible characters. Linear time."""
    return _fold_piece(text) if len(text) <= WINDOW else "".join(map(_fold_piece, iterate_pieces(text, _STANDS_ALONE)))


def _fold_piece(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _limit_combining_marks(_INVISIBLE.sub("", text))).translate(_PLAIN_QUOTES)
    return text.casefold()


def split_words(text: str) -> tuple[str, ...]:
    """The words of folded or unfolded text; an apostrophe separates ("it's" is two)."""
    if text.isascii() and len(text) <= _ASCII_WINDOW:
        return tuple(text.translate(_ASCII_GAPS).split())
    return tuple(_WORD.findall(text) if len(text) <= WINDOW else iterate_words(_WORD, text))


def count_words(words: Iterable[str]) -> float:
    """Length in words. A character of a script without spaces counts half."""
    listed = tuple(words)
    return float(len(listed)) if _are_ascii(listed) else sum(map(_count_halves, listed)) / 2


def iterate_ngrams(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return zip(*(islice(words, start, None) for start in range(size)), strict=False)


def iterate_runs(words: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The shortest run of `size` words or more from each word on, by the length of `count_words`. Linear time."""
    if _are_ascii(words) or all(_count_halves(word) == 2 for word in set(words)):
        return iterate_ngrams(words, size)
    return _iterate_runs_of_short_words(words, size)


def _iterate_runs_of_short_words(words: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    end, halves = 0, 0
    for start, word in enumerate(words):
        while end < len(words) and halves < 2 * size:
            halves += _count_halves(words[end])
            end += 1
        if halves < 2 * size:
            return
        yield words[start:end]
        halves -= _count_halves(word)


def _are_ascii(words: Iterable[str]) -> bool:
    return all(map(str.isascii, words))


def _count_halves(word: str) -> int:
    return 2 if len(word) > 1 or word < "\u0e00" or "\uac00" <= word <= "\ud7af" else 1


def _limit_combining_marks(text: str) -> str:
    combining = frozenset(filter(unicodedata.combining, set(text)))
    if not combining:
        return text
    characters: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if character in combining else 0
        if marks <= _MARKS_KEPT:
            characters.append(character)
    return "".join(characters)


@dataclass(frozen=True)
class Reply:
    """One completion, normalised once for all gates."""

    raw: str

    @cached_property
    def visible(self) -> str:
        return strip_leading_thoughts(self.raw)

    @cached_property
    def folded(self) -> str:
        return fold_text(self.visible)

    @cached_property
    def _words_and_ends(self) -> Sequence[str]:
        return _split_words_and_ends(self.folded)

    @cached_property
    def words(self) -> tuple[str, ...]:
        if self.folded.isascii():
            return split_words(self.folded)
        return tuple([word for word in self._words_and_ends if word not in _ENDS])

    @cached_property
    def length(self) -> float:
        """In words, as `count_words`."""
        return count_words(self.words)

    @cached_property
    def padded_words(self) -> str:
        """The words with one space around each."""
        return f" {' '.join(self.words)} "

    @cached_property
    def sentences(self) -> str:
        """As `spoken`, with the ends of sentences and lines kept as words of their own, and no spaces beside
        characters of scripts that have none."""
        return _join_ascii_sentences(self.folded) or _join_words_and_ends(self._words_and_ends)

    def mentions(self, term: str) -> bool:
        """Whether the words of `term` occur in a row, in any spelling that folds alike."""
        return contains_words(self.padded_words, term)


def to_sentences(folded: str) -> str:
    """The form of `Reply.sentences`."""
    return _join_ascii_sentences(folded) or _join_words_and_ends(_split_words_and_ends(folded))


def _join_ascii_sentences(folded: str) -> str:
    """Without patterns, which take three times as long. Empty where that is not enough."""
    if not folded.isascii() or len(folded) > _ASCII_WINDOW:
        return ""
    apart = folded.replace(".", " . ").replace("!", " ! ").replace("?", " ? ").replace("\n", " \n ")
    return f" {' '.join(apart.translate(_ASCII_GAPS_BUT_ENDS).split())} ".replace("\x00", "\n")


def _split_words_and_ends(folded: str) -> Sequence[str]:
    if len(folded) <= WINDOW:
        return _WORD_OR_END.findall(folded)
    return tuple(iterate_words(_WORD_OR_END, folded))


def _join_words_and_ends(listed: Sequence[str]) -> str:
    joined = f" {' '.join(listed)} "
    return joined if joined.isascii() else _BESIDE_UNSEGMENTED.sub("", joined)


def contains_words(spoken: str, term: str) -> bool:
    """Whether `term` occurs in `spoken`. A term without words never occurs."""
    words = to_spoken_form(term)
    return not words.isspace() and words in spoken


def to_spoken_form(text: str) -> str:
    """The words of `text` with one space around each."""
    return _cached_spoken_form(text) if len(text) <= _LONGEST_CACHED else _build_spoken_form(text)


def _build_spoken_form(text: str) -> str:
    return f" {' '.join(split_words(fold_text(text)))} "


_cached_spoken_form: Final = remember(4 * MEBIBYTE)(_build_spoken_form)
"""Cached, since prompts, player lines and sheet terms recur with every reply."""


# Wordings: what gates look for, by language, and the patterns made of it.

_FOLDER: Final = Path(__file__).with_name("gate_wordings")
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
    "admission",
    "denial",
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


class _Wording(Frozen):
    """The file of one language: patterns by what they say."""

    spaced: bool = True
    """Patterns match whole words."""
    parts: dict[str, str] = {}
    model: tuple[str, ...]
    """No character says these about itself, machines included."""
    machine: tuple[str, ...]
    """Characters that are machines may say these."""
    admission: tuple[str, ...]
    """Further words that say that a program answers: an answer to a sincere question, and elsewhere harmless."""
    denial: tuple[str, ...]
    """Nobody says these who was sincerely asked whether a program answers. What says that of somebody else, or that it
    is only a program, does not match."""
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
        patterns = getattr(self, kind)
        return (patterns,) if isinstance(patterns, str) else patterns


@cache
def read_wordings() -> Mapping[str, _Wording]:
    """By language."""
    return {
        code: _Wording.model_validate(yaml.safe_load((_FOLDER / f"{code}.yaml").read_text(encoding="utf-8")))
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


@remember(2 * MEBIBYTE)
def _says_any(sentences: str) -> bool:
    """Whether a pattern of any kind matches. Most replies have none: they are searched once instead of once a kind, and
    each search lets other threads in."""
    return _compile_all_kinds().search(sentences) is not None


def is_excused(before: str) -> bool:
    """Whether what precedes words in their sentence makes them somebody else's, or supposed."""
    return _compile_excuses().search(before) is not None


def _claims_verdict(folded: str) -> bool:
    """Whether a line or a sentence consists of a label and a score, or a label and a candidate."""
    return (":" in folded or "=" in folded) and _compile_verdicts().search(replace_surrogates(folded)) is not None


def expand_narration(narration: NarrationWording) -> NarrationWording:
    """With its parts in place, folded as replies are."""
    names = ("acts", "nods_and_says", "nods_and_does", "says", "of_another")
    expanded = {name: fold_text(_expand(getattr(narration, name), narration.parts)) for name in names}
    return narration.model_copy(update=expanded)


def join_alternatives(patterns: Iterable[str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _expand(pattern: str, parts: Mapping[str, str]) -> str:
    """Parts may contain parts that stand before them."""
    while (part := _PART.search(pattern)) is not None:
        pattern = f"{pattern[: part.start()]}{parts[part.group(1)]}{pattern[part.end() :]}"
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


# Gates on wordings: refusals of a service, offers of help, talk of scores, and text that addresses the judge.

_OVERRIDE_WINDOW: Final = 200
"""Characters after an override in which a scoring word makes it an instruction to the judge."""
_VERDICT_KEYS: Final = ("score", "scores", "ranking", "verdict", "verdicts", "reward", "defects", "rating")
_BRACKETED: Final = re.compile(r"\[\[(?:[a-c]|[0-9]{1,2})\]\]|\\boxed\{")


NO_CHARACTER: Final = GateFacts(speaker="", others=(), language="")
"""Of a text that no character says."""


def refuses(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "policy")


def may_refuse(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "declining")


def sounds_like_assistant(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "offering")


def mentions_scoring(reply: Reply, facts: GateFacts) -> bool:
    return _says_unprompted(reply, facts, "scoring")


def _says_unprompted(reply: Reply, facts: GateFacts, kind: WordingKind) -> bool:
    """Whether the reply has words that the player did not use first."""
    phrases = [reply.sentences[start:end] for start, end in find_words(kind, reply.sentences)]
    if not phrases:
        return False
    heard = to_sentences(fold_text(facts.player_said))
    return any(words not in heard for words in phrases)


def addresses_judge(reply: Reply, facts: GateFacts) -> bool:
    """Prompt injection and forged verdicts. For a character one sign of a verdict is enough; other answers may
    legitimately be JSON, a number or a review."""
    if says("judge", reply.sentences) or _overrides_instructions(reply.sentences):
        return True
    if not facts.speaker:
        return _count_forged_keys(reply.folded) > 1
    return (
        says("judge_in_story", reply.sentences)
        or _count_forged_keys(reply.folded) > 0
        or _claims_verdict(reply.folded)
        or _BRACKETED.search(reply.folded) is not None
    )


def _overrides_instructions(sentences: str) -> bool:
    return any(
        says("score_words", f" {sentences[end : end + _OVERRIDE_WINDOW]} ")
        for _, end in find_words("overrides", sentences)
    )


def _count_forged_keys(text: str) -> int:
    """Number of keys of a judge's JSON in the text, in any quoting and spacing."""
    if ":" not in text:
        return 0
    dense = "".join(text.split()).replace("\\", "").replace("'", '"')
    return sum(f'"{key}":' in dense for key in _VERDICT_KEYS)
