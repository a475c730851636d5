"""A form of ten fields in which a character is begun, and the sheet that it writes.

The form writes a sheet, and reads one back as long as that says nothing else: whoever goes on in the sheet loses
nothing by it. Fields with several items have one a line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal, get_args

from pydantic import JsonValue

from app.characters.authored_texts import reads_authored
from app.characters.cards.sheets import build_slug
from app.characters.loading import dump_yaml, parse_document, parse_model
from app.characters.schema import SCHEMA_VERSION, CharacterSheet, find_language_fault
from app.domain.authored_files import MAX_AUTHORED
from app.domain.errors import InvalidRequest, TooLarge
from app.domain.values import Frozen

Rating = Literal["everyone", "teen", "mature"]
RATINGS: Final = get_args(Rating)
QUESTIONS: Final = ("Who are you?", "What brings you here?", "Can you help me?")
"""What somebody says before each of the three example lines, until the author changes it."""

_MOST_NAME: Final = 120
_MOST_TEXT: Final = 4000
"""Characters of a field, and of one line of it: as many as a sheet's text may have."""
_MOST_LINES: Final = 50
_MOST_LIST: Final = 20_000
"""Characters of a field with an item a line."""
_MOST_SUMMARY: Final = 200
_LISTS: Final = ("wants", "knows", "must_not_know", "limits")


class ExampleLine(Frozen):
    """What the character says when somebody says `player`."""

    player: str
    reply: str = ""


class SheetForm(Frozen):
    """Fields as they are typed. `wants`, `knows`, `must_not_know` and `limits` have an item a line."""

    name: str = ""
    who: str = ""
    voice: str = ""
    lines: tuple[ExampleLine, ...] = tuple(ExampleLine(player=question) for question in QUESTIONS)
    wants: str = ""
    knows: str = ""
    must_not_know: str = ""
    limits: str = ""
    language: str = "en"
    rating: str = "everyone"


@dataclass(frozen=True)
class FormFault:
    """What is wrong with a field: `lines.0.reply`, `name`."""

    field: str
    message: str

    @property
    def label(self) -> str:
        """Of the field."""
        name = self.field.partition(".")[0]
        return "Three example lines" if name == "lines" else name.replace("_", " ").capitalize()


_LABELS: Final = {
    "identity.name": "Name",
    "core.description": "Who",
    "voice.style": "Voice",
    "voice.examples": "Three example lines",
    "core.goals": "Wants",
    "knowledge.knows": "Knows",
    "knowledge.does_not_know": "Must not know",
    "boundaries.forbidden_topics": "Limits",
    "voice.language": "Language",
    "boundaries.content_rating": "Rating",
}
"""Of the form's fields, by the field of the sheet that they write."""


def name_form_field(field: str) -> str:
    """The label of the form's field that writes this field of a sheet, or an item of it. Empty where none does."""
    return next((label for path, label in _LABELS.items() if f"{field}.".startswith((f"{path}.", f"{path}["))), "")


def name_character(form: SheetForm) -> str:
    """The id that the name becomes."""
    return build_slug(form.name)


def find_form_faults(form: SheetForm) -> tuple[FormFault, ...]:
    """None for a form that gives a sheet without errors."""
    return tuple(_find_faults(form))


def _find_faults(form: SheetForm) -> Iterator[FormFault]:
    for field, most in (("name", _MOST_NAME), ("who", _MOST_TEXT), ("voice", _MOST_TEXT)):
        length = len(getattr(form, field).strip())
        if length > most:
            yield FormFault(field, f"has {length:,} characters; at most {most:,} fit")
        if not length and field != "voice":
            yield FormFault(field, "is missing")
    for number, line in enumerate(form.lines):
        yield from _find_faults_of_line(f"lines.{number}", line)
    for field in _LISTS:
        yield from _find_faults_of_list(field, _split(getattr(form, field)))
    if fault := find_language_fault(form.language):
        yield FormFault("language", fault)
    if form.rating not in RATINGS:
        yield FormFault("rating", f"must be one of {', '.join(RATINGS)}")


def _find_faults_of_line(field: str, line: ExampleLine) -> Iterator[FormFault]:
    if line.reply.strip() and not line.player.strip():
        yield FormFault(f"{field}.player", "is missing: what does somebody say before?")
    if line.player.strip() not in ("", *QUESTIONS) and not line.reply.strip():
        yield FormFault(f"{field}.reply", "is missing: the character says nothing here yet")
    for part, text in (("player", line.player), ("reply", line.reply)):
        if len(text.strip()) > _MOST_TEXT:
            yield FormFault(f"{field}.{part}", f"is longer than {_MOST_TEXT:,} characters")


