"""Scenes that nobody wrote as scene files: rows of a data set, and compositions from a character's sheet and world.

A row names a character and says what happens:

character   the id of a sheet
player      what the player says; or `event`, what happens; or `bystander`, `Name: what they say`
turns       how the player goes on after each reply: a list, or a line each
history     the conversation so far: a list, or lines `player: …` and `npc: …` in turn
visible, withheld, may_reveal, kind, location, time, situation, exemplar, plain, generic, probe, acts, earlier, memory,
others, seat
            as in a scene file; lists and objects are JSON where a file holds text alone
notes, facts, must_mention, must_not_mention
            for judges alone
id          made from the rest where it is missing

A composed scene asks about one item of one field of a sheet, or about an event that its character knows or does not
know. The lines are those of a language, dealt so that each comes once before any comes again. Lines for testing alone
are in no task of training.
"""

import hashlib
import json
import random
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Annotated, ClassVar, Final, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from app.characters.archives import WorldFile
from app.characters.casting import Cast, cast_in_scene, format_game_time
from app.characters.loading import list_yaml_files, parse_model, read_text
from app.characters.lorebooks import count_words, mentions, normalise_spelling, split_words
from app.characters.scenes import PlayerTurn, Scene, SceneEvent, SceneKind, SceneSet, WithheldEvent
from app.characters.schema import CharacterSheet, Language, Text, Words
from app.domain.faults import explain_faults
from app.domain.judging import Probes
from app.domain.tasks import Dataset, Task
from app.domain.values import Frozen, Split, WholeNumber, digest, digest_of_model, suggest
from app.domain.worlds import Event
from app.toolkit.templates import read_packaged_data

_SCENE: Final = ("kind", "location", "time", "situation", "player", "event", "exemplar", "plain", "generic", "probe")
_LISTS: Final = ("history", "turns", "visible", "withheld", "may_reveal", "earlier", "others")
_OBJECTS: Final[Mapping[str, SceneKind]] = {"acts": "action", "memory": "memory", "seat": "company"}
"""Columns that hold an object, with the kind of scenes that have them."""
_SPOKEN: Final = re.compile(r"(?P<speaker>player|npc)\s*:\s*(?P<text>.+)")


def _read_text(value: object) -> object:
    """An empty cell says nothing."""
    return None if isinstance(value, str) and not value.strip() else value


def _read_list(value: object) -> object:
    """JSON, or a line each."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("begins as a JSON list and is none") from None
    return [line.strip() for line in value.splitlines() if line.strip()]


def _read_object(value: object) -> object:
    """JSON, where a file holds text alone."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None


_Cell = Annotated[str | None, BeforeValidator(_read_text)]
_Object = Annotated[dict[str, JsonValue] | None, BeforeValidator(_read_object)]
_Items = Annotated[tuple[JsonValue, ...], BeforeValidator(_read_list)]
_WordList = Annotated[tuple[str, ...], BeforeValidator(_read_list)]


