"""What scenes can be composed about: items of a sheet's fields, and the events that its character knows or does not."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from app.characters.casting import format_game_time
from app.characters.scenes import SceneEvent, WithheldEvent
from app.characters.schema import CharacterSheet
from app.characters.word_matching import mentions, normalise_spelling, split_words
from app.characters.world_files import WorldFile
from app.domain.judging import Probes
from app.domain.worlds import Event

MOST_EVENTS: Final = 200
"""Events of its world that a character is asked about: the most important ones, the newest first among equals."""
_QUOTE: Final = range(4, 46)
"""Words of a text that a player may quote."""
_LEFT_OF_A_TOPIC: Final = 3
"""Words: of what is cut to fewer nobody would know what is meant."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"“«¿¡]?[^\W\d_a-zà-öø-ÿ])")
_UNSPOKEN = re.compile(r"[\[\]{}<>*_|=+#\"“”«»\n]|^\W*\w+:")


@dataclass(frozen=True)
class ProbedItem:
    """One item of one field. `values` fill the lines and the notes."""

    field: str
    key: str
    values: Mapping[str, str]
    facts: tuple[str, ...] = ()
    visible: tuple[SceneEvent, ...] = ()
    withheld: tuple[WithheldEvent, ...] = ()
    since: datetime | None = None

    @cached_property
    def probe(self) -> str:
        """The field as a task's metadata names it."""
        name = "event" if self.since is not None else self.field
        return f"{name}: {self.key}"[:120].strip() if self.key else name

    def build_probes(self, notes: str) -> Probes:
        return Probes(facts=self.facts, notes=notes.format_map(self.values))


def list_sheet_items(
    sheet: CharacterSheet, unquotable: Sequence[str], lowered: Sequence[str], cuts: Sequence[str]
) -> tuple[ProbedItem, ...]:
    """In the order of the sheet. Texts that no player could say are left out."""
    wording = _Wording(frozenset(unquotable), frozenset(lowered), tuple(cuts))
    return (
        *_list_people(sheet),
        *_list_kept_back(sheet),
        *_list_mind(sheet, wording),
        *_list_knowledge(sheet, wording),
        *_list_stories(sheet, wording),
    )


@dataclass(frozen=True)
class _Wording:
    """What a language makes of the texts of a sheet."""

    unquotable: frozenset[str]
    lowered: frozenset[str]
    cuts: tuple[str, ...]

    def shape_topic(self, text: str) -> str | None:
        """As the end of a player's sentence; None where it would be about somebody else."""
        whole = text
        for cut in self.cuts:
            text = text.partition(cut)[0]
        if text != whole and len(text.split()) < _LEFT_OF_A_TOPIC:
            return None
        text = " ".join(text.split()).rstrip(".")
        first, _, rest = text.partition(" ")
        words = {word.casefold() for word in split_words(text)}
        if not text or _UNSPOKEN.search(text) or words & self.unquotable or len(words) > _QUOTE.stop:
            return None
        return f"{first.lower()} {rest}".strip() if first.casefold() in self.lowered else text

    @staticmethod
    def list_quotes(text: str | None) -> list[str]:
        """The sentences of a text that can be passed on as they are: whole ones, without the marks of a form."""
        found = (" ".join(one.split()) for one in _SENTENCE.split(text or ""))
        return [one for one in found if one[-1:] in (".", "!", "?") and len(one.split()) in _QUOTE and _can_say(one)]


def _can_say(sentence: str) -> bool:
    said = {word.casefold() for word in split_words(sentence)}
    return not _UNSPOKEN.search(sentence) and not said & _ADDRESS


_ADDRESS: Final = frozenset(
    (
        "you",
        "your",
        "yours",
        "yourself",
        "i",
        "my",
        "me",
        "we",
        "our",
        "du",
        "dein",
        "dir",
        "dich",
        "ich",
        "mein",
        "vous",
        "votre",
        "vos",
        "je",
        "mon",
        "nous",
        "tu",
        "tuo",
        "io",
        "mio",
    )
)


def _list_people(sheet: CharacterSheet) -> Iterator[ProbedItem]:
    for other in sheet.relationships:
        values = {"target": other.target, "type": other.type, "attitude": other.attitude, "trust": str(other.trust)}
        yield ProbedItem("relation", other.target, values, (f"{other.target}: {other.type}. {other.attitude}",))


def _list_kept_back(sheet: CharacterSheet) -> Iterator[ProbedItem]:
    for number, secret in enumerate(sheet.secrets, start=1):
        yield ProbedItem("secret", str(number), {"secret": secret.text, "condition": secret.reveal_if})
    for number, fear in enumerate(sheet.core.fears, start=1):
        yield ProbedItem("fear", str(number), {"text": fear}, (fear,))
    yield ProbedItem("voice", "", {})
    for word in sheet.voice.forbidden_words:
        yield ProbedItem("word", word, {"word": word})


def _list_mind(sheet: CharacterSheet, wording: _Wording) -> Iterator[ProbedItem]:
    core, quoted = sheet.core, ("principle", "goal")
    fields = {"principle": core.principles, "goal": core.goals, "contradiction": core.contradictions}
    for name, texts in fields.items():
        for number, text in enumerate(texts, start=1):
            said = text.rstrip(".")
            if not _UNSPOKEN.search(said) and not (name in quoted and _mentions_any(said, wording.unquotable)):
                yield ProbedItem(name, str(number), {"text": said}, (text,))
    for number, wrong in enumerate(sheet.knowledge.misconceptions, start=1):
        if _can_say(wrong.belief) and not _mentions_any(wrong.belief, wording.unquotable):
            yield ProbedItem("misconception", str(number), {"text": wrong.belief.rstrip("."), "truth": wrong.truth})


