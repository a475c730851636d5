"""What a reply says of events, by its words alone: which words of events it has, and when it says that things were."""

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
"""Characters of a sentence that are quoted."""


@dataclass(frozen=True)
class Mentions:
    claims: tuple[Claim, ...]
    """Sentences with words of an event; and without a source those that say when something was, and have few words
    that anybody here would know."""
    takes_up: bool
    gives_away: str
    """A sentence that states a term of something withheld; empty without one."""


@dataclass(frozen=True)
class EventWords:
    """What there is to mention. Made once for all candidates."""

    language: Language
    events: tuple[tuple[Source, frozenset[str]], ...]
    """With the words that only this event brings into the scene."""
    world: frozenset[str]
    withheld: tuple[str, ...]
    line: str
    called: bool
    """The line, or what a reply should mention, has words of an event. What the scene opens with is the line itself:
    whether that is taken up is another measure."""

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
        """`hinted`: a check of words noticed a term of something withheld that was not said before."""
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