class SceneRow(BaseModel):
    model_config = ConfigDict(frozen=True)
    known: ClassVar[Mapping[str, CharacterSheet]] = {}
    """The characters that are served, by id."""

    character: str
    id: _Cell = None
    kind: _Cell = None
    location: _Cell = None
    time: _Cell = None
    situation: _Cell = None
    player: _Cell = None
    event: _Cell = None
    bystander: _Cell = None
    history: _Items = ()
    turns: _Items = ()
    visible: _Items = ()
    withheld: _Items = ()
    may_reveal: _Items = ()
    exemplar: _Cell = None
    plain: _Cell = None
    generic: _Cell = None
    probe: _Cell = None
    acts: _Object = None
    earlier: _Items = ()
    memory: _Object = None
    others: _Items = ()
    seat: _Object = None
    notes: _Cell = None
    facts: _WordList = ()
    must_mention: _WordList = ()
    must_not_mention: _WordList = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.character not in self.known:
            raise ValueError(f"character: there is no sheet {self.character!r}{suggest(self.character, self.known)}")
        # The scene is read here, so that a wrong row is named by its line.
        if (fault := cast_in_scene(self.known[self.character], self.scene, self.known).fault) is not None:
            raise ValueError(str(fault))
        return self

    @cached_property
    def scene(self) -> Scene:
        """Of the split `train`. ValueError naming the column."""
        values: dict[str, object] = {name: value for name in _SCENE if (value := getattr(self, name)) is not None}
        values |= {name: items for name in _LISTS if (items := self._read_items(name))}
        objects = {name: value for name in _OBJECTS if (value := getattr(self, name)) is not None}
        values |= objects
        if self.bystander is not None:
            name, colon, text = self.bystander.partition(":")
            if not colon:
                raise ValueError("bystander: write `Name: what they say`")
            values["bystander"] = {"name": name.strip(), "text": text.strip()}
        probes = Probes(
            notes=self.notes or "",
            facts=self.facts,
            must_mention=self.must_mention,
            must_not_mention=self.must_not_mention,
        )
        made = digest([self.character, probes.model_dump(mode="json"), json.loads(json.dumps(values))])
        values |= {"id": self.id or f"row-{made[:16]}", "split": "train", "probes": probes}
        try:
            return Scene.model_validate({"kind": next(map(_OBJECTS.__getitem__, objects), "conversation"), **values})
        except ValidationError as error:
            raise ValueError(explain_faults(error, Scene, quotes=False)[0].sentence) from None

    def _read_items(self, name: str) -> list[JsonValue]:
        items: Sequence[JsonValue] = getattr(self, name)
        if name == "turns":
            return [{"say": item} if isinstance(item, str) else item for item in items]
        return [_read_spoken(item) for item in items] if name == "history" else list(items)

    @property
    def characters(self) -> Iterator[str]:
        """Ids of the sheets that it is about."""
        yield self.character
        yield from (other.sheet for other in self.scene.others if other.sheet is not None)

    def build_scene(self, split: Split) -> Scene:
        return self.scene if split == "train" else self.scene.model_copy(update={"split": split})


def _read_spoken(item: JsonValue) -> JsonValue:
    if not isinstance(item, str):
        return item
    spoken = _SPOKEN.fullmatch(item)
    if spoken is None:
        raise ValueError("history: begin each line with `player:` or `npc:`")
    return {"speaker": spoken["speaker"], "text": spoken["text"]}


def build_row_form(sheets: Sequence[CharacterSheet]) -> type[SceneRow]:
    """Rows of these characters alone."""

    class KnownSceneRow(SceneRow):
        known: ClassVar[Mapping[str, CharacterSheet]] = {sheet.id: sheet for sheet in sheets}

    return KnownSceneRow


class SceneRows:
    """The rows of all data sets that are tasks: who is held out of training is in none of `train`."""

    def __init__(self, datasets: Mapping[str, Dataset[SceneRow]], sheets: Sequence[CharacterSheet]) -> None:
        self._datasets = datasets
        self._sheets = {sheet.id: sheet for sheet in sheets}

    def count(self, dataset: str, split: Split) -> int:
        return len(self._indexes.get((dataset, split), ()))

    def count_left_out(self, dataset: str, split: Split) -> dict[str, int]:
        held_out = len(self._datasets[dataset].splits.get(split, ())) - self.count(dataset, split)
        return {"its character is held out of training": held_out} if held_out else {}

    def cast(self, dataset: str, split: Split, index: int) -> Cast:
        row = self._datasets[dataset].splits[split][self._indexes[dataset, split][index]]
        return cast_in_scene(self._sheets[row.character], row.build_scene(split), self._sheets)

    def has(self, task: Task) -> bool:
        return task.metadata.get("dataset") in self._datasets

    def find_cast(self, task: Task, scene: str) -> Cast | None:
        """None where the row is another one now."""
        dataset, split = str(task.metadata["dataset"]), cast("Split", task.metadata["split"])
        index = int(str(task.metadata["index"]))
        current = self.cast(dataset, split, index) if index < self.count(dataset, split) else None
        return current if current is not None and current.scene.id == scene else None

    @cached_property
    def _indexes(self) -> Mapping[tuple[str, Split], "array[int]"]:
        held_out = {sheet.id for sheet in self._sheets.values() if sheet.meta.held_out}
        return {
            (name, split): array(
                "q", (at for at, row in enumerate(rows) if split == "test" or held_out.isdisjoint(row.characters))
            )
            for name, dataset in self._datasets.items()
            for split, rows in dataset.splits.items()
        }


# Items: what scenes can be composed about.

