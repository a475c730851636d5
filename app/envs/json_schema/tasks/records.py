"""Generated records: a schema, and a text that contains the facts among other things."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from app.domain.digests import digest
from app.domain.values import Frozen
from app.envs.json_schema.tasks.fields import (
    STYLES,
    WORDS_DIGEST,
    Fact,
    Field,
    Kind,
    Object,
    another,
    closed,
    day,
    fact_of,
    person,
)
from app.envs.json_schema.tasks.fields import written as written_day
from app.toolkit.package_data import packaged_data
from app.toolkit.seeded import Draws

Level = Literal["easy", "medium", "hard"]


class _Subject(Frozen):
    title: str
    openings: tuple[str, ...]
    asides: tuple[str, ...]
    """True sentences that belong to no record, with slots `{name}`, `{date}`, `{time}` and `{count}`."""
    fields: tuple[Field, ...]


class Record(Frozen):
    facts: tuple[Fact, ...]
    """The facts that the text contains and the schema asks for."""
    form: Object
    """The schema. It also has optional members of which nothing is known."""
    value: Object
    text: str
    """The source text."""


class _Size(Frozen):
    plain: int
    nested: int
    unknown: int
    """Members of the schema without a value in the text."""
    beside: int
    """Facts in the text that the schema does not ask for."""
    corrected: int
    """Facts that the text first states wrongly and then corrects."""


_SUBJECTS: Final = packaged_data(Path(__file__).with_name("records.yaml"), TypeAdapter(tuple[_Subject, ...]))
_SIZES: Final[Mapping[Level, _Size]] = {
    "easy": _Size(plain=3, nested=0, unknown=0, beside=0, corrected=0),
    "medium": _Size(plain=4, nested=1, unknown=1, beside=1, corrected=0),
    "hard": _Size(plain=5, nested=3, unknown=2, beside=2, corrected=1),
}
_NESTED: Final[frozenset[Kind]] = frozenset(("words", "goods", "address", "contact", "period"))
_HOURS: Final = ("five o'clock", "six in the evening", "noon")

DIGESTS: Final[Mapping[str, str]] = {
    "subjects": digest([subject.model_dump(mode="json") for subject in _SUBJECTS]),
    "words": WORDS_DIGEST,
}


def record(draws: Draws, level: Level) -> Record:
    subject, size = draws.one(_SUBJECTS), _SIZES[level]
    plain = draws.shuffled([field for field in subject.fields if field.kind not in _NESTED])
    nested = draws.shuffled([field for field in subject.fields if field.kind in _NESTED])
    asked = [*plain[: size.plain], *nested[: size.nested]]
    left = draws.shuffled([*plain[size.plain :], *nested[size.nested :]])
    unknown, beside = left[: size.unknown], left[size.unknown : size.unknown + size.beside]
    facts, empty, idle = (
        [fact_of(draws, field, draws.below(STYLES)) for field in fields] for fields in (asked, unknown, beside)
    )
    facts = draws.shuffled(facts)
    optional = [fact.field.name for fact in facts if level != "easy" and draws.chance(30)]
    required = [fact.field.name for fact in facts if fact.field.name not in optional]
    properties = {fact.field.name: fact.form for fact in draws.shuffled([*facts, *empty])}
    return Record(
        facts=tuple(facts),
        form={"title": subject.title, **closed(properties, [name for name in properties if name in required])},
        value={name: fact.value for name in properties for fact in facts if fact.field.name == name},
        text=_told(draws, subject, size, facts, empty, idle),
    )


def _told(
    draws: Draws, subject: _Subject, size: _Size, facts: Sequence[Fact], empty: Sequence[Fact], idle: Sequence[Fact]
) -> str:
    """States every fact once, among sentences that the schema does not ask for. A wrong statement is corrected in the
    next sentence."""
    wrong = {fact.field.name for fact in facts[: size.corrected]}
    sentences = [_corrected(draws, fact) if fact.field.name in wrong else fact.sentence for fact in facts]
    sentences += [fact.sentence for fact in idle]
    sentences += [f"As to “{_label(fact)}”, nothing is known yet." for fact in empty if draws.chance(50)]
    if size.beside or draws.chance(50):
        sentences.append(_aside(draws, subject))
    return " ".join([draws.one(subject.openings), *draws.shuffled(sentences)])


def _corrected(draws: Draws, fact: Fact) -> str:
    put_right = draws.one(("No, that was wrong:", "That has changed since:", "This was a mistake; correctly:"))
    return f"{another(draws, fact).sentence} {put_right} {fact.sentence}"


def _label(fact: Fact) -> str:
    return fact.field.name.replace("_", " ")


def _aside(draws: Draws, subject: _Subject) -> str:
    values = {
        "name": person(draws),
        "date": written_day(day(draws)),
        "time": draws.one(_HOURS),
        "count": str(2 + draws.below(9)),
    }
    return draws.one(subject.asides).format_map(values)
