"""Scenes as rows of a data set, such as a spreadsheet: a character's id, and what happens.

character   the id of a sheet
player      what the player says; or `event`, what happens; or `bystander`, `Name: what they say`
turns       how the player goes on after each reply: a list, or a line each
history     the conversation so far: a list, or lines `player: …` and `npc: …` in turn
visible, withheld, may_reveal, kind, location, time, situation, exemplar, plain, generic, probe
            as in a scene file; lists are JSON where a file holds text alone
notes, facts, must_mention, must_not_mention
            for judges alone
id          made from the rest where it is missing
"""

import json
import re
from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Final, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError, model_validator

from app.characters.casting import Cast
from app.characters.scenes import Scene
from app.characters.schema import CharacterSheet
from app.domain.digests import digest
from app.domain.judging import Probes
from app.domain.sources import Dataset
from app.domain.suggestions import suggest
from app.domain.tasks import Task
from app.domain.values import Split

_SCENE: Final = ("kind", "location", "time", "situation", "player", "event", "exemplar", "plain", "generic", "probe")
_LISTS: Final = ("history", "turns", "visible", "withheld", "may_reveal")
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


Cell = Annotated[str | None, BeforeValidator(_read_text)]
Items = Annotated[tuple[JsonValue, ...], BeforeValidator(_read_list)]
Words = Annotated[tuple[str, ...], BeforeValidator(_read_list)]


class SceneRow(BaseModel):
    model_config = ConfigDict(frozen=True)
    known: ClassVar[tuple[str, ...]] = ()
    """Ids of the characters that are served."""

    character: str
    id: Cell = None
    kind: Cell = None
    location: Cell = None
    time: Cell = None
    situation: Cell = None
    player: Cell = None
    event: Cell = None
    bystander: Cell = None
    history: Items = ()
    turns: Items = ()
    visible: Items = ()
    withheld: Items = ()
    may_reveal: Items = ()
    exemplar: Cell = None
    plain: Cell = None
    generic: Cell = None
    probe: Cell = None
    notes: Cell = None
    facts: Words = ()
    must_mention: Words = ()
    must_not_mention: Words = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.character not in self.known:
            raise ValueError(f"character: there is no sheet {self.character!r}{suggest(self.character, self.known)}")
        self.scene  # noqa: B018  # read here, so that a wrong row is named by its line
        return self

    @cached_property
    def scene(self) -> Scene:
        """Of the split `train`. ValueError naming the column."""
        given: dict[str, object] = {name: value for name in _SCENE if (value := getattr(self, name)) is not None}
        given |= {name: items for name in _LISTS if (items := self._read_items(name))}
        if self.bystander is not None:
            name, colon, text = self.bystander.partition(":")
            if not colon:
                raise ValueError("bystander: write `Name: what they say`")
            given["bystander"] = {"name": name.strip(), "text": text.strip()}
        probes = Probes(
            notes=self.notes or "",
            facts=self.facts,
            must_mention=self.must_mention,
            must_not_mention=self.must_not_mention,
        )
        made = digest([self.character, probes.model_dump(mode="json"), json.loads(json.dumps(given))])
        given |= {"id": self.id or f"row-{made[:16]}", "split": "train", "probes": probes}
        try:
            return Scene.model_validate({"kind": "conversation", **given})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            column = ".".join(map(str, first["loc"]))
            told = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{column}: {told}" if column else told) from None

    def _read_items(self, name: str) -> list[JsonValue]:
        items: Sequence[JsonValue] = getattr(self, name)
        if name == "turns":
            return [{"say": item} if isinstance(item, str) else item for item in items]
        return [_read_spoken(item) for item in items] if name == "history" else list(items)

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
        known: ClassVar[tuple[str, ...]] = tuple(sheet.id for sheet in sheets)

    return KnownSceneRow


class SceneRows:
    """The rows of all data sets that are tasks: who is held out of training is in none of `train`."""

    def __init__(self, datasets: Mapping[str, Dataset[SceneRow]], sheets: Sequence[CharacterSheet]) -> None:
        self._datasets = datasets
        self._sheets = {sheet.id: sheet for sheet in sheets}

    def count(self, dataset: str, split: Split) -> int:
        return len(self._places.get((dataset, split), ()))

    def count_left_out(self, dataset: str, split: Split) -> dict[str, int]:
        held_out = len(self._datasets[dataset].splits.get(split, ())) - self.count(dataset, split)
        return {"its character is held out of training": held_out} if held_out else {}

    def cast(self, dataset: str, split: Split, index: int) -> Cast:
        row = self._datasets[dataset].splits[split][self._places[dataset, split][index]]
        return Cast(self._sheets[row.character], row.build_scene(split))

    def has(self, task: Task) -> bool:
        return task.metadata.get("dataset") in self._datasets

    def find_cast(self, task: Task, scene: str) -> Cast | None:
        """None where the row is another one now."""
        dataset, split = str(task.metadata["dataset"]), cast("Split", task.metadata["split"])
        index = int(str(task.metadata["index"]))
        found = self.cast(dataset, split, index) if index < self.count(dataset, split) else None
        return found if found is not None and found.scene.id == scene else None

    @cached_property
    def _places(self) -> Mapping[tuple[str, Split], "array[int]"]:
        held_out = {sheet.id for sheet in self._sheets.values() if sheet.meta.held_out}
        return {
            (name, split): array(
                "q", (at for at, row in enumerate(rows) if split == "test" or row.character not in held_out)
            )
            for name, dataset in self._datasets.items()
            for split, rows in dataset.splits.items()
        }