_MOST_EVENTS: Final = 200
"""Events of its world that a character is asked about: the most important ones, the newest first among equals."""
_QUOTE: Final = range(4, 46)
"""Words of a text that a player may quote."""
_LEFT_OF_A_TOPIC: Final = 3
"""Words: of what is cut to fewer nobody would know what is meant."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"“«¿¡]?[^\W\d_a-zà-öø-ÿ])")
_UNSPOKEN = re.compile(r"[\[\]{}<>*_|=+#\"“”«»\n]|^\W*\w+:")


class _SentenceWords(Frozen):
    address: frozenset[str]
    unfit_starts: dict[str, frozenset[str]]


_WORDS: Final = read_packaged_data(Path(__file__).with_name("sentence_words.yaml"), TypeAdapter(_SentenceWords))


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


def _list_sheet_items(
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
        sentences = (" ".join(one.split()) for one in _SENTENCE.split(text or ""))
        return [
            one for one in sentences if one[-1:] in (".", "!", "?") and len(one.split()) in _QUOTE and _can_say(one)
        ]


def _can_say(sentence: str) -> bool:
    words = {word.casefold() for word in split_words(sentence)}
    return not _UNSPOKEN.search(sentence) and not words & _WORDS.address


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
            topic = text.rstrip(".")
            if not _UNSPOKEN.search(topic) and not (name in quoted and _mentions_any(topic, wording.unquotable)):
                yield ProbedItem(name, str(number), {"text": topic}, (text,))
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
            if topic is not None and topic.split()[0].casefold() not in _WORDS.unfit_starts[name]:
                yield ProbedItem(name, str(number), {"topic": topic, "text": text}, (text,) if name == "knows" else ())


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
    past = " ".join(filter(None, (sheet.core.backstory, sheet.core.description)))
    for number, sentence in enumerate(wording.list_quotes(past), start=1):
        # a sentence about others is no story about the character
        if _mentions_any(" ".join(split_words(sentence)[:2]), wording.unquotable | names):
            yield ProbedItem("story", str(number), {"text": sentence}, (sentence,))


def _list_lore(
    key: str, text: str, keys: Sequence[str], names: frozenset[str], wording: _Wording
) -> Iterator[ProbedItem]:
    for sentence in wording.list_quotes(text)[:1]:
        # a player would have to say of whom, or it is about the character
        if not _mentions_any(sentence, wording.unquotable | names):
            yield ProbedItem("lore", key, {"text": sentence}, (text,))
    for word in [word for word in keys if len(word) > 2][:1]:
        yield ProbedItem("keyword", key, {"key": word, "text": text}, (text,))


def _list_event_items(sheet: CharacterSheet, worlds: Iterable[WorldFile]) -> tuple[ProbedItem, ...]:
    """Of each event that the character may know three kinds of scene; of others those that can be leaked, since without
    terms nobody could tell a leak."""
    items: list[ProbedItem] = []
    who = {sheet.id, *sheet.identity.circles}
    for world in worlds:
        events = _choose_events(world)
        known = [event for event in events if event.visibility == "public" or who & set(event.visibility)]
        for index, event in enumerate(known):
            items += _list_known(event, known[index - 1] if index else None)
        hidden = [event for event in events if event not in known and event.leak_terms]
        items += [_build_withheld(event, [one for one in known if one.time <= event.time]) for event in hidden]
    return tuple(items)


def _choose_events(world: WorldFile) -> list[Event]:
    """By time."""
    standing = [event for event in world.events if event.id not in world.withdrawn]
    weighty = sorted(standing, key=lambda event: (event.importance, event.time), reverse=True)[:_MOST_EVENTS]
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


# Compositions.

_COMPOSITIONS: Final = Path(__file__).with_name("compositions")
_PROBES: Final = Path(__file__).with_name("probes.yaml")
_MOST_ITEMS: Final = 12
"""Items of one field of a sheet that scenes are composed of, events aside: the first."""
_LONG: Final = 60
"""An item of more words than these makes one scene of a kind: more would be nearly the same."""
_ONE_IN: Final = 8
"""Of the items of one field each that many is for testing alone."""
_LineList = Annotated[tuple[Text, ...], Field(min_length=1)]


def _require_plain_slots(lines: tuple[str, ...]) -> tuple[str, ...]:
    for line in lines:
        if any(
            spec or conversion or not (name or "").isidentifier() for _, name, spec, conversion in _find_slots(line)
        ):
            raise ValueError(f"braces may hold only the name of a value: {line[:60]}")
    return lines


def _find_slots(line: str) -> Iterator[tuple[str, str | None, str | None, str | None]]:
    return (slot for slot in Formatter().parse(line) if slot[1] is not None)


class ProbePlan(Frozen):
    """How one field of sheets is probed, in every language."""

    kind: SceneKind
    notes: Text
    """For judges; braces take values of the item."""
    single: Annotated[WholeNumber, Field(ge=0, le=20)]
    """Scenes of one reply for each item in training."""
    episodes: Annotated[WholeNumber, Field(ge=0, le=20)] = 0
    """Scenes of several replies for each item in training."""
    always_lead: bool = False
    """A sentence before the question in every scene, where the question itself says nothing of the item."""


class CompositionPlan(Frozen):
    version: Text
    probes: dict[str, ProbePlan]


class FieldLines(Frozen):
    """The player's lines for one field; those for testing are in no task of training."""

    train: Annotated[_LineList, AfterValidator(_require_plain_slots)]
    test: Annotated[_LineList, AfterValidator(_require_plain_slots)]
    then: tuple[Text, ...] = ()
    """What the player says after a reply. Without any, the field has no scenes of several replies."""


