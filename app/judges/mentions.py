"""Mentions of events in a reply, found by words alone: shared words with events, and phrases of recent time."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from app.domain.judging import Claim, JudgeRequest, Source
from app.judges.gates.knowledge import names
from app.judges.languages import Language
from app.judges.lexical import line_of, sentences_of, texts
from app.judges.reading import says, spoken_form

_LONGEST: Final = 300
"""Most quoted characters of a sentence."""


@dataclass(frozen=True)
class Mentions:
    claims: tuple[Claim, ...]
    """Sentences with words of an event; without a source, sentences about the recent past with few words of this
    world."""
    takes_up: bool
    gives_away: str
    """A sentence that states a withheld term; empty if there is none."""


@dataclass(frozen=True)
class EventWords:
    """Words of the events, built once for all candidates."""

    language: Language
    events: tuple[tuple[Source, frozenset[str]], ...]
    """Each event with the words that only it adds to the scene."""
    world: frozenset[str]
    withheld: tuple[str, ...]
    line: str
    called: bool
    """Whether the line, or a required mention, has words of an event. An event that is the line itself does not count:
    the measure of answers covers it."""

    @classmethod
    def of(cls, request: JudgeRequest, language: Language, world: frozenset[str]) -> "EventWords":
        document = request.document
        line = frozenset(language.stems(line_of(document)))
        settled = frozenset(
            stem
            for key in ("character_sheet", "scene")
            for text in texts(document.get(key))
            for stem in language.stems(text)
        )
        told = [(source, frozenset(language.stems(source.text))) for source in request.sources]
        before = [(source, stems) for source, stems in told if source.text != line_of(document)]
        wanted = request.probes.must_mention
        return cls(
            language=language,
            events=tuple((source, (stems - settled - line) or (stems - settled)) for source, stems in told),
            world=world,
            withheld=tuple(_leak_terms(document)),
            line=line_of(document),
            called=any(
                len(stems & line) > 0 or any(says(spoken_form(source.text), term) for term in wanted)
                for source, stems in before
            ),
        )

    def read(self, text: str, *, hinted: bool) -> Mentions:
        """`hinted`: a word check found a withheld term that was not said before."""
        claims: list[Claim] = []
        gives_away = ""
        for sentence in sentences_of(text):
            if "?" in sentence or "？" in sentence:
                continue
            spoken = spoken_form(sentence)
            claims += self._claim(sentence, spoken)
            stated = hinted and not self._denies(spoken) and any(names(spoken, term) for term in self.withheld)
            gives_away = gives_away or (sentence[:_LONGEST] if stated else "")
        stems = frozenset(self.language.stems(text))
        return Mentions(
            claims=tuple(claims),
            takes_up=any(not own.isdisjoint(stems) for source, own in self.events if source.text != self.line),
            gives_away=gives_away,
        )

    def _claim(self, sentence: str, spoken: str) -> Iterator[Claim]:
        stems = frozenset(self.language.stems(spoken))
        shared, source = max(
            ((len(own & stems), source) for source, own in self.events), key=lambda pair: pair[0], default=(0, None)
        )
        if source is not None and shared:
            yield Claim(quote=sentence[:_LONGEST], source=source.id, source_quote=source.text[:_LONGEST])
        elif self._lately(spoken) and not self._denies(spoken) and 2 * len(stems & self.world) < len(stems):
            yield Claim(quote=sentence[:_LONGEST], source=None)

    def _lately(self, spoken: str) -> bool:
        return any(f" {phrase} " in spoken for phrase in self.language.lately)

    def _denies(self, spoken: str) -> bool:
        return not self.language.negations.isdisjoint(spoken.split())


def _leak_terms(document: Mapping[str, JsonValue]) -> Iterable[str]:
    listed = document.get("withheld_events")
    for item in listed if isinstance(listed, list) else []:
        terms = item.get("leak_terms") if isinstance(item, dict) else None
        yield from (term for term in (terms if isinstance(terms, list) else []) if isinstance(term, str))
