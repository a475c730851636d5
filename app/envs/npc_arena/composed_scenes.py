"""Scenes composed from the fields of a sheet and the events of its world, with the lines of a language."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from app.characters.loading import list_yaml_files, parse_model, read_text
from app.characters.scenes import PlayerTurn, Scene, SceneKind, SceneSet
from app.characters.schema import CharacterSheet, Language, Text, Words
from app.characters.word_matching import count_words, normalise_spelling
from app.characters.world_files import WorldFile
from app.domain.digests import digest, digest_of_model
from app.domain.judging import Probes
from app.domain.values import Frozen, Split, WholeNumber
from app.envs.npc_arena.probed_fields import ProbedItem, list_event_items, list_sheet_items

COMPOSITIONS: Final = Path(__file__).parent / "compositions"
PROBES: Final = Path(__file__).parent / "probes.yaml"
MOST_ITEMS: Final = 12
"""Items of one field of a sheet that scenes are composed of, events aside: the first."""
_LONG: Final = 60
"""An item of more words than these makes one scene of a kind: more would be nearly the same."""
_ONE_IN: Final = 8
"""Of the items of one field each that many is for testing alone."""
LineList = Annotated[tuple[Text, ...], Field(min_length=1)]


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

    train: Annotated[LineList, AfterValidator(_require_plain_slots)]
    test: Annotated[LineList, AfterValidator(_require_plain_slots)]
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
    leads: LineList
    test_leads: LineList
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
        cls, worlds: Sequence[WorldFile], packaged: Sequence[WorldFile], folder: Path = COMPOSITIONS
    ) -> "SceneComposer":
        plan = parse_model(read_text(PROBES), "probes.yaml", CompositionPlan)
        files = [parse_model(read_text(path), path.name, CompositionLines) for path in list_yaml_files(folder)]
        return cls(plan, {lines.language: lines for lines in files}, tuple(worlds), tuple(packaged))

    @property
    def digest(self) -> str:
        parts = (self.plan, *self.languages.values(), *self.worlds, *self.packaged)
        return digest([digest_of_model(part) for part in parts])

    def compose(self, sheets: Iterable[CharacterSheet]) -> tuple[SceneSet, ...]:
        """One set for each sheet in whose language there are lines."""
        found = ((sheet, tuple({scene.id: scene for scene in self._compose_for(sheet)}.values())) for sheet in sheets)
        return tuple(
            SceneSet.model_construct(character=sheet.id, language=sheet.voice.language, scenes=scenes)
            for sheet, scenes in found
            if scenes
        )

    def _compose_for(self, sheet: CharacterSheet) -> Iterator[Scene]:
        lines = self.languages.get(sheet.voice.language)
        if lines is None:
            return
        events = list_event_items(sheet, self._list_worlds(sheet))
        items = (*list_sheet_items(sheet, lines.unquotable, lines.lowered, lines.cuts), *events)
        guard = _Guard.of(sheet)
        for name, plan in self.plan.probes.items():
            own = [item for item in items if item.field == name]
            if name in lines.lines and own:
                limit = len(own) if name in _OF_EVENTS else MOST_ITEMS
                deal = _Deal(sheet, name, plan, lines, guard)
                yield from deal.make_scenes(own[:limit])

    def _list_worlds(self, sheet: CharacterSheet) -> Sequence[WorldFile]:
        """Of its own world, and those with events that name it. A sheet that names no world has the only one."""
        alone = len(self.worlds) == 1 and sheet.meta.world == sheet.id
        found = (*self.worlds, *self.packaged)
        named = [world for world in found if world.world == sheet.meta.world or _names(world, sheet)]
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
        kept = [term for secret in sheet.secrets for term in secret.leak_terms]
        spelled = (normalise_spelling(term) for term in (*kept, *sheet.probes.must_not_mention))
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
        kept = self._choose_held_out(items)
        for place, item in enumerate(items):
            if self.sheet.meta.held_out or place in kept:
                yield from self._make(item, "test", 1, min(1, self.plan.episodes))
            else:
                few = count_words(item.values.get("text", "")) > _LONG
                yield from self._make(item, "train", min(1, self.plan.single) if few else self.plan.single, None)

    def _choose_held_out(self, items: Sequence[ProbedItem]) -> frozenset[int]:
        count = max(1, len(items) // _ONE_IN) if len(items) > 3 else 0  # of few none is spared
        ranked = sorted(range(len(items)), key=lambda place: _hash(self.sheet.id, self.name, items[place].key))
        return frozenset(ranked[:count])

    def _make(self, item: ProbedItem, split: Split, single: int, episodes: int | None) -> Iterator[Scene]:
        found = self.lines.lines[self.name]
        asks = found.train if split == "train" else found.test
        wanted = self.plan.episodes if episodes is None else episodes
        probes = item.build_probes(self.plan.notes)  # shared: there are thousands of scenes
        kept = self.guard.list_terms(item)
        told = any(_says(event.text, kept) for event in item.visible)
        for number in range(single + (wanted if found.then else 0)):
            line = self._draw(split, asks).format_map(item.values)
            if self.plan.always_lead or number % 2:
                leads = self.lines.leads if split == "train" else self.lines.test_leads
                line = f"{self._draw(f'{split} leads', leads)} {line}"
            if not told and not _says(line, kept):
                turns = () if number < single else self._draw_turns(split, found.then)
                yield self._build_scene(item, split, line, turns, probes)

    def _draw_turns(self, split: str, then: Sequence[str]) -> tuple[PlayerTurn, ...]:
        """One more line, or two in every other scene."""
        count = 1 + self._dealt.get(f"{split} turns", 0) % 2
        self._dealt[f"{split} turns"] = count
        drawn = dict.fromkeys(self._draw(f"{split} then", then) for _ in range(count))
        return tuple(PlayerTurn(say=line) for line in drawn)

    def _draw(self, pile: str, lines: Sequence[str]) -> str:
        """The next of the pile, in an order of the character's own."""
        place = self._dealt.get(pile, 0)
        self._dealt[pile] = place + 1
        order = self._orders.get(pile)
        if order is None:
            order = self._orders[pile] = list(lines)
            random.Random(f"{self.sheet.id} {self.name} {pile}").shuffle(order)  # noqa: S311  # variety
        return order[(place + place // len(order)) % len(order)]

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