class CompositionLines(Frozen):
    """The lines of one language."""

    version: Text
    language: Language
    unquotable: Words = ()
    """A text with one of these words is not put into a player's mouth, since it would be about somebody else there."""
    lowered: Words = ()
    """First words that lose their capital in the middle of a sentence."""
    cuts: tuple[str, ...] = ()
    """A topic ends before these."""
    leads: _LineList
    test_leads: _LineList
    lines: dict[str, FieldLines]

    @model_validator(mode="after")
    def _keep_leads_apart(self) -> "CompositionLines":
        if set(self.leads) & set(self.test_leads):
            raise ValueError("leads and test_leads share a sentence")
        return self


@dataclass(frozen=True)
class SceneComposer:
    """Composes the scenes of sheets. The same sheet, worlds and templates give the same scenes."""

    plan: CompositionPlan
    languages: Mapping[str, CompositionLines]
    worlds: Sequence[WorldFile] = ()
    """Of the folder of sheets."""
    packaged: Sequence[WorldFile] = ()

    @classmethod
    def read(
        cls, worlds: Sequence[WorldFile], packaged: Sequence[WorldFile], folder: Path = _COMPOSITIONS
    ) -> "SceneComposer":
        plan = parse_model(read_text(_PROBES), "probes.yaml", CompositionPlan)
        files = [parse_model(read_text(path), path.name, CompositionLines) for path in list_yaml_files(folder)]
        return cls(plan, {lines.language: lines for lines in files}, tuple(worlds), tuple(packaged))

    @property
    def digest(self) -> str:
        parts = (self.plan, *self.languages.values(), *self.worlds, *self.packaged)
        return digest([digest_of_model(part) for part in parts])

    def compose(self, sheets: Iterable[CharacterSheet]) -> tuple[SceneSet, ...]:
        """One set for each sheet in whose language there are lines."""
        composed = (
            (sheet, tuple({scene.id: scene for scene in self._compose_for(sheet)}.values())) for sheet in sheets
        )
        return tuple(
            SceneSet.model_construct(character=sheet.id, language=sheet.voice.language, scenes=scenes)
            for sheet, scenes in composed
            if scenes
        )

    def _compose_for(self, sheet: CharacterSheet) -> Iterator[Scene]:
        lines = self.languages.get(sheet.voice.language)
        if lines is None:
            return
        events = _list_event_items(sheet, self.list_worlds(sheet))
        items = (*_list_sheet_items(sheet, lines.unquotable, lines.lowered, lines.cuts), *events)
        guard = _Guard.of(sheet)
        for name, plan in self.plan.probes.items():
            own = [item for item in items if item.field == name]
            if name in lines.lines and own:
                limit = len(own) if name in _OF_EVENTS else _MOST_ITEMS
                deal = _Deal(sheet, name, plan, lines, guard)
                yield from deal.make_scenes(own[:limit])

    def list_worlds(self, sheet: CharacterSheet) -> Sequence[WorldFile]:
        """Of its own world, and those with events that name it. A sheet that names no world has the only one."""
        alone = len(self.worlds) == 1 and sheet.meta.world == sheet.id
        every = (*self.worlds, *self.packaged)
        named = [world for world in every if world.world == sheet.meta.world or _names(world, sheet)]
        return self.worlds if alone and not named else named


_OF_EVENTS: Final = ("event", "withheld", "quiet", "pair")


def _names(world: WorldFile, sheet: CharacterSheet) -> bool:
    return any(
        sheet.id in event.actors or (event.visibility != "public" and sheet.id in event.visibility)
        for event in world.events
    )


