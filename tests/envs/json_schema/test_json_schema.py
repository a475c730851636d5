"""JSON by a schema: what the tasks are, and what is paid."""

import json
from itertools import product
from typing import get_args

import jsonschema_rs
import pytest

from app.envs.json_schema.environment import JsonExercise, JsonSchema, JsonSchemaParams, Kind
from app.toolkit.json_answers import is_valid
from app.toolkit.procedural import LEVELS, Level
from tests.envs.replies import pose, score_texts

JSON_SCHEMA = JsonSchema()
KINDS: tuple[Kind, ...] = get_args(Kind)
EXERCISE = JsonExercise(
    kind="fill",
    text="",
    form={
        "type": "object",
        "properties": {
            "guest": {"type": "string"},
            "rooms": {"type": "integer"},
            "paid": {"type": "number"},
            "pets": {"type": "boolean"},
            "extras": {"type": "array", "items": {"type": "string"}},
            "remark": {"type": ["string", "null"]},
        },
        "required": ["guest"],
        "additionalProperties": False,
    },
    value={"guest": "Mia Berg", "rooms": 2, "paid": 12.5, "pets": True, "extras": ["cot", "sauna"]},
)
RIGHT = '{"guest": "Mia Berg", "rooms": 2, "paid": 12.5, "pets": true, "extras": ["cot", "sauna"]}'
ANOTHER = "it is valid by the schema, but another value"
INVALID = "it is not valid by the schema"
UNREADABLE = "it is not strict JSON: the JSON cannot be read"
LONG = "it is not strict JSON: a whole number has more than 100 digits"
NO_TEXT = "it is not strict JSON: the JSON is nested too deep or holds what is no text"
NO_ANSWER = "no answer was committed"


def paid(reply: str) -> tuple[float | None, float | None, str]:
    """Reward, whether it was valid, and why; the criterion `correct` is the reward."""
    (score,) = score_texts(JSON_SCHEMA, pose(EXERCISE), reply)
    correct, valid = score.criteria
    weights = [(one.name, one.weight) for one in score.criteria]
    assert (weights, correct.value) == ([("correct", 1.0), ("valid", 0.0)], score.reward)
    return score.reward, valid.value, score.rationale


@pytest.mark.parametrize(
    "answer",
    [
        *(RIGHT, f"```json\n{RIGHT}\n```", f"```\n{RIGHT}```"),
        '{"extras":["cot","sauna"],"pets":true,"paid":12.50,"rooms":2.0,"guest":"Mia Ber\\u0067"}',
        RIGHT.replace("12.5", "1.25e1").replace(": 2", ": 2e0"),
    ],
)
def test_one_value_is_right_however_it_is_written(answer: str) -> None:
    assert paid(f"<answer>{answer}</answer>") == (1.0, 1.0, "correct")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("{}", (0.0, 0.0, INVALID)),
        ("null", (0.0, 0.0, INVALID)),
        ('{"guest": ""}', (0.0, 1.0, ANOTHER)),
        ('{"guest": "Mia Berg"}', (0.0, 1.0, ANOTHER)),
        (RIGHT.replace("Mia", "mia"), (0.0, 1.0, ANOTHER)),
        (RIGHT.replace("Berg", "Berg "), (0.0, 1.0, ANOTHER)),
        (RIGHT.replace('"cot", "sauna"', '"sauna", "cot"'), (0.0, 1.0, ANOTHER)),
        (RIGHT.replace("}", ', "remark": null}'), (0.0, 1.0, ANOTHER)),
        (RIGHT.replace("}", ', "note": 1}'), (0.0, 0.0, INVALID)),
        (RIGHT.replace(": 2", ': "2"'), (0.0, 0.0, INVALID)),
        (RIGHT.replace("true", "1"), (0.0, 0.0, INVALID)),
        (RIGHT.replace(": 2", ": true"), (0.0, 0.0, INVALID)),
        (RIGHT.replace("true", "True"), (0.0, 0.0, UNREADABLE)),
        (RIGHT.replace('"', "'"), (0.0, 0.0, UNREADABLE)),
        (RIGHT.replace("]}", "],}"), (0.0, 0.0, UNREADABLE)),
        (RIGHT + " // done", (0.0, 0.0, "it is not strict JSON: there is more than one JSON value")),
        (f"Here it is: {RIGHT}", (0.0, 0.0, UNREADABLE)),
        (f"```json\n{RIGHT}\n```\n```json\n{RIGHT}\n```", (0.0, 0.0, UNREADABLE)),
        (RIGHT.replace("12.5", "NaN"), (0.0, 0.0, "it is not strict JSON: NaN is not JSON")),
        (RIGHT.replace("12.5", "1e999"), (0.0, 0.0, "it is not strict JSON: a number is out of range")),
        (RIGHT.replace(": 2", ": " + "2" * 101), (0.0, 0.0, LONG)),
        (RIGHT.replace("}", ', "rooms": 2}'), (0.0, 0.0, "it is not strict JSON: an object names a member twice")),
        ("[" * 9_999, (0.0, 0.0, "it is not strict JSON: the JSON is nested too deep")),
        ("[" * 40 + "]" * 40, (0.0, 0.0, NO_TEXT)),
        (RIGHT.replace("Berg", "\\ud800"), (0.0, 0.0, NO_TEXT)),
    ],
)
def test_every_other_text_earns_nothing(answer: str, expected: tuple[float, float, str]) -> None:
    assert paid(f"<answer>{answer}</answer>") == expected


def test_without_an_answer_nothing_was_valid() -> None:
    assert paid(RIGHT) == (0.0, 0.0, NO_ANSWER)


def exercises(kind: Kind, level: Level, count: int = 40) -> list[JsonExercise]:
    params = JsonSchemaParams(kind=kind, level=level)
    return [JSON_SCHEMA.parse_reference(JSON_SCHEMA.task("train", index, params)) for index in range(count)]


@pytest.mark.parametrize(("kind", "level"), list(product(KINDS, LEVELS)))
def test_schemas_are_schemas_and_fit_what_is_right(kind: Kind, level: Level) -> None:
    made = exercises(kind, level)
    wrong = [
        one
        for one in made
        if not (jsonschema_rs.meta.is_valid(one.form) and is_valid(one.value, one.form) and one.kind == kind)
    ]
    assert (wrong, len({json.dumps(one.value) for one in made})) == ([], len(made))


def test_harder_ones_are_larger() -> None:
    sizes = {level: {len(one.value) for one in exercises("fill", level)} for level in LEVELS}
    assert sizes == {"easy": {3}, "medium": {5}, "hard": {8}}


def test_params_choose_the_kind() -> None:
    tasks = [JSON_SCHEMA.task("test", index, JsonSchemaParams()) for index in range(200)]
    kinds = [task.metadata["kind"] for task in tasks]
    assert [kinds.count(kind) > 70 for kind in KINDS] == [True, True]
