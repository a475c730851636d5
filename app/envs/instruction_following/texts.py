"""Gold texts, and what every text must be.

A gold text proves that instructions can be combined. It is assembled from parts and makes little sense; no model ever
sees one. What every reply must be besides following its instructions is English sentences of its own about the subject.
Without these checks an empty text would follow "no commas", and one repeated word would have any length.
"""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.values import MEBIBYTE, Frozen, remember
from app.envs.instruction_following.instructions import (
    MOST_CHARACTERS,
    PROSE,
    ParsedText,
    TextPlan,
    WritingRequest,
    add_article,
    format_count,
    parse_text,
    split_folded,
    split_words,
)
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import read_packaged_data

_FITTINGS: Final = 120
"""Most exchanges of sentences to reach the right number of words."""
_USUAL_LENGTH: Final = 9
_OPENERS: Final = tuple(opener for openers in PROSE.openers.values() for opener in openers)


def write_text(plan: TextPlan, draws: SeededRandom) -> str:
    """A text with most of the plan's properties, not always all: the caller has to check it."""
    return _TextWriter(plan, draws).write()


_Variant = tuple[int, str, str, str]
"""A way of saying a clause: its length in words, an opener, the clause, a tail. Its text is only put together where it
is chosen."""


@dataclass
class _SentenceSlot:
    """The slot of one sentence: how it must begin and end, if that is asked for, and its current text."""

    initial: str = ""
    opener: str | None = None
    tail: str = ""
    fixed: str = ""
    ways: list[_Variant] = field(default_factory=list)
    """Of saying the clause that stands here."""
    now: str = ""
    length: int = 0
    """Words of `now`."""
    bound: bool = False
    """The clause must stay."""

    def put(self, way: _Variant) -> None:
        self.now, self.length = " ".join(filter(None, way[1:])), way[0]