@dataclass(frozen=True)
class _Guard:
    """Drops lines that say what the character keeps to itself: a leak of what the player named would not be noticed."""

    terms: tuple[str, ...]

    @classmethod
    def of(cls, sheet: CharacterSheet) -> "_Guard":
        secret_terms = [term for secret in sheet.secrets for term in secret.leak_terms]
        spelled = (normalise_spelling(term) for term in (*secret_terms, *sheet.probes.must_not_mention))
        return cls(tuple(term for term in spelled if term.strip()))

    def list_terms(self, item: ProbedItem) -> tuple[str, ...]:
        """What lines about an item must not say."""
        return *self.terms, *(normalise_spelling(term) for event in item.withheld for term in event.leak_terms)


@dataclass
class _Deal:
    """Deals the lines of one field to its items, each line once before any comes again."""

    sheet: CharacterSheet
    name: str
    plan: ProbePlan
    lines: CompositionLines
    guard: _Guard
    _dealt: dict[str, int] = field(default_factory=dict)
    _orders: dict[str, list[str]] = field(default_factory=dict)

    def make_scenes(self, items: Sequence[ProbedItem]) -> Iterator[Scene]:
        """Items for testing alone have lines for testing alone; so has all of a character that is held out."""
        held_out = self._choose_held_out(items)
        for number, item in enumerate(items):
            if self.sheet.meta.held_out or number in held_out:
                yield from self._make(item, "test", 1, min(1, self.plan.episodes))
            else:
                few = count_words(item.values.get("text", "")) > _LONG
                yield from self._make(item, "train", min(1, self.plan.single) if few else self.plan.single, None)

    def _choose_held_out(self, items: Sequence[ProbedItem]) -> frozenset[int]:
        count = max(1, len(items) // _ONE_IN) if len(items) > 3 else 0  # of few none is spared
        ranked = sorted(range(len(items)), key=lambda index: _hash(self.sheet.id, self.name, items[index].key))
        return frozenset(ranked[:count])

    def _make(self, item: ProbedItem, split: Split, single: int, episodes: int | None) -> Iterator[Scene]:
        own_lines = self.lines.lines[self.name]
        asks = own_lines.train if split == "train" else own_lines.test
        count = self.plan.episodes if episodes is None else episodes
        probes = item.build_probes(self.plan.notes)  # shared: there are thousands of scenes
        terms = self.guard.list_terms(item)
        shown_already = any(_says(event.text, terms) for event in item.visible)
        for number in range(single + (count if own_lines.then else 0)):
            line = self._draw(split, asks).format_map(item.values)
            if self.plan.always_lead or number % 2:
                leads = self.lines.leads if split == "train" else self.lines.test_leads
                line = f"{self._draw(f'{split} leads', leads)} {line}"
            if not shown_already and not _says(line, terms):
                turns = () if number < single else self._draw_turns(split, own_lines.then)
                yield self._build_scene(item, split, line, turns, probes)

    def _draw_turns(self, split: str, then: Sequence[str]) -> tuple[PlayerTurn, ...]:
        """One more line, or two in every other scene."""
        count = 1 + self._dealt.get(f"{split} turns", 0) % 2
        self._dealt[f"{split} turns"] = count
        drawn = dict.fromkeys(self._draw(f"{split} then", then) for _ in range(count))
        return tuple(PlayerTurn(say=line) for line in drawn)

    def _draw(self, pile: str, lines: Sequence[str]) -> str:
        """The next of the pile, in an order of the character's own."""
        position = self._dealt.get(pile, 0)
        self._dealt[pile] = position + 1
        order = self._orders.get(pile)
        if order is None:
            order = self._orders[pile] = list(lines)
            random.Random(f"{self.sheet.id} {self.name} {pile}").shuffle(order)  # noqa: S311  # variety
        return order[(position + position // len(order)) % len(order)]

    def _build_scene(
        self, item: ProbedItem, split: Split, line: str, turns: tuple[PlayerTurn, ...], probes: Probes
    ) -> Scene:
        tag = _hash(self.sheet.id, self.name, item.key, line, *(turn.say for turn in turns))[:12]
        return Scene(
            id=f"{self.sheet.id[:36]}-{self.name}-{tag}",
            kind=self.plan.kind,
            split=split,
            player=line,
            turns=turns,
            visible=item.visible,
            withheld=item.withheld,
            since=item.since,
            probe=item.probe,
            probes=probes,
        )


def _says(text: str, terms: Sequence[str]) -> bool:
    spelled = normalise_spelling(text)
    return any(term in spelled for term in terms)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
