"""JSON by a schema: what the tasks are, and what is paid."""

import json
from itertools import product
from typing import get_args

import jsonschema_rs
import pytest

from app.domain.values import Frozen
from app.envs.json_schema.environment import JsonExercise, JsonSchema, JsonSchemaParams, Kind
from app.toolkit.json_answers import is_valid
from app.toolkit.procedural import LEVELS, Level
from tests.envs.replies import pose, score_texts
from tests.support.tables import read_table

JSON_SCHEMA = JsonSchema()
KINDS: tuple[Kind, ...] = get_args(Kind)
EXERCISE = read_table(__file__, "exercise.yaml", JsonExercise)
RIGHT = '{"guest": "Mia Berg", "rooms": 2, "paid": 12.5, "pets": true, "extras": ["cot", "sauna"]}'
NO_ANSWER = "no answer was committed"


def paid(reply: str) -> tuple[float | None, float | None, str]:
    """Reward, whether it was valid, and why; the criterion `correct` is the reward."""
    (score,) = score_texts(JSON_SCHEMA, pose(EXERCISE), reply)
    correct, valid = score.criteria
    weights = [(one.name, one.weight) for one in score.criteria]
    assert (weights, correct.value) == ([("correct", 1.0), ("valid", 0.0)], score.reward)
    return score.reward, valid.value, score.rationale


class Tables(Frozen):
    """The tables of answers.yaml, which says what each holds."""

    right: tuple[str, ...]
    wrong: tuple[tuple[str, tuple[float, float, str]], ...]


TABLES = read_table(__file__, "answers.yaml", Tables)


@pytest.mark.parametrize("answer", TABLES.right)
def test_one_value_is_right_however_it_is_written(answer: str) -> None:
    assert paid(f"<answer>{answer}</answer>") == (1.0, 1.0, "correct")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [*TABLES.wrong, ("[" * 9_999, (0.0, 0.0, "it is not strict JSON: the JSON is nested too deep"))],
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
    assert (wrong, len({json.dumps(one.value) for one in made}) > 0.9 * len(made)) == ([], True)


def test_harder_ones_are_larger() -> None:
    sizes = {level: {len(one.value) for one in exercises("fill", level)} for level in LEVELS}
    assert sizes == {"first": {1}, "easy": {3}, "medium": {5}, "hard": {8}}


def test_params_choose_the_kind() -> None:
    tasks = [JSON_SCHEMA.task("test", index, JsonSchemaParams()) for index in range(200)]
    kinds = [task.metadata["kind"] for task in tasks]
    assert [kinds.count(kind) > 70 for kind in KINDS] == [True, True]
