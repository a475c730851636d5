"""Instruction following as an environment: what a reply earns, what tricks earn, and how tasks differ."""

import re
from collections import Counter
from functools import cache

import pytest
from pydantic import JsonValue

from app.domain.scores import Criterion, Score
from app.domain.tasks import Task
from app.envs.instruction_following.assignments import Assignment
from app.envs.instruction_following.counted_kinds import NoCommas, SentencesExactly, WordTimes
from app.envs.instruction_following.environment import InstructionFollowing, InstructionFollowingParams
from app.envs.instruction_following.instructions import WritingRequest, parse_text
from app.envs.instruction_following.layout_kinds import LastWord
from app.envs.instruction_following.texts import FUNCTION_WORDS
from app.toolkit.seeded import SeededRandom
from tests.envs.replies import pose, score_texts
from tests.support.tables import read_table
from tests.support.tiers import examples

ENVIRONMENT = InstructionFollowing()
MADE = Assignment(
    request=WritingRequest(form="Write a story about", thing="violin", place="harbour", reader="", least=30),
    instructions=(NoCommas(), SentencesExactly(count=4), LastWord(word="again"), WordTimes(word="captain", count=1)),
    asked=("Use no commas.", "Write four sentences.", "End with again.", "Use captain once."),
)
TEXT = (
    "An old violin lay in the harbour for years. Nobody knew who had left it there. On windy nights it sang by itself "
    "and the captain took off his cap. One morning a girl came to take it home again."
)


def expected(reward: float, share: float, rationale: str, *flags: str) -> Score:
    return Score(
        outcome="scored",
        reward=reward,
        gate=1.0,
        absolute=reward,
        criteria=(
            Criterion(name="followed", value=reward, weight=1.0, note="all instructions"),
            Criterion(name="share", value=share, weight=0.0, note="of the instructions, where it is a text at all"),
        ),
        rationale=rationale,
        flags=flags,
    )


@cache
def tasks() -> list[Task]:
    return [
        ENVIRONMENT.task("train", index, InstructionFollowingParams()) for index in range(examples(1_200, fewest=90))
    ]


ALL = "all instructions are followed"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (TEXT, expected(1.0, 1.0, ALL)),
        (f"<think>Four sentences, no commas.</think>\n\n{TEXT}\n", expected(1.0, 1.0, ALL)),
        (f"{TEXT}<|im_end|> and more", expected(1.0, 1.0, ALL)),
        (TEXT.replace("itself and", "itself, and"), expected(0.0, 0.75, "1 comma where none was asked")),
        (
            f"{TEXT} The captain, alone, smiled.",
            expected(
                0.0,
                0.0,
                "2 commas where none was asked; 5 sentences where exactly 4 were asked; "
                'its last word is not "again"; "captain" 2 times where exactly 1 were asked',
            ),
        ),
        ("", expected(0.0, 0.0, "0 words of its own where at least 30 were asked")),
        (TEXT[:60], expected(0.0, 0.0, "12 words of its own where at least 30 were asked")),
        (f"<think>{TEXT}", expected(0.0, 0.0, "the thinking never ended", "unfinished_thinking")),
        (f"<think>{TEXT}</think>", expected(0.0, 0.0, "0 words of its own where at least 30 were asked")),
    ],
)
def test_what_a_reply_earns(text: str, result: Score) -> None:
    assert score_texts(ENVIRONMENT, pose(MADE), text) == [result]


def tricks(task: Task, other: Task, draws: SeededRandom) -> dict[str, str]:
    prompt = task.messages[0].content or ""
    request, words = ENVIRONMENT.parse_reference(task).request, prompt.split()
    both = f"{request.thing} {request.place}"
    function = sorted(FUNCTION_WORDS)
    return {
        "nothing": "",
        "the prompt": prompt,
        "the prompt, twice": f"{prompt}\n{prompt}",
        "the prompt's words in disorder": " ".join(draws.shuffled(words)),
        "keywords": ", ".join([request.thing, request.place] * 40),
        "one word over and over": "reward " * 80,
        "sentences of one word": f"{request.thing}. {request.place}. " * 40,
        "a sentence over and over": f"There is a {request.thing} in the {request.place} and we like it a lot. " * 9,
        "random words": " ".join(draws.some(function, 90)) + f" {both}.",
        "what ties words together": ". ".join(" ".join(draws.some(function, 7)) for _ in range(12)) + f" {both}.",
        "another's gold": ENVIRONMENT.parse_reference(other).gold,
    }


@pytest.mark.deep
def test_no_trick_is_paid() -> None:
    paid = Counter[str]()
    for number, task in enumerate(tasks()):
        texts = tricks(task, tasks()[number - 1], SeededRandom(str(number)))
        for name, result in zip(texts, score_texts(ENVIRONMENT, task, *texts.values()), strict=True):
            paid[name] += result.reward != 0.0 or result.criteria[1].value != 0.0
    assert dict(paid) == dict.fromkeys(paid, 0)


def invent(word: str, draws: SeededRandom) -> str:
    """A word of the same length and case that can be said and means nothing."""
    made = "".join(draws.one("bcdfgklmnprstvz" if place % 2 else "aeiou") for place in range(len(word)))
    return made.upper() if word.isupper() else made.title() if word.istitle() else made


def replace_meaning(task: Task, draws: SeededRandom) -> str:
    """The right answer with an invented word for each that means something and that the prompt does not name."""
    made = ENVIRONMENT.parse_reference(task)
    kept = {*FUNCTION_WORDS, *parse_text(task.messages[0].content or "").bare}

    def replace(found: re.Match[str]) -> str:
        return found[0] if found[0].casefold() in kept else invent(found[0], draws)

    return re.sub(r"[A-Za-z']+", replace, made.gold)


@pytest.mark.deep
def test_invented_words_are_not_paid() -> None:
    """In the right form they earned .94 (easy), .88 and .74 (hard)."""
    texts = [(task, replace_meaning(task, SeededRandom(str(number)))) for number, task in enumerate(tasks())]
    paid = sum(score_texts(ENVIRONMENT, task, text)[0].reward == 1.0 for task, text in texts)
    assert paid <= 0.01 * len(texts)


@pytest.mark.parametrize(
    ("asked", "numbers", "hard"),
    read_table(__file__, "levels.yaml", list[tuple[dict[str, JsonValue], set[int], set[int]]]),
)
def test_harder_tasks_have_more_and_harder_instructions_unless_a_number_is_asked_for(
    asked: dict[str, JsonValue], numbers: set[int], hard: set[int]
) -> None:
    params = InstructionFollowingParams.model_validate(asked)
    made = [ENVIRONMENT.parse_reference(ENVIRONMENT.task("test", index, params)).instructions for index in range(40)]
    assert ({len(one) for one in made}, {sum(each.hard for each in one) for one in made}) == (numbers, hard)


def test_a_prompt_says_all_that_is_checked() -> None:
    for task in tasks():
        made, prompt = ENVIRONMENT.parse_reference(task), task.messages[0].content or ""
        wanted = [made.request.sentence, *made.asked, made.request.thing, made.request.place, f"{made.request.least}"]
        assert [text for text in wanted if text not in prompt] == []


def test_metadata_say_which_kinds_are_asked_for() -> None:
    task = tasks()[0]
    assert task.metadata["instructions"] == [one.kind for one in ENVIRONMENT.parse_reference(task).instructions]
