"""Lexical measures of one reply against what a judge knows. None of them grows by words that say nothing new."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pydantic import JsonValue

from app.domain.judging import JudgeRequest, Probes
from app.judges.reading import Reply, ngrams, says, spoken_form, words_of

_STOP_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        a about after again all also am an and any are as at back be because been before being but by can come could d
        did do does doing don done down each even ever every few for from get give go going good got had has have
        having he her here hers him his how i if in into is it its just know let like ll look m make many may me might
        more most much must my need no nor not now of off oh on once one only or other our out over own re really
        right s said same say see shall she should so some still such t take tell than that the their them then there
        these they thing think this those though through to too under until up us ve very want was way we well were
        what when where which while who whom whose why will with without would yes yet you your yours
        """,
    )
)
"""English words that carry no subject."""

ASSISTANT_PHRASES: Final = (
    "happy to help",
    "glad to help",
    "here to help",
    "glad you asked",
    "great question",
    "good question",
    "feel free to",
    "let me know if",
    "i hope this helps",
    "hope that helps",
    "how can i assist",
    "how may i assist",
    "can i help you with",
    "if you have any questions",
    "any other questions",
    "it is important to note",
    "it s important to",
    "it s worth noting",
    "there are several",
    "there are many factors",
    "here are some",
    "here s a",
    "in conclusion",
    "in summary",
    "to summarize",
    "as an ai",
    "language model",
    "i understand your concern",
    "i understand that you",
    "i apologize for",
    "certainly i",
    "absolutely i",
    "of course i d be",
    "step by step",
    "delve into",
    "rich tapestry",
    "best practices",
)
"""What assistants say, over words with one space around each."""

_LIST_ITEM: Final = re.compile(r"^ {0,4}(?:[-*•] |\d{1,2}[.)] |#{1,4} )", re.MULTILINE)
_SENTENCE: Final = re.compile(r"[^.!?\n。！？]+[.!?。！？\"'”’)*]*")
_ENOUGH_FOCUS: Final = 0.35
"""Share of words from the character's world beyond which more of them earn nothing."""
_LONGEST_STEMMED: Final = 40
_CHANCE: Final = 0.7
"""Words in common that mean nothing."""
_ECHO_RUN: Final = 8
_MARKERS_AT_MOST: Final = 6


@dataclass(frozen=True)
class Measures:
    """Each in [0, 1]; the last three are faults."""

    voice: float
    facts: float
    focus: float
    """How much of what is said belongs to the world that sheet, scene and probes speak of."""
    answers: float
    """How much of the line that is answered is taken up."""
    hook: float
    assistant: float
    repetition: float
    banned: tuple[str, ...]
    """Probes that must not be mentioned, and are."""


