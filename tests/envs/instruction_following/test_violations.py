"""Every kind of instruction is checked: a reply that breaks it earns nothing, one of a kind that nobody knows neither.

What people report of checkers of IFEval is that kinds without a check of their own are always followed, and that of two
instructions of one kind only the last counts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from pydantic import JsonValue, ValidationError

from app.domain.scores import Score
from app.domain.tasks import Task
from app.domain.values import Frozen
from app.envs.instruction_following.environment import InstructionFollowing
from app.envs.instruction_following.ifeval_checks import ARGUMENTS, IfevalInstruction
from app.envs.instruction_following.ifeval_rows import IfevalRow, IfevalTask, IfevalTrainingRow, Strictness
from tests.envs.replies import score_texts
from tests.support.tables import read_table

MEANINGS: Final[tuple[Strictness, ...]] = ("ours", "published", "loose")
PROMPT: Final = "Tell of a trip to a lake."
TRIP: Final = "We left before dawn and rowed out until the town was only a line behind us."
REST: Final = "The oars were heavy and my hands were cold but nobody spoke about turning back."


class Replies(Frozen):
    arguments: Mapping[str, JsonValue]
    followed: str
    broken: str


REPLIES: Final = read_table(__file__, "violations.yaml", dict[str, Replies])


def expand(text: str) -> str:
    return text.replace("TRIP", TRIP).replace("REST", REST).replace("PROMPT", PROMPT)


def pose(instructions: Sequence[Mapping[str, Any]], strictness: Strictness) -> Task:
    asked = IfevalTask(
        prompt=PROMPT,
        instructions=tuple(IfevalInstruction.model_validate(one) for one in instructions),
        strictness=strictness,
    )
    return Task(messages=(), reference=asked.model_dump(mode="json", exclude_unset=True))


def read_earnings(score: Score) -> tuple[float | None, float | None]:
    """The reward, and the share of instructions that were followed."""
    return score.reward, score.criteria[1].value


@pytest.mark.parametrize("strictness", MEANINGS)
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_a_reply_that_breaks_an_instruction_earns_nothing_for_it(kind: str, strictness: Strictness) -> None:
    given = REPLIES[kind]
    arguments = {name: expand(one) if isinstance(one, str) else one for name, one in given.arguments.items()}
    task = pose([{"id": kind, "arguments": arguments}], strictness)
    scores = score_texts(InstructionFollowing(), task, expand(given.followed), expand(given.broken))
    assert [read_earnings(score) for score in scores] == [(1.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize("strictness", MEANINGS)
@pytest.mark.parametrize(
    ("kind", "first", "second", "replies"),
    [
        (
            "length_constraints:number_words",
            {"relation": "at least", "num_words": 20},
            {"relation": "less than", "num_words": 40},
            {f"{TRIP} {REST}": 1.0, TRIP: 0.5, f"{TRIP} {REST} {TRIP[3:]}": 0.5},
        ),
        (
            "keywords:frequency",
            {"relation": "at least", "keyword": "heron", "frequency": 1},
            {"relation": "at least", "keyword": "reeds", "frequency": 1},
            {f"{TRIP} A heron in the reeds.": 1.0, f"{TRIP} A heron.": 0.5, f"{TRIP} Only reeds.": 0.5, TRIP: 0.0},
        ),
    ],
)
def test_two_instructions_of_one_kind_are_both_checked(
    kind: str,
    first: Mapping[str, JsonValue],
    second: Mapping[str, JsonValue],
    replies: Mapping[str, float],
    strictness: Strictness,
) -> None:
    row = {"prompt": PROMPT, "instruction_id_list": [kind, kind], "kwargs": [first, second]}
    truth = [{"instruction_id": [kind, kind], "kwargs": [second, first]}]
    training = {"messages": [{"role": "user", "content": PROMPT}], "ground_truth": repr(truth)}
    for instructions in (
        IfevalRow.model_validate(row).instructions,
        IfevalTrainingRow.model_validate(training).instructions,
    ):
        task = pose([one.model_dump(exclude_unset=True) for one in instructions], strictness)
        scores = score_texts(InstructionFollowing(), task, *replies)
        earned = [read_earnings(score) for score in scores]
        assert earned == [(1.0 if share == 1.0 else 0.0, share) for share in replies.values()]


@pytest.mark.parametrize(
    "kind",
    [
        *("keywords:must_include", "count:numbers", "punctuation:no_comma ", "Punctuation:No_Comma", "no_comma"),
        *("punctuation", "", None, 7, ["punctuation:no_comma"], {"punctuation": "no_comma"}),
    ],
)
def test_an_unknown_instruction_is_never_followed(kind: Any) -> None:
    """Its row makes no task, alone or beside known ones, and what was stored with it cannot be scored."""
    kinds: list[Any] = ["punctuation:no_comma", kind]
    kwargs: list[dict[str, JsonValue]] = [{}, {}]
    truth = repr([{"instruction_id": kinds, "kwargs": kwargs}])
    with pytest.raises(ValidationError):
        IfevalRow.model_validate({"prompt": PROMPT, "instruction_id_list": kinds, "kwargs": kwargs})
    with pytest.raises(ValidationError):
        IfevalTrainingRow.model_validate({"messages": [{"role": "user", "content": PROMPT}], "ground_truth": truth})
    stored: dict[str, JsonValue] = {
        "prompt": PROMPT,
        "instructions": [{"id": kind, "arguments": {}}],
        "strictness": "published",
    }
    with pytest.raises(ValidationError):
        score_texts(InstructionFollowing(), Task(messages=(), reference=stored), TRIP)
