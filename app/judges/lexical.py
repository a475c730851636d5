"""Lexical measures of one reply against the judge's context. Padding with empty words never raises them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pydantic import JsonValue

from app.domain.judging import JudgeRequest, Probes
from app.judges.languages import Language, list_assistant_phrases_of_all_languages
from app.judges.text_normalisation import Reply, contains_words, iterate_ngrams, split_words, to_spoken_form

_LIST_ITEM: Final = re.compile(r"^ {0,4}(?:[-*•] |\d{1,2}[.)] |#{1,4} )", re.MULTILINE)
_SENTENCE: Final = re.compile(r"[^.!?\n。！？]+[.!?。！？\"'”’)*]*")
_SENTENCES_READ: Final = 200
_FULL_FOCUS: Final = 0.35
"""Share of words from the character's world that gives full focus."""
_CHANCE_OVERLAP: Final = 0.7
"""Words in common by chance."""
_ECHO_RUN_WORDS: Final = 8
_MARKERS_AT_MOST: Final = 6
_REPEATED_WORDS: Final = 4
"""From this number of equal words in a row a reply repeats itself."""
_REPETITIONS: Final = 6
"""This many are as bad as it gets."""
_LONGEST_QUOTE: Final = 200
_SHORT_SENTENCE: Final = 4
"""From this number of words a sentence is expected to say something."""


@dataclass(frozen=True)
class Measures:
    """Each in [0, 1]. `idle` and all fields after it are faults."""

    voice: float
    facts: float
    focus: float
    """How much of the reply is about the world of sheet, scene and probes."""
    answers: float
    """How much the reply takes up the answered line."""
    hook: float
    idle: float
    """Share of sentences that say nothing of their own about this world."""
    assistant: float
    repetition: float
    banned: tuple[str, ...]
    """Forbidden probes that are mentioned."""


@dataclass(frozen=True)
class FaultQuotes:
    """Per fault the sentence that shows it, verbatim; empty without the fault."""

    banned: str = ""
    assistant: str = ""
    repetition: str = ""


@dataclass(frozen=True)
class Lexicon:
    """The judge's context as words, built once for all candidates."""

    language: Language
    probes: Probes
    line: str
    line_stems: frozenset[str]
    world: frozenset[str]

    @classmethod
    def from_request(cls, request: JudgeRequest, language: Language) -> "Lexicon":
        probes, line = request.probes, to_spoken_form(get_answered_line(request.document))
        told = (*iterate_texts(request.document), *probes.must_mention, *probes.voice, *probes.facts)
        return cls(
            language=language,
            probes=probes,
            line=line,
            line_stems=language.collect_stems(line),
            world=frozenset[str]().union(*map(language.collect_stems, told)),
        )

    def measure(self, text: str) -> Measures:
        reply = Reply(text)
        if not reply.words:
            return Measures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ())
        present = frozenset(self.language.extract_stems(reply.padded_words))
        sentences = self._analyse_sentences(reply)
        return Measures(
            voice=self._measure_voice(reply),
            facts=self._measure_facts(reply, present),
            focus=self._measure_focus(reply, present),
            answers=self._measure_uptake(reply, present),
            hook=sentences.hook,
            idle=sentences.idle_share,
            assistant=_measure_assistant_tone(reply),
            repetition=_measure_repetition(reply),
            banned=tuple(
                term
                for term in self.probes.must_not_mention
                if reply.mentions(term) and not contains_words(self.line, term)
            ),
        )

    def select_quotes(self, text: str, count: int = 2) -> tuple[str, ...]:
        """The sentences with most world words, verbatim and in order."""
        sentences = [sentence[:_LONGEST_QUOTE] for sentence in split_sentences(text)]
        weighed = sorted(((-self._count_world_stems(sentence), place) for place, sentence in enumerate(sentences)))
        return tuple(sentences[place] for place in sorted(place for weight, place in weighed[:count] if weight < 0))

    def _measure_voice(self, reply: Reply) -> float:
        found = [marker for marker in self.probes.voice if reply.mentions(marker)]
        value = (0.0, 0.6, 0.9)[len(found)] if len(found) < 3 else 1.0
        return value / 2 if len(found) > _MARKERS_AT_MOST else value

    def _measure_facts(self, reply: Reply, present: frozenset[str]) -> float:
        wanted = self.probes.must_mention
        if wanted:
            found = sum(reply.mentions(term) for term in wanted)
            return 0.0 if found == 0 else 0.6 + 0.4 * found / len(wanted)
        shares = []
        for fact in self.probes.facts:
            content = self.language.collect_stems(fact)
            shares.append(len(content & present) / len(content) if content else 0.0)
        return min(1.0, 2.0 * max(shares, default=0.0))

    def _measure_focus(self, reply: Reply, present: frozenset[str]) -> float:
        known = len(self.world & present)
        return min(1.0, max(0.0, known - _CHANCE_OVERLAP) / (len(reply.words) + 2) / _FULL_FOCUS)

    def _measure_uptake(self, reply: Reply, present: frozenset[str]) -> float:
        words = tuple(self.line.split())
        run = min(_ECHO_RUN_WORDS, len(words))
        echoed = set(iterate_ngrams(words, run)) if run >= 4 else set()
        if echoed and any(gram in echoed for gram in iterate_ngrams(reply.words, run)):
            return 0.1
        if not self.line_stems:
            return self._measure_focus(reply, present)
        return min(1.0, len(self.line_stems & present) / min(2, len(self.line_stems)))

    def _analyse_sentences(self, reply: Reply) -> "_SentenceCounts":
        """Of a long reply few objects are kept at a time: a search for garbage stops the service while it lasts."""
        found = [match.group() for match in _SENTENCE.finditer(reply.folded)]
        subjects = [tuple(self.world.intersection(self.language.extract_stems(sentence))) for sentence in found]
        counts = Counter(stem for stems in subjects for stem in stems)
        telling, idle, asks, to_you = 0, 0, False, False
        for sentence, stems in zip(found, subjects, strict=True):
            if any(counts[stem] == 1 for stem in stems):
                telling += 1
                asks = asks or "?" in sentence or "？" in sentence
                to_you = to_you or not self.language.you.isdisjoint(split_words(sentence))
            elif len(split_words(sentence)) >= _SHORT_SENTENCE:
                idle += 1
        return _SentenceCounts(telling, idle, asks, to_you)

    def _count_world_stems(self, sentence: str) -> int:
        return len(self.world.intersection(self.language.extract_stems(sentence)))


