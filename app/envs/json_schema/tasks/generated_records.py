"""Generated records: a schema, and a text that contains the facts among other things."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from app.domain.digests import digest
from app.domain.values import Frozen
from app.envs.json_schema.tasks.record_fields import (
    STYLES,
    WORDS_DIGEST,
    Kind,
    Object,
    RecordFact,
    RecordField,
    build_object_schema,
    draw_day,
    draw_fact,
    draw_other_fact,
    draw_person,
    write_date,
)
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

Level = Literal["easy", "medium", "hard"]


class _RecordSubject(Frozen):
    title: str
    openings: tuple[str, ...]
    asides: tuple[str, ...]
    """True sentences that belong to no record, with slots `{name}`, `{date}`, `{time}` and `{count}`."""
    fields: tuple[RecordField, ...]


class GeneratedRecord(Frozen):
    facts: tuple[RecordFact, ...]
    """The facts that the text contains and the schema asks for."""
    form: Object
    """The schema. It also has optional members of which nothing is known."""
    value: Object
    text: str
    """The source text."""


class _RecordSize(Frozen):
    plain: int
    nested: int
    unknown: int
    """Members of the schema without a value in the text."""
    beside: int
    """Facts in the text that the schema does not ask for."""
    corrected: int
    """Facts that the text first states wrongly and then corrects."""


_SUBJECTS: Final = read_packaged_data(Path(__file__).with_name("records.yaml"), TypeAdapter(tuple[_RecordSubject, ...]))
_SIZES: Final[Mapping[Level, _RecordSize]] = {
    "easy": _RecordSize(plain=3, nested=0, unknown=0, beside=0, corrected=0),
    "medium": _RecordSize(plain=4, nested=1, unknown=1, beside=1, corrected=0),
    "hard": _RecordSize(plain=5, nested=3, unknown=2, beside=2, corrected=1),
}
_NESTED: Final[frozenset[Kind]] = frozenset(("words", "goods", "address", "contact", "period"))
_HOURS: Final = ("five o'clock", "six in the evening", "noon")

DIGESTS: Final[Mapping[str, str]] = {
    "subjects": digest([subject.model_dump(mode="json") for subject in _SUBJECTS]),
    "words": WORDS_DIGEST,
}


def draw_record(draws: SeededRandom, level: Level) -> GeneratedRecord:
    subject, size = draws.one(_SUBJECTS), _SIZES[level]
    plain = draws.shuffled([field for field in subject.fields if field.kind not in _NESTED])
    nested = draws.shuffled([field for field in subject.fields if field.kind in _NESTED])
    asked = [*plain[: size.plain], *nested[: size.nested]]
    left = draws.shuffled([*plain[size.plain :], *nested[size.nested :]])
    unknown, beside = left[: size.unknown], left[size.unknown : size.unknown + size.beside]
    facts, empty, idle = (
        [draw_fact(draws, field, draws.below(STYLES)) for field in fields] for fields in (asked, unknown, beside)
    )
    facts = draws.shuffled(facts)
    optional = [fact.field.name for fact in facts if level != "easy" and draws.chance(30)]
    required = [fact.field.name for fact in facts if fact.field.name not in optional]
    properties = {fact.field.name: fact.form for fact in draws.shuffled([*facts, *empty])}
    return GeneratedRecord(
        facts=tuple(facts),
        form={
            "title": subject.title,
            **build_object_schema(properties, [name for name in properties if name in required]),
        },
        value={name: fact.value for name in properties for fact in facts if fact.field.name == name},
        text=_write_text(draws, subject, size, facts, empty, idle),
    )


def _write_text(
    draws: SeededRandom,
    subject: _RecordSubject,
    size: _RecordSize,
    facts: Sequence[RecordFact],
    empty: Sequence[RecordFact],
    idle: Sequence[RecordFact],
) -> str:
    """States every fact once, among sentences that the schema does not ask for. A wrong statement is corrected in the
    next sentence."""
    wrong = {fact.field.name for fact in facts[: size.corrected]}
    sentences = [_write_corrected_fact(draws, fact) if fact.field.name in wrong else fact.sentence for fact in facts]
    sentences += [fact.sentence for fact in idle]
    sentences += [f"As to “{_write_label(fact)}”, nothing is known yet." for fact in empty if draws.chance(50)]
    if size.beside or draws.chance(50):
        sentences.append(_draw_aside(draws, subject))
    return " ".join([draws.one(subject.openings), *draws.shuffled(sentences)])


def _write_corrected_fact(draws: SeededRandom, fact: RecordFact) -> str:
    put_right = draws.one(("No, that was wrong:", "That has changed since:", "This was a mistake; correctly:"))
    return f"{draw_other_fact(draws, fact).sentence} {put_right} {fact.sentence}"


def _write_label(fact: RecordFact) -> str:
    return fact.field.name.replace("_", " ")


def _draw_aside(draws: SeededRandom, subject: _RecordSubject) -> str:
    values = {
        "name": draw_person(draws),
        "date": write_date(draw_day(draws)),
        "time": draws.one(_HOURS),
        "count": str(2 + draws.below(9)),
    }
    return draws.one(subject.asides).format_map(values)
