"""JSON by a schema: extract a record from a text, or repair a broken record.

    prompt   Text: A parcel has been handed in … It goes to Mia Berg. It weighs six kg. No, that was wrong: …
             JSON Schema of the record: {"type": "object", "properties": {"recipient": …}, …}
    reply    <answer>{"recipient": "Mia Berg", "weight_kg": 7}</answer>
    reward   1.0   strict JSON, valid by the schema, and the one value that is right

Validity alone earns nothing; the criterion `valid` (weight 0) reports it. Not paid: the empty object, nulls or invented
values for unknown facts, facts that the schema has no place for, NaN, a duplicate member, text around the JSON (a fence
is accepted). Numbers are compared by value, so `3.0` is the integer 3, as in JSON Schema; `true` and `"3"` are not
numbers.

Half of the tasks are of each kind, unless `kind` chooses one:

- `fill`: a text and a schema. Asked for is every fact that the schema has a member for, in the schema's form. The text
  tells dates, times, sums and durations in words (`a quarter to nine in the evening` for `20:45`), holds facts without
  a place, and at `hard` corrects a value. Members that the text does not give must be left out.
- `repair`: a broken record, its schema, and facts where needed. Faults are of syntax, of values (a number as text, a
  date in words, a misspelt name) and lost values, which the facts give.

Records have 1 member at `first`, 3 at `easy`, 5 at `medium` and 8 at `hard`. Hard schemas have objects, lists of
objects, and `anyOf`. The answer stands in `<answer>` tags and nothing else does. It has at most 10,000 characters, 32
levels, and 100 digits in a whole number. Members have no order, items do; texts are equal letter for letter.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import JsonValue

from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Task
from app.domain.values import Frozen, canonical_json
from app.envs.json_schema.records import DIGESTS, break_record, draw_record
from app.ports import Tools
from app.toolkit.answers import grade_committed
from app.toolkit.json_answers import ANOTHER, find_fault
from app.toolkit.procedural import LEVELS, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings
from app.toolkit.thoughts import map_completions

Kind = Literal["fill", "repair"]
_FOLDER = Path(__file__).parent
_REPAIR = Phrasings.read(_FOLDER / "repair.yaml")


class JsonSchemaParams(LevelParams):
    """The level sets the size of the record. For `fill` it also sets how much of the text is irrelevant or corrected
    later; for `repair`, how many faults there are, and how many of them need the given facts."""

    kind: Kind | Literal["both"] = "both"
    """`fill`: a record from a text. `repair`: a record from a broken one. `both`: half of each."""


class JsonExercise(Frozen):
    kind: Kind
    form: dict[str, JsonValue]
    """The schema."""
    text: str
    known: tuple[str, ...] = ()
    value: dict[str, JsonValue]


class JsonSchema(ProceduralEnvironment[JsonExercise, JsonSchemaParams]):
    name: ClassVar[str] = "json_schema"
    version: ClassVar[str] = "2"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "fill.yaml")
    data: ClassVar[Mapping[str, str]] = {"repair": _REPAIR.digest, **DIGESTS}

    def make(self, draws: SeededRandom, level: Level, params: JsonSchemaParams) -> JsonExercise:
        kind = draws.one(("fill", "repair")) if params.kind == "both" else params.kind
        made = draw_record(draws, level)
        if kind == "fill":
            return JsonExercise(kind="fill", form=made.form, text=made.text, value=made.value)
        while not find_fault((spoilt := break_record(draws, made, level)).text, made.form, made.value):
            pass
        return JsonExercise(kind="repair", form=made.form, text=spoilt.text, known=spoilt.known, value=made.value)

    def key(self, made: JsonExercise) -> str:
        return canonical_json(made.value)

    def wording(self, made: JsonExercise) -> Phrasings:
        return self.phrasings if made.kind == "fill" else _REPAIR

    def slots(self, made: JsonExercise) -> Mapping[str, str | int]:
        known = f"What is known besides: {' '.join(made.known)}" if made.known else "Nothing else is known of it."
        return {"schema": json.dumps(made.form, ensure_ascii=False), "text": made.text, "known": known}

    def metadata(self, made: JsonExercise) -> dict[str, JsonValue]:
        return {"kind": made.kind, "members": len(made.value)}

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        made = self.parse_reference(task)

        def score_one(one: Completion) -> Score:
            return _add_validity(grade_committed(one.answer, lambda answer: self.fault(answer, made)))

        return await map_completions(group, score_one)

    def fault(self, answer: str, made: JsonExercise) -> str:
        return find_fault(answer, made.form, made.value)

    def solution(self, made: JsonExercise) -> str:
        return json.dumps(made.value, ensure_ascii=False)


def _add_validity(score: Score) -> Score:
    """Adds the criterion `valid`, which has no weight."""
    valid = float(score.reward == 1.0 or score.rationale == ANOTHER)
    return score.model_copy(update={"criteria": (*score.criteria, Criterion(name="valid", value=valid, weight=0.0))})