@dataclass(frozen=True)
class _SentenceCounts:
    telling: int
    """Sentences with a word of this world that no other sentence of the reply has."""
    idle: int
    """Others that are not short."""
    asks: bool
    """A telling sentence is a question."""
    to_you: bool
    """A telling sentence addresses the player."""

    @property
    def hook(self) -> float:
        """A question or an address to the player about this world."""
        return 1.0 if self.asks else 0.7 if self.to_you else 0.0

    @property
    def idle_share(self) -> float:
        """Words added to a sentence never lower it."""
        return self.idle / (self.telling + self.idle) if self.idle else 0.0


def split_sentences(text: str) -> tuple[str, ...]:
    """Sentences verbatim; only the first ones of very long texts."""
    found = (match.group().strip() for match in islice(_SENTENCE.finditer(text), _SENTENCES_READ))
    return tuple(sentence for sentence in found if sentence)


def quote_faults(text: str, measures: Measures) -> FaultQuotes:
    """Quotes for the faults in `measures`. A fault that no single sentence shows is quoted from the start."""
    if not (measures.banned or measures.assistant or measures.repetition):
        return FaultQuotes()
    sentences = [Reply(sentence) for sentence in (*split_sentences(text), text)]
    repeated = frozenset(_iterate_repeated(sentences[-1].words) if measures.repetition else ())

    def quote(shows: Callable[[Reply], bool]) -> str:
        return next((each.raw for each in sentences if shows(each)), text).strip()[:_LONGEST_QUOTE]

    return FaultQuotes(
        quote(lambda each: any(each.mentions(term) for term in measures.banned)) if measures.banned else "",
        quote(lambda each: _measure_assistant_tone(each) > 0) if measures.assistant else "",
        quote(lambda each: any(gram in repeated for gram in iterate_ngrams(each.words, _REPEATED_WORDS)))
        if measures.repetition
        else "",
    )


def get_answered_line(document: Mapping[str, JsonValue]) -> str:
    """The answered line: the last of `conversation` or `messages`, or the text of `prompt` or `question`."""
    for key in ("conversation", "messages", "prompt", "question"):
        value = document.get(key)
        if isinstance(value, str):
            return value
        last = value[-1] if isinstance(value, list) and value else None
        if isinstance(last, dict):
            text = last.get("text", last.get("content"))
            if isinstance(text, str):
                return text
    return ""


def join_conversation(document: Mapping[str, JsonValue]) -> str:
    """All lines of the conversation, without system prompts."""
    told = document.get("conversation", document.get("messages"))
    lines = [line for line in told if isinstance(line, dict)] if isinstance(told, list) else []
    spoken = [line.get("text", line.get("content")) for line in lines if line.get("role") != "system"]
    return "\n".join(text for text in spoken if isinstance(text, str))


def iterate_texts(value: JsonValue) -> Iterator[str]:
    """Every string in a document, except those withheld from the speaker."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from iterate_texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not key.startswith("withheld"):
                yield from iterate_texts(item)


def _measure_assistant_tone(reply: Reply) -> float:
    phrases = sum(f" {phrase} " in reply.padded_words for phrase in list_assistant_phrases_of_all_languages())
    items = len(_LIST_ITEM.findall(reply.visible))
    return min(1.0, (phrases + (1 if items >= 2 else 0)) / 2)


def _measure_repetition(reply: Reply) -> float:
    return min(1.0, sum(1 for _ in islice(_iterate_repeated(reply.words), _REPETITIONS)) / _REPETITIONS)


def _iterate_repeated(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each run of words that stands further in front too. Python code on purpose: a `Counter` of a large reply lets no
    other thread in."""
    seen: set[tuple[str, ...]] = set()
    for run in iterate_ngrams(words, _REPEATED_WORDS):
        if run in seen:
            yield run
        seen.add(run)