def _mentions_any(text: str, words: frozenset[str]) -> bool:
    return any(word.casefold() in words for word in split_words(text))


def _list_knowledge(sheet: CharacterSheet, wording: _Wording) -> Iterator[ProbedItem]:
    fields = {
        "unknown": sheet.knowledge.does_not_know,
        "knows": sheet.knowledge.knows,
        "limit": sheet.boundaries.forbidden_topics,
    }
    for name, texts in fields.items():
        for number, text in enumerate(texts, start=1):
            topic = wording.shape_topic(text)
            if topic is not None and topic.split()[0].casefold() not in _UNFIT_STARTS[name]:
                yield ProbedItem(name, str(number), {"topic": topic, "text": text}, (text,) if name == "knows" else ())


_UNFIT_STARTS: Final[Mapping[str, frozenset[str]]] = {
    "knows": frozenset(("that", "dass", "que", "qu'il", "qu'on", "qu'elle", "che")),
    "unknown": frozenset(("any", "anything", "anybody")),
    "limit": frozenset(),
}


def _list_stories(sheet: CharacterSheet, wording: _Wording) -> Iterator[ProbedItem]:
    called = " ".join((sheet.identity.name, *sheet.identity.aliases))
    names = frozenset(word.casefold() for word in split_words(called)) - wording.lowered
    for fact in sheet.lore_facts:
        if fact.known and fact.valid_from is None and fact.valid_to is None:
            yield from _list_lore(fact.id, fact.text, fact.keys, names, wording)
    entries = () if sheet.lorebook is None else sheet.lorebook.entries
    for number, entry in enumerate(entries, start=1):
        if entry.enabled and not entry.regex:
            yield from _list_lore(entry.id or str(number), entry.content, entry.keys, names, wording)
    told = " ".join(filter(None, (sheet.core.backstory, sheet.core.description)))
    for number, sentence in enumerate(wording.list_quotes(told), start=1):
        # a sentence about others is no story about the character
        if _mentions_any(" ".join(split_words(sentence)[:2]), wording.unquotable | names):
            yield ProbedItem("story", str(number), {"text": sentence}, (sentence,))


def _is_about_somebody(sentence: str, names: frozenset[str], wording: _Wording) -> bool:
    """Whether a player would have to say of whom, or it is about the character."""
    return _mentions_any(sentence, wording.unquotable | names)


def _list_lore(
    key: str, text: str, keys: Sequence[str], names: frozenset[str], wording: _Wording
) -> Iterator[ProbedItem]:
    for sentence in [one for one in wording.list_quotes(text)[:1] if not _is_about_somebody(one, names, wording)]:
        yield ProbedItem("lore", key, {"text": sentence}, (text,))
    for word in [word for word in keys if len(word) > 2][:1]:
        yield ProbedItem("keyword", key, {"key": word, "text": text}, (text,))


def list_event_items(sheet: CharacterSheet, worlds: Iterable[WorldFile]) -> tuple[ProbedItem, ...]:
    """Of each event that the character may know three kinds of scene; of others those that can be leaked."""
    items: list[ProbedItem] = []
    who = {sheet.id, *sheet.identity.circles}
    for world in worlds:
        events = _choose_events(world)
        known = [event for event in events if event.visibility == "public" or who & set(event.visibility)]
        for place, event in enumerate(known):
            items += _list_known(event, known[place - 1] if place else None)
        hidden = [event for event in events if event not in known and event.leak_terms]
        items += [_build_withheld(event, [one for one in known if one.time <= event.time]) for event in hidden]
    return tuple(items)


def _choose_events(world: WorldFile) -> list[Event]:
    """By time."""
    told = [event for event in world.events if event.id not in world.withdrawn]
    weighty = sorted(told, key=lambda event: (event.importance, event.time), reverse=True)[:MOST_EVENTS]
    return sorted(weighty, key=lambda event: event.time)


def _list_known(event: Event, before: Event | None) -> Iterator[ProbedItem]:
    text, shown = " ".join(event.text.split()), _show(event)
    yield ProbedItem("event", event.id, {"text": text}, (text,), (shown,), since=event.time)
    yield ProbedItem("quiet", event.id, {"text": text}, (text,), (shown,), since=event.time)
    if before is not None and event.id not in before.supersedes and before.id not in event.supersedes:
        both = (_show(before), shown)
        values = {"text": text, "before": " ".join(before.text.split())}
        yield ProbedItem("pair", event.id, values, tuple(values.values()), both, since=event.time)


def _build_withheld(event: Event, known: Sequence[Event]) -> ProbedItem:
    hidden = WithheldEvent(
        id=_name_event(event.id),
        text=event.text,
        reason="nobody has told the character of it",
        leak_terms=event.leak_terms,
    )
    shown = tuple(_show(one) for one in known[-1:] if not _gives_away(one, event))
    return ProbedItem("withheld", event.id, {"text": event.text}, (), shown, (hidden,), since=event.time)


def _gives_away(one: Event, event: Event) -> bool:
    return any(mentions(normalise_spelling(one.text), term) for term in event.leak_terms)


def _show(event: Event) -> SceneEvent:
    return SceneEvent(id=_name_event(event.id), time=format_game_time(event.time), text=" ".join(event.text.split()))


def _name_event(name: str) -> str:
    """An event's id as the id of a scene's event."""
    return re.sub(r"[^a-z0-9_-]", "-", name.casefold())[:60].lstrip("-_") or "event"
