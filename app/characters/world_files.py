"""World files: events, branches and lorebooks."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, ValidationError

from app.characters.loading import WORLDS, list_yaml_files, read_text
from app.characters.lorebooks.validation import refuse_unusable
from app.characters.schema import Text
from app.characters.yaml_documents import YamlDocument, parse_document
from app.domain.errors import InvalidRequest
from app.domain.lorebooks import Lorebook
from app.domain.values import Frozen, Name
from app.domain.worlds import Event, EventId, GameTime

MAX_WORLD_BYTES: Final = 8 * 1024 * 1024

Timeline = Annotated[tuple[Event, ...], Field(max_length=100_000)]
FieldPath = tuple[int | str, ...]


class WorldBranch(Frozen):
    """A branch of the world from a point in time."""

    world: Name
    """The branch's own name."""
    at: GameTime
    """Time up to which it shares its parent's past, inclusive."""
    events: Timeline = ()
    withdrawn: tuple[EventId, ...] = ()
    """Events of the parent's past that did not happen in the branch."""
    lorebooks: dict[Name, Lorebook] = {}


class WorldFile(Frozen):
    """Contents of a world file, in the order of loading."""

    world: Name
    about: Text | None = None
    """A comment for readers of the file."""
    events: Timeline
    withdrawn: tuple[EventId, ...] = ()
    """Events that are loaded and then withdrawn: they never happened."""
    branches: tuple[WorldBranch, ...] = ()
    lorebooks: dict[Name, Lorebook] = {}


def list_world_files(folder: Path) -> Sequence[Path]:
    """The worlds that a folder of sheets brings: files in its folder `worlds`, by name."""
    worlds = folder / WORLDS
    return list_yaml_files(worlds) if worlds.is_dir() else ()


def read_world(path: Path) -> WorldFile:
    """Reads a YAML or JSON file. InvalidRequest naming the file, the line and the field; TooLarge."""
    return parse_world(read_text(path, MAX_WORLD_BYTES), path.name)


def parse_world(text: str, name: str) -> WorldFile:
    """InvalidRequest naming `name`, the line and the field."""
    document = parse_document(text, name)
    try:
        world = WorldFile.model_validate(document.value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        # where one of several kinds is meant, pydantic names each of them as a step
        at = tuple(step for step in first["loc"] if "[" not in str(step))
        raise _build_refusal(name, document, at, first["msg"].removeprefix("Value error, ")) from None
    for at, message in _find_duplicates(world):
        raise _build_refusal(name, document, at, message)
    for place, book in _iter_lorebooks(world):
        try:
            refuse_unusable(book)
        except InvalidRequest as error:
            raise _build_refusal(name, document, (*place, *_split_path(error.field)), error.detail) from None
    return world


def _iter_lorebooks(world: WorldFile) -> Iterator[tuple[FieldPath, Lorebook]]:
    for called, book in world.lorebooks.items():
        yield ("lorebooks", called), book
    for number, branch in enumerate(world.branches):
        for called, book in branch.lorebooks.items():
            yield ("branches", number, "lorebooks", called), book


def _find_duplicates(world: WorldFile) -> Iterator[tuple[FieldPath, str]]:
    names = [world.world, *(branch.world for branch in world.branches)]
    for number in _find_repeats(names):
        yield ("branches", number - 1, "world"), f"the name {names[number]!r} is taken"
    lines = [((), world.events), *((("branches", n), branch.events) for n, branch in enumerate(world.branches))]
    for place, events in lines:
        ids = [event.id for event in events]
        for number in _find_repeats(ids):
            yield (*place, "events", number, "id"), f"{ids[number]!r} occurs more than once"


def _find_repeats(names: Iterable[str]) -> Iterator[int]:
    """Indices of repeated names."""
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            yield place
        seen.add(name)


def _split_path(field: str | None) -> Iterator[int | str]:
    """Path steps of a field such as `entries[3].keys[0]`."""
    for step in (field or "").replace("]", "").replace("[", ".").split("."):
        yield int(step) if step.isdecimal() else step


def _build_refusal(name: str, document: YamlDocument, at: FieldPath, message: str) -> InvalidRequest:
    field = ".".join(str(step) for step in at)
    words = " ".join(message.split())[:300]
    return InvalidRequest(f"{name}, line {document.find_line(at)}: {field}: {words}", field=field)