def _find_faults_of_list(field: str, items: tuple[str, ...]) -> Iterator[FormFault]:
    if len(items) > _MOST_LINES:
        yield FormFault(field, f"has {len(items)} lines; at most {_MOST_LINES} fit")
    if any(len(item) > _MOST_TEXT for item in items):
        yield FormFault(field, f"has a line of more than {_MOST_TEXT:,} characters")
    elif sum(map(len, items)) > _MOST_LIST:
        yield FormFault(field, f"has more than {_MOST_LIST:,} characters")


def write_sheet(form: SheetForm, character: str) -> str:
    """The sheet of that id, in YAML. InvalidRequest naming the first field that is at fault; TooLarge where the sheet
    is longer than texts of authors may be, as YAML spells some signs out."""
    if faults := find_form_faults(form):
        raise InvalidRequest(f"{faults[0].field} {faults[0].message}", field=faults[0].field)
    text = dump_yaml(_build_document(form, character))
    if len(text) > MAX_AUTHORED:
        raise TooLarge(f"the sheet would be longer than {MAX_AUTHORED} characters")
    parse_model(text, f"{character}.yaml", CharacterSheet)
    return text


def _build_document(form: SheetForm, character: str) -> dict[str, JsonValue]:
    who = form.who.strip()
    examples: list[JsonValue] = [
        {"player": line.player.strip(), "reply": line.reply.strip()} for line in form.lines if line.reply.strip()
    ]
    blocks: dict[str, dict[str, JsonValue]] = {
        "meta": {
            "schema_version": SCHEMA_VERSION,
            "id": character,
            "licence": "unknown",
            "genre": "unknown",
            "world": character,
            "summary": _summarise(who),
        },
        "identity": {"name": form.name.strip()},
        "core": {"description": who, "goals": [*_split(form.wants)]},
        "voice": {"language": form.language, "style": form.voice.strip(), "examples": examples},
        "knowledge": {"knows": [*_split(form.knows)], "does_not_know": [*_split(form.must_not_know)]},
        "boundaries": {"forbidden_topics": [*_split(form.limits)], "content_rating": form.rating},
    }
    written = {
        name: {field: value for field, value in fields.items() if value not in ("", [])}
        for name, fields in blocks.items()
    }
    return {name: fields for name, fields in written.items() if fields}


def _split(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.split("\n") if line.strip())


def _summarise(who: str) -> str:
    """Its first line, cut at a word."""
    line = " ".join(who.split("\n", 1)[0].split())
    return line if len(line) <= _MOST_SUMMARY else line[: _MOST_SUMMARY - 1].rpartition(" ")[0] or line[:_MOST_SUMMARY]


def _add_unanswered(lines: Sequence[ExampleLine]) -> tuple[ExampleLine, ...]:
    """The lines in their order, and between them the questions that nobody answered yet, each at its own position
    where that is free."""
    if len(lines) > len(QUESTIONS):
        return tuple(lines)
    places = max(
        combinations(range(len(QUESTIONS)), len(lines)),
        key=lambda chosen: sum(line.player == QUESTIONS[at] for at, line in zip(chosen, lines, strict=True)),
    )
    placed = dict(zip(places, lines, strict=True))
    asked = {line.player for line in lines}
    left = [question for question in QUESTIONS if question not in asked]
    for at, question in enumerate(QUESTIONS):
        if at not in placed:
            placed[at] = ExampleLine(player=left.pop(left.index(question) if question in left else 0))
    return tuple(placed[at] for at in range(len(QUESTIONS)))


@reads_authored
def read_sheet_form(text: str, character: str) -> JsonValue:
    """The form that writes this sheet, for `read_in_worker`; None where the sheet says more than a form holds, be it in
    a comment."""
    sheet = parse_model(text, f"{character}.yaml", CharacterSheet)
    lines = [ExampleLine(player=one.player, reply=one.reply) for one in sheet.voice.examples]
    form = SheetForm(
        name=sheet.identity.name,
        who=sheet.core.description or "",
        voice=sheet.voice.style or "",
        lines=_add_unanswered(lines),
        wants="\n".join(sheet.core.goals),
        knows="\n".join(sheet.knowledge.knows),
        must_not_know="\n".join(sheet.knowledge.does_not_know),
        limits="\n".join(sheet.boundaries.forbidden_topics),
        language=sheet.voice.language,
        rating=sheet.boundaries.content_rating or RATINGS[0],
    )
    if len(lines) > len(QUESTIONS) or find_form_faults(form):
        return None
    again = parse_model(write_sheet(form, character), f"{character}.yaml", CharacterSheet)
    is_whole = again == sheet and not parse_document(text, f"{character}.yaml").has_comments(text)
    return form.model_dump(mode="json") if is_whole else None
