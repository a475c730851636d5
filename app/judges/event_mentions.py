"""Mentions of events in a reply, found by words alone: shared words with events, and phrases of recent time."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from app.domain.judging import Claim, JudgeRequest, SourceEvent
from app.judges.gates.knowledge import contains_term
from app.judges.languages import Language
from app.judges.lexical import get_answered_line, iterate_texts, split_sentences
from app.judges.text_normalisation import contains_words, to_spoken_form

_LONGEST: Final = 300
"""Most quoted characters of a sentence."""


@dataclass(frozen=True)
class EventMentions:
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
    events: tuple[tuple[SourceEvent, frozenset[str]], ...]
    """Each event with the words that only it adds to the scene."""
    world: frozenset[str]
    withheld: tuple[str, ...]
    line: str
    called: bool
    """Whether the line, or a required mention, has words of an event. An event that is the line itself does not count:
    the measure of answers covers it."""

    @classmethod
    def from_request(cls, request: JudgeRequest, language: Language, world: frozenset[str]) -> "EventWords":
        document = request.document
        line = language.collect_stems(get_answered_line(document))
        settled = frozenset[str]().union(
            *(
                language.collect_stems(text)
                for key in ("character_sheet", "scene")
                for text in iterate_texts(document.get(key))
            )
        )
        told = [(source, language.collect_stems(source.text)) for source in request.sources]
        before = [(source, stems) for source, stems in told if source.text != get_answered_line(document)]
        wanted = request.probes.must_mention
        return cls(
            language=language,
            events=tuple((source, (stems - settled - line) or (stems - settled)) for source, stems in told),
            world=world,
            withheld=tuple(_iterate_leak_terms(document)),
            line=get_answered_line(document),
            called=any(
                len(stems & line) > 0 or any(contains_words(to_spoken_form(source.text), term) for term in wanted)
                for source, stems in before
            ),
        )

    def find_mentions(self, text: str, *, hinted: bool) -> EventMentions:
        """`hinted`: a word check found a withheld term that was not said before."""
        claims: list[Claim] = []
        gives_away = ""
        for sentence in split_sentences(text):
            if "?" in sentence or "？" in sentence:
                continue
            spoken = to_spoken_form(sentence)
            claims += self._extract_claim(sentence, spoken)
            stated = hinted and not self._denies(spoken) and any(contains_term(spoken, term) for term in self.withheld)
            gives_away = gives_away or (sentence[:_LONGEST] if stated else "")
        stems = frozenset(self.language.extract_stems(text))
        return EventMentions(
            claims=tuple(claims),
            takes_up=any(not own.isdisjoint(stems) for source, own in self.events if source.text != self.line),
            gives_away=gives_away,
        )

    def _extract_claim(self, sentence: str, spoken: str) -> Iterator[Claim]:
        stems = frozenset(self.language.extract_stems(spoken))
        shared, source = max(
            ((len(own & stems), source) for source, own in self.events), key=lambda pair: pair[0], default=(0, None)
        )
        if source is not None and shared:
            yield Claim(quote=sentence[:_LONGEST], source=source.id, source_quote=source.text[:_LONGEST])
        elif self._is_recent(spoken) and not self._denies(spoken) and 2 * len(stems & self.world) < len(stems):
            yield Claim(quote=sentence[:_LONGEST], source=None)

    def _is_recent(self, spoken: str) -> bool:
        return any(f" {phrase} " in spoken for phrase in self.language.lately)

    def _denies(self, spoken: str) -> bool:
        return not self.language.negations.isdisjoint(spoken.split())


def _iterate_leak_terms(document: Mapping[str, JsonValue]) -> Iterable[str]:
    listed = document.get("withheld_events")
    for item in listed if isinstance(listed, list) else []:
        terms = item.get("leak_terms") if isinstance(item, dict) else None
        yield from (term for term in (terms if isinstance(terms, list) else []) if isinstance(term, str))