class _TextWriter:
    def __init__(self, draft: TextPlan, draws: SeededRandom) -> None:
        self.draft, self.draws = draft, draws
        self.clauses = [_insert_names(core, draft.request) for core in draws.shuffled(PROSE.cores)]
        if draft.favoured:
            self.clauses.sort(key=lambda clause: -clause.count(draft.favoured))
        self.names = (draft.request.thing, draft.request.place)
        self.slots: list[_SentenceSlot] = []
        self.starts: list[int] = []
        self.items: list[str] = []
        # the same few hundred parts are measured thousands of times
        self.lengths: dict[str, int] = {}
        """What parts of sentences measure."""

    def write(self) -> str:
        self.items = [f"{mark}{self._punctuate(self._take_clause(self.clauses), '.')}" for mark in self.draft.items]
        self.slots = self._plan_slots()
        self._place_required_clauses()
        for slot in self.slots:
            if not slot.now:
                self._fill_slot(slot)
        if self.draft.rising:
            self._fit_rising_lengths()
        else:
            self._fit_length()
        text = self._lay_out()
        for finish in self.draft.finishes:
            text = finish(text)
        return text

    def _plan_slots(self) -> list[_SentenceSlot]:
        draft = self.draft
        fewest, most = (draft.groups * draft.each,) * 2 if draft.each else draft.sentences
        wished = (draft.words[0] + min(draft.words[1], draft.words[0] + 20)) // 2
        around = sum(len(split_words(line)) for line in (*draft.above, *draft.below, *draft.headings, *self.items))
        usual = min(_USUAL_LENGTH, max(draft.longest_sentence - 2, 4))
        count = max(fewest, min(most, max(len(draft.clauses) + 3, draft.groups, (wished - around) // usual)))
        self.starts = [count * group // draft.groups for group in range(draft.groups)]
        slots = [_SentenceSlot(initial=draft.initials[number : number + 1]) for number in range(count)]
        for group, word in draft.first_words.items():
            slots[self.starts[group]].opener = word
        slots[-1].tail = draft.last_word
        slots[0].fixed = draft.beginning
        slots[-1].fixed = draft.ending or slots[-1].fixed
        return slots

    def _place_required_clauses(self) -> None:
        """Places the required clauses, and one or two that name the subject of the request."""
        for slot in self.slots:
            slot.put((len(slot.fixed.split()), "", slot.fixed, ""))
            slot.bound = bool(slot.fixed)
        free = [slot for slot in self.slots if not slot.fixed]
        both = [clause for clause in self.clauses if all(name in split_folded(clause)[1] for name in self.names)]
        about = (
            [self._take_clause(both)]
            if any(map(self._permits, both))
            else [self._take_clause_naming(name) for name in self.names]
        )
        chosen = sorted(self.draws.some(range(len(free)), len(self.draft.clauses)))
        for number, clause in zip(chosen, self.draft.clauses, strict=False):
            self._put_clause(free[number], clause)
        for clause in about:
            for slot in self.draws.shuffled([slot for slot in free if not slot.bound]):
                if clause and self._put_clause(slot, clause):
                    break

    def _take_clause(self, clauses: Sequence[str]) -> str:
        clause = next(filter(self._permits, clauses), "")
        if clause:
            self.clauses.remove(clause)
        return clause

    def _take_clause_naming(self, name: str) -> str:
        return self._take_clause([clause for clause in self.clauses if name in split_folded(clause)[1]])

    def _put_clause(self, slot: _SentenceSlot, clause: str) -> bool:
        ways = self._list_variants(slot, clause)
        if ways:
            slot.ways, slot.bound = ways, True
            slot.put(self.draws.one(ways))
        return bool(ways)

    def _fill_slot(self, slot: _SentenceSlot) -> None:
        for clause in self.clauses:
            if ways := self._list_variants(slot, clause):
                slot.ways = ways
                slot.put(self.draws.one(ways))
                self.clauses.remove(clause)
                return

    def _list_variants(self, slot: _SentenceSlot, clause: str) -> list[_Variant]:
        """Variants of the clause with openers and tails that fit the slot."""
        openers = self._list_openers(slot, clause)
        tails = [slot.tail] if slot.tail else ["", *self.draws.some(PROSE.tails, 4)]
        if not self._permits(clause):
            return []
        long, room = self._measure(clause), self.draft.longest_sentence - self._measure(clause)
        before = [(opener, self._measure(opener)) for opener in openers if not opener or self._measure(opener)]
        after = [(tail, self._measure(tail)) for tail in tails if not tail or self._measure(tail)]
        return [
            (long + more + most, opener, clause, tail)
            for opener, more in before
            for tail, most in after
            if more + most <= room
        ]

    def _permits(self, clause: str) -> bool:
        return 0 < self._measure(clause) <= self.draft.longest_sentence

    def _measure(self, part: str) -> int:
        """Its number of words; 0 if no sentence may have it."""
        length = self.lengths.get(part)
        if length is None:
            length = len(split_folded(part)[1]) if part and self.draft.permits_part(part) else 0
            self.lengths[part] = length
        return length

    def _list_openers(self, slot: _SentenceSlot, clause: str) -> list[str]:
        openers: list[str] = ["", *self.draws.some(_OPENERS, 4)]
        if slot.opener is not None:
            openers = [slot.opener]
        elif slot.initial:
            own = [""] if clause.startswith(slot.initial) else []
            openers = [*own, *PROSE.openers[slot.initial]]
        if self.draft.different_starts and slot.opener is None:
            taken = {other.now.split()[0].casefold() for other in self.slots if other.now}
            openers = [opener for opener in openers if opener and opener.split()[0] not in taken]
        return openers

    def _fit_length(self) -> None:
        """Exchanges variants of sentences until the number of words is right."""
        fewest, most = self.draft.words
        around = self._count_words() - sum(slot.length for slot in self.slots)
        for _ in range(_FITTINGS):  # by chance, so it may fail: then the caller draws another text
            total = around + sum(slot.length for slot in self.slots)
            if fewest <= total <= most:
                return
            slot = self.draws.one(self.slots)
            if not slot.bound and self.clauses and self.draws.chance(30):
                self._exchange_clause(slot)
            wished = slot.length + (fewest - total if total < fewest else most - total)
            if slot.ways:
                slot.put(min(slot.ways, key=lambda way: abs(way[0] - wished)))

    def _exchange_clause(self, slot: _SentenceSlot) -> None:
        clause = self.draws.one(self.clauses)
        if ways := self._list_variants(slot, clause):
            slot.ways = ways
            slot.put(self.draws.one(ways))
            self.clauses.remove(clause)

    def _fit_rising_lengths(self) -> None:
        """Makes each sentence one word longer than the one before, as far as possible."""
        count = len(self.slots)
        length = max(5, -(-self.draft.words[0] // count) - count // 2 + 1)
        for slot in self.slots:
            clauses = [*self.clauses] if not slot.bound else []
            ways = [*slot.ways, *(way for clause in clauses[:25] for way in self._list_variants(slot, clause))]
            fitting = [way for way in ways if way[0] >= length]
            if fitting:
                slot.put(min(fitting, key=lambda way: way[0]))
                self.clauses = [clause for clause in self.clauses if clause not in slot.now]
            length = slot.length + 1

    def _count_words(self) -> int:
        text = self._lay_out()
        for finish in self.draft.finishes:
            text = finish(text)
        return len(split_words(text))

    def _lay_out(self) -> str:
        sentences = self._finish_sentences()
        bounds = [*self.starts, len(sentences)]
        groups = [" ".join(sentences[start:end]) for start, end in pairwise(bounds)]
        if self.draft.headings:
            groups = [f"{heading}\n{group}" for heading, group in zip(self.draft.headings, groups, strict=True)]
        if self.items:
            first, last = (sentences[:-2], sentences[-2:]) if self.draft.groups == 1 else ([], [])
            groups = [" ".join(first), "\n".join(self.items), " ".join(last)] if first else [*groups, *self.items]
        body = self.draft.separator.join(groups)
        return "\n\n".join([*self.draft.above, body, *self.draft.below])

    def _finish_sentences(self) -> list[str]:
        sentences = [slot.now for slot in self.slots]
        free = [number for number, slot in enumerate(self.slots) if not slot.fixed]
        for number, wrap in enumerate(self.draft.wraps):
            at, word = free[number % len(free)], 1 + number // len(free)
            words = sentences[at].split()
            sentences[at] = " ".join([*words[:word], *map(wrap, words[word : word + 1]), *words[word + 1 :]])
        ends = [mark for mark, count in self.draft.marks.items() for _ in range(count)]
        marks = dict(zip(free, ends, strict=False))
        return [
            slot.fixed or self._punctuate(sentence, marks.get(number, "."))
            for number, (slot, sentence) in enumerate(zip(self.slots, sentences, strict=True))
        ]

    def _punctuate(self, sentence: str, mark: str) -> str:
        return f"{sentence[:1].upper()}{sentence[1:]}{mark}"


def _insert_names(clause: str, request: WritingRequest) -> str:
    if "{" not in clause:
        return clause
    for mark, name in (("{thing}", request.thing), ("{place}", request.place)):
        clause = f" {clause}".replace(f" a {mark}", f" {add_article(name)}").replace(mark, name).strip()
    return clause


# What every reply must be.

_COPIED_RUN: Final = 5
"""So many words in a row that the prompt has too count as copied."""
_SHARE_OF_FUNCTION_WORDS: Final = (0.2, 0.8)
"""Least and most share of all words; in English prose it is about half."""
LEAST_SHARE_OF_DIFFERENT_WORDS: Final = 0.4
COUNTED_FOR_DIFFERENCE: Final = 150
"""The share is required of so many words only: longer texts repeat more words."""
_NEW_WORDS: Final = 5
"""One in so many of the required words must be a different one that is not in the prompt."""
_LONGEST_AVERAGE: Final = 60
_SHORTEST_AVERAGE: Final = 3
"""Words of a sentence, on average."""
_SAME_SENTENCE: Final = 3
"""Words; shorter sentences may be repeated."""

FUNCTION_WORDS: Final = frozenset(
    read_packaged_data(Path(__file__).with_name("function_words.yaml"), TypeAdapter(tuple[str, ...]))
)
_SHARE_OF_ENGLISH_WORDS: Final = 3 / 4
"""Least share of the different words that mean something, names aside: names begin with a capital inside a sentence."""
_SHARE_WITH_NAMES: Final = 2 / 3
"""Least share where names count as unknown words, so that a capital does not turn any word into a name."""
ENGLISH_WORDS: Final = Path(__file__).with_name("english_words.txt.gz")
"""In small letters, without accents; names of people, places, months and days as well. Its licence lies beside it."""
_WORDS_A_CLASH: Final = 50
"""Pairs of words that never follow one another in English are allowed once in so many words, and at least once."""


class _Clash(Frozen):
    before: tuple[str, ...]
    after: tuple[str, ...]


_LISTED: Final = read_packaged_data(Path(__file__).with_name("clashes.yaml"), TypeAdapter(tuple[_Clash, ...]))
CLASHES: Final = frozenset((one, other) for listed in _LISTED for one in listed.before for other in listed.after)
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzæœøðþłđıªº")


def find_prose_fault(reading: ParsedText, request: WritingRequest, prompt: str) -> str:
    """Why the reply does not count as a text; empty if it does. `prompt` is all that could be copied from."""
    if len(reading.text) > MOST_CHARACTERS:
        return f"it is longer than {MOST_CHARACTERS:,} characters"
    return next(chain(_find_missing_content(reading, request, parse_prompt(prompt)), _find_prose_faults(reading)), "")


def parse_prompt(prompt: str) -> list[str]:
    """Its bare words. Prompts share most of their lines."""
    return [word for line in prompt.split("\n") for word in _parse_prompt_line(line)]


@remember(2 * MEBIBYTE)
def _parse_prompt_line(line: str) -> tuple[str, ...]:
    return parse_text(line).bare


def _find_missing_content(reading: ParsedText, request: WritingRequest, prompt: Sequence[str]) -> Iterator[str]:
    bare, prompt_words = reading.bare, set(prompt)
    own = len(reading.words) - count_copied_words(bare, prompt)
    if own < request.least:
        yield f"{format_count(max(own, 0), 'word')} of its own where at least {request.least} were asked"
    missing = {request.thing, request.place}.difference(bare)
    if missing:
        yield f"it does not mention {' and '.join(sorted(missing))}"
    new = len(set(bare).difference(prompt_words))
    if new < request.least // _NEW_WORDS:
        yield f"only {format_count(new, 'word')} that the prompt does not have"


def _find_prose_faults(reading: ParsedText) -> Iterator[str]:
    bare = reading.bare
    if any(character.isalpha() and character not in _LETTERS for character in reading.folded):
        yield "it has letters that English does not have"
    if len(set(bare)) < LEAST_SHARE_OF_DIFFERENT_WORDS * min(len(bare), COUNTED_FOR_DIFFERENCE):
        yield "it says the same words over and over"
    holding = sum(map(FUNCTION_WORDS.__contains__, bare))
    least, most = _SHARE_OF_FUNCTION_WORDS
    if holding < least * len(bare):
        yield "it is a list of words rather than sentences"
    if holding > most * len(bare):
        yield "hardly any of its words mean something"
    sentences = [parse_text(sentence).bare for sentence in reading.sentences]
    if not _SHORTEST_AVERAGE <= len(bare) / max(len(sentences), 1) <= _LONGEST_AVERAGE:
        yield "it is not divided into sentences"
    if _lacks_english_words(reading):
        yield "too few of its words are English"
    clashes = sum(pair in CLASHES for words in sentences for pair in pairwise(words))
    if clashes > max(1, len(bare) // _WORDS_A_CLASH):
        yield "its words do not go together"
    long = [words for words in sentences if len(words) >= _SAME_SENTENCE]
    if len(set(long)) < len(long):
        yield "it says a sentence twice"


def _lacks_english_words(reading: ParsedText) -> bool:
    meaning = {word for word in reading.bare if len(word) > 1 and word not in FUNCTION_WORDS and not word.isdecimal()}
    unknown = {word for word in meaning if not is_english(word)}
    recognised, names = len(meaning) - len(unknown), len(unknown & _find_names(reading))
    return recognised < max(_SHARE_OF_ENGLISH_WORDS * (len(meaning) - names), _SHARE_WITH_NAMES * len(meaning))


def is_english(word: str) -> bool:
    """`word` is bare: in small letters, without accents. Of `weren't` and `girl's` the first part has to be known."""
    stem, _, ending = word.partition("'")
    return stem in _read_english_words() or (ending == "t" and stem.removesuffix("n") in _read_english_words())


@cache
def _read_english_words() -> frozenset[str]:
    return frozenset(gzip.decompress(ENGLISH_WORDS.read_bytes()).decode().split())


def _find_names(reading: ParsedText) -> set[str]:
    inside = (word for sentence in reading.sentences for word in sentence.split()[1:])
    titles = (word for word in inside if word.strip("\"'(*_").istitle())
    return {name for word in titles for name in parse_text(word).bare}


def count_copied_words(bare: Sequence[str], prompt: Sequence[str]) -> int:
    """Number of words that belong to runs copied from the prompt."""
    runs = set(_iterate_runs(prompt))
    covered = bytearray(len(bare))
    for start, run in enumerate(_iterate_runs(bare)):
        if run in runs:
            covered[start : start + _COPIED_RUN] = b"\x01" * _COPIED_RUN
    return sum(covered)


def _iterate_runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(_COPIED_RUN)), strict=False)