@dataclass(frozen=True)
class Lexicon:
    """What a reading knows, as words. Made once for all candidates."""

    probes: Probes
    line: str
    line_stems: frozenset[str]
    world: frozenset[str]

    @classmethod
    def of(cls, request: JudgeRequest) -> "Lexicon":
        probes, line = request.probes, spoken_form(line_of(request.document))
        told = " ".join((*texts(request.document), *probes.must_mention, *probes.voice, *probes.facts))
        return cls(probes=probes, line=line, line_stems=frozenset(stems(line)), world=frozenset(stems(told)))

    def measure(self, text: str) -> Measures:
        reply = Reply(text)
        if not reply.words:
            return Measures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ())
        present = frozenset(stems(reply.spoken))
        return Measures(
            voice=self._voice(reply),
            facts=self._facts(reply, present),
            focus=self._focus(reply),
            answers=self._answers(reply, present),
            hook=self._hook(reply),
            assistant=_assistant(reply),
            repetition=_repetition(reply),
            banned=tuple(
                term for term in self.probes.must_not_mention if reply.mentions(term) and not says(self.line, term)
            ),
        )

    def quotes(self, text: str, count: int = 2) -> tuple[str, ...]:
        """The sentences that say most, verbatim, in their order."""
        sentences = [match.group().strip()[:200] for match in _SENTENCE.finditer(text)]
        weighed = sorted(
            ((-self._weight(sentence), place) for place, sentence in enumerate(sentences[:200]) if sentence)
        )
        return tuple(sentences[place] for place in sorted(place for weight, place in weighed[:count] if weight < 0))

    def _voice(self, reply: Reply) -> float:
        found = [marker for marker in self.probes.voice if reply.mentions(marker)]
        value = (0.0, 0.6, 0.9)[len(found)] if len(found) < 3 else 1.0
        return value / 2 if len(found) > _MARKERS_AT_MOST else value

    def _facts(self, reply: Reply, present: frozenset[str]) -> float:
        wanted = self.probes.must_mention
        if wanted:
            found = sum(reply.mentions(term) for term in wanted)
            return 0.0 if found == 0 else 0.6 + 0.4 * found / len(wanted)
        shares = []
        for fact in self.probes.facts:
            content = frozenset(stems(fact))
            shares.append(len(content & present) / len(content) if content else 0.0)
        return min(1.0, 2.0 * max(shares, default=0.0))

    def _focus(self, reply: Reply) -> float:
        counts = Counter(reply.words)
        known = sum(1 for stem in set(map(stem_of, counts)) if stem in self.world and stem not in _STOP_WORDS)
        return min(1.0, max(0.0, known - _CHANCE) / (len(reply.words) + 2) / _ENOUGH_FOCUS)

    def _answers(self, reply: Reply, present: frozenset[str]) -> float:
        words = tuple(self.line.split())
        run = min(_ECHO_RUN, len(words))
        echoed = set(ngrams(words, run)) if run >= 4 else set()
        if echoed and any(gram in echoed for gram in ngrams(reply.words, run)):
            return 0.1
        if not self.line_stems:
            return self._focus(reply)
        return min(1.0, len(self.line_stems & present) / min(2, len(self.line_stems)))

    def _hook(self, reply: Reply) -> float:
        """A question, or words to the player, about something of this world."""
        value = 0.0
        for match in _SENTENCE.finditer(reply.folded):
            sentence = match.group()
            if self._weight(sentence) == 0:
                continue
            value = max(value, 1.0 if "?" in sentence or "？" in sentence else 0.0)
            if value < 1.0 and not _YOU.isdisjoint(words_of(sentence)):
                value = 0.7
        return value

    def _weight(self, sentence: str) -> int:
        return len(self.world.intersection(stems(sentence)))


_YOU: Final = frozenset(("you", "your", "yours", "du", "dein", "ihr", "tu", "vous", "usted", "你"))


def stems(text: str) -> Iterator[str]:
    """The words that carry a subject, without their endings."""
    return (stem_of(word) for word in words_of(text.casefold()) if word not in _STOP_WORDS and len(word) > 1)


def stem_of(word: str) -> str:
    """English endings, roughly: enough to see that "coppers" and "copper" are one."""
    return _stem(word) if len(word) <= _LONGEST_STEMMED else word


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            return word[: -len(ending)] + instead
    return word


def line_of(document: Mapping[str, JsonValue]) -> str:
    """The line that is answered: the last of `conversation` or `messages`, or what `prompt` or `question` holds."""
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


def texts(value: JsonValue) -> Iterator[str]:
    """Every string in a document, but for what was withheld from the speaker."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not key.startswith("withheld"):
                yield from texts(item)


def _assistant(reply: Reply) -> float:
    phrases = sum(f" {phrase} " in reply.spoken for phrase in ASSISTANT_PHRASES)
    items = len(_LIST_ITEM.findall(reply.visible))
    return min(1.0, (phrases + (1 if items >= 2 else 0)) / 2)


def _repetition(reply: Reply) -> float:
    grams = Counter(ngrams(reply.words, 4))
    return min(1.0, sum(count - 1 for count in grams.values()) / 6)
