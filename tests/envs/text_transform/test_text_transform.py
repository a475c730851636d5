"""Text transform: every step does what its words say, on words written out by hand."""

import pytest

from app.envs.text_transform.environment import CHANGES, TextTransform, TextTransformParams, TransformExercise
from tests.envs.replies import pose, score_texts
from tests.support.tables import read_table

ENVIRONMENT = TextTransform()
WORDS = ("otter", "maple", "zigzag", "maple", "oboe")


def test_every_step_does_what_it_says() -> None:
    by_hand = read_table(__file__, "by_hand.yaml", dict[str, str])
    assert {step.format(number=2): " ".join(change(WORDS, 2)) for step, change in CHANGES.items()} == by_hand


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        *(("retto elpam", 1.0), ("retto\n  elpam", 1.0), ("Retto elpam", 0.0), ("retto, elpam", 0.0)),
        ("rettoelpam", 0.0),
        ("elpam retto", 0.0),
    ],
)
def test_only_white_space_is_left_open(answer: str, reward: float) -> None:
    made = TransformExercise(words=("otter", "maple"), steps=(), result="retto elpam")
    (score,) = score_texts(ENVIRONMENT, pose(made), f"<answer>{answer}</answer>")
    assert score.reward == reward


def test_no_step_is_asked_for_twice() -> None:
    params = TextTransformParams(steps=5, words=20)
    made = [ENVIRONMENT.parse_reference(ENVIRONMENT.task("train", index, params)).steps for index in range(100)]
    assert [steps for steps in made if len({*steps}) < len(steps)] == []


@pytest.mark.parametrize(("steps", "words"), [(1, 3), (5, 3), (5, 20)])
def test_there_are_as_many_steps_as_wanted(steps: int, words: int) -> None:
    params = TextTransformParams(steps=steps, words=words)
    prompts = [f"\n{ENVIRONMENT.task('train', index, params).messages[0].content}" for index in range(200)]
    assert [f"\n{steps}. " in prompt and f"\n{steps + 1}. " not in prompt for prompt in prompts] == [True] * 200
