"""Mastermind: what guesses are told, what a game earns, and that nobody makes up the answers."""

import asyncio

import pytest

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.envs.mastermind.environment import Mastermind, SecretCode
from app.ports.environment import Tools
from app.service.judging import NoPanel
from tests.support.tables import read_table, unfold

TABLE = read_table(__file__, "guesses.yaml", dict[str, tuple[str, ...]])

ENVIRONMENT = Mastermind()
TASK = Task(messages=(), max_turns=4, reference=SecretCode(code="ABBC", colours=6, guesses=4).model_dump(mode="json"))


def guess(code: str) -> Message:
    return Message(role="assistant", content=f"<think>Hm.</think><answer>{code}</answer>")


def played(*guesses: str) -> tuple[Message, ...]:
    """A game with the answers that it got."""
    messages: tuple[Message, ...] = ()
    for code in guesses:
        messages = (*messages, guess(code))
        messages += ENVIRONMENT.step(TASK, messages).messages
    return messages


def scored(*messages: Message) -> Score:
    (score,) = asyncio.run(ENVIRONMENT.score(TASK, [Completion(messages=messages)], Tools(panel=NoPanel())))
    return score


@pytest.mark.parametrize(("code", "told"), unfold(TABLE))
def test_a_guess_is_answered(code: str, told: str) -> None:
    assert ENVIRONMENT.step(TASK, (guess(code),)) == Turn(messages=(Message(role="user", content=told),), done=False)


def test_a_game_is_over_when_the_code_is_found_or_no_guess_is_left() -> None:
    found = ENVIRONMENT.step(TASK, (*played("AAAA"), guess("ABBC")))
    lost = ENVIRONMENT.step(TASK, (*played("AAAA", "AAAA", "AAAA"), guess("AAAA")))
    last = played("AAAA", "AAAA", "AAAA")[-1].content
    over = Turn(messages=(), done=True)
    assert (found, lost, last) == (over, over, "1 exact, 0 misplaced. One guess is left.")


@pytest.mark.parametrize(
    ("guesses", "reward", "rationale"), read_table(__file__, "games.yaml", list[tuple[tuple[str, ...], float, str]])
)
def test_the_sooner_the_better(guesses: tuple[str, ...], reward: float, rationale: str) -> None:
    score = scored(*played(*guesses))
    assert (score.reward, score.rationale) == (reward, rationale)


@pytest.mark.parametrize(
    ("guesses", "sixteenths"),
    [
        (("AAAA", "AACC", "BBBB", "ABBC"), [1, 1, 0, 2]),
        (("nothing", "ABBC"), [0, 4]),
        (("ABBB", "AAAA", "AAAA", "AAAA"), [3, 0, 0, 0]),
    ],
)
def test_places_are_rewarded_as_they_are_found(guesses: tuple[str, ...], sixteenths: list[int]) -> None:
    """All together they are worth what the last possible guess earns."""
    assert ENVIRONMENT.turn_rewards(TASK, played(*guesses)) == [share / 16 for share in sixteenths]


@pytest.mark.parametrize("more", [guess("AAAA"), Message(role="user", content="You lose.")])
def test_what_comes_after_the_code_was_found_is_ignored(more: Message) -> None:
    score = scored(guess("ABBC"), more)
    assert (score.reward, score.flags) == (1.0, ("after_end",))
