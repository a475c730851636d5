"""What generated environments share: levels, splits, prompts, an answer in tags."""

import asyncio
import re
from collections.abc import Mapping
from typing import ClassVar

import pytest

from app.domain.errors import InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.domain.values import Frozen
from app.ports.environment import Tools
from app.service.judging import NoPanel
from app.toolkit.procedural import LEVELS, MIXED, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.templates import Phrasings


class Sum(Frozen):
    one: int
    other: int


class Sums(ProceduralEnvironment[Sum, LevelParams]):
    name: ClassVar[str] = "sums"
    version: ClassVar[str] = "1"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    phrasings: ClassVar[Phrasings] = Phrasings(["{number}: {one} + {other}?", "{number}: add {one} to {other}."])
    data: ClassVar[Mapping[str, str]] = {"words": "w"}

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Sum:
        most = 10 ** (1 + LEVELS.index(level))
        return Sum(one=draws.below(most), other=draws.below(most))

    def key(self, made: Sum) -> str:
        return str(sorted([made.one, made.other]))

    def slots(self, made: Sum) -> Mapping[str, str | int]:
        return {"one": made.one, "other": made.other}

    def fault(self, answer: str, made: Sum) -> str:
        return "" if answer == self.solution(made) else "it is another number"

    def solution(self, made: Sum) -> str:
        return str(made.one + made.other)


SUMS = Sums()
TRAIN = [SUMS.task("train", index, LevelParams()) for index in range(300)]


def test_levels_come_evenly_and_say_themselves() -> None:
    said = [task.metadata["level"] for task in TRAIN]
    assert [said.count(level) > 75 for level in MIXED] == [True] * 3
    assert [SUMS.label("train", index, LevelParams()) for index in range(300)] == said


def test_a_task_of_the_first_level_comes_after_two_solved_ones_of_training() -> None:
    params, found = LevelParams(level="first"), []
    for task in (SUMS.task("test", index, params) for index in range(30)):
        texts = [one.content or "" for one in task.messages]
        numbers = [[int(number) for number in re.findall(r"\d+", text)][-2:] for text in texts]
        shown = [numbers[0], numbers[2]]
        found.append(
            (
                [one.role for one in task.messages],
                [f"<answer>{sum(pair)}</answer>" for pair in shown] == texts[1:4:2],
                len({*map(str, map(sorted, [*shown, numbers[4]]))}),
                any(is_held_out(str(sorted(pair))) for pair in shown),
            )
        )
    assert found == [(["user", "assistant", "user", "assistant", "user"], True, 3, False)] * 30


@pytest.mark.parametrize("level", LEVELS)
def test_one_level_may_be_asked_for(level: Level) -> None:
    tasks = [SUMS.task("test", index, LevelParams(level=level)) for index in range(50)]
    most = 10 ** (1 + LEVELS.index(level))
    assert {
        (task.metadata["level"], max(SUMS.parse_reference(task).one, SUMS.parse_reference(task).other) < most)
        for task in tasks
    } == {(level, True)}


def test_a_level_that_an_environment_does_not_know_is_refused() -> None:
    class Three(Sums):
        levels: ClassVar[tuple[Level, ...]] = MIXED

    for level in (*MIXED, "mixed"):
        Three().check_params(LevelParams.model_validate({"level": level}))
    with pytest.raises(InvalidRequest, match="there are easy, medium, hard, mixed and auto") as raised:
        Three().check_params(LevelParams(level="first"))
    assert raised.value.field == "params.level"


def test_no_key_is_in_both_splits() -> None:
    hard = LevelParams(level="easy")
    keys = {
        split: {SUMS.key(SUMS.parse_reference(SUMS.task(split, index, hard))) for index in range(400)}
        for split in ("train", "test")
    }
    assert (keys["train"] & keys["test"], len(keys["test"]) > 1) == (set(), True)


def test_prompts_take_every_phrasing_and_a_number_of_their_own() -> None:
    prompts = [task.messages[0].content or "" for task in TRAIN]
    assert {prompt.split(":")[0] for prompt in prompts} == {str(2 * index) for index in range(300)}
    assert {prompt.endswith("?") for prompt in prompts} == {True, False}


def test_an_answer_is_scored_alone() -> None:
    made = Sum(one=2, other=5)
    task = TRAIN[0].model_copy(update={"reference": made.model_dump(mode="json")})
    gold = SUMS.gold(task)
    group = [gold or Completion(text=""), Completion(text="<answer>8</answer>"), Completion(text="7")]
    scores = asyncio.run(SUMS.score(task, group, Tools(panel=NoPanel())))
    assert scores == [
        Score.exact(True, rationale="correct"),
        Score.exact(False, rationale="it is another number"),
        Score.exact(False, rationale="no answer was committed").model_copy(update={"flags": ("no_answer",)}),
    ]


def test_what_it_rests_on_is_in_its_digests() -> None:
    assert SUMS.digests == {"prompts": Sums.phrasings.digest, "words": "w"}
    assert (SUMS.size("train", LevelParams()), SUMS.size("test", LevelParams())) == (None, 1_000)


def test_what_has_the_same_answer_is_equivalent() -> None:
    sums = [
        TRAIN[0].model_copy(update={"reference": {"one": one, "other": other}})
        for one, other in ((2, 5), (5, 2), (3, 4), (3, 5))
    ]
    assert [SUMS.equivalent(sums[0], task) for task in sums] == [True, True, True, False]


class Worded(Sums):
    """Even ones are asked for in other words."""

    name: ClassVar[str] = "worded"

    def wording(self, made: Sum) -> Phrasings:
        return Phrasings(["{number} even"]) if made.one % 2 == 0 else self.phrasings


def test_kinds_of_task_may_have_words_of_their_own() -> None:
    tasks = [Worded().task("train", index, LevelParams()) for index in range(50)]
    even = [SUMS.parse_reference(task).one % 2 == 0 for task in tasks]
    assert [(task.messages[0].content or "").endswith("even") for task in tasks] == even
