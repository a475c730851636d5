"""Blackjack: totals, the dealer's rule, moves that basic strategy would make, and what a hand earns."""

import pytest

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.domain.values import NoParams
from app.envs.blackjack.environment import Blackjack
from app.ports.environment import Tools
from app.service.judging import NoPanel
from tests.support.event_loop import finish
from tests.support.tables import read_table

TABLE = read_table(__file__, "hands.yaml", tuple[tuple[str, tuple[str, ...], float, str], ...])

ENVIRONMENT = Blackjack()
FILL = ("2♦", "3♦", "4♦", "5♦", "2♣", "3♣", "4♣", "5♣")


def task(cards: str) -> Task:
    """Two of the player's, two of the dealer's, those to draw."""
    return Task(messages=(), max_turns=10, reference=[*cards.split(), *FILL])


def says(move: str) -> Message:
    return Message(role="assistant", content=f"<answer>{move}</answer>")


def played(of: Task, *moves: str) -> Score:
    messages: tuple[Message, ...] = ()
    for move in moves:
        messages = (*messages, says(move))
        messages += ENVIRONMENT.step(of, messages).messages
    (score,) = finish(ENVIRONMENT.score(of, [Completion(messages=messages)], Tools(panel=NoPanel())))
    return score


@pytest.mark.parametrize(("cards", "moves", "reward", "rationale"), TABLE)
def test_what_a_hand_earns(cards: str, moves: tuple[str, ...], reward: float, rationale: str) -> None:
    score = played(task(cards), *moves)
    assert (score.reward, score.rationale) == (reward, rationale)


def test_a_card_is_told_and_a_bust_ends_the_hand() -> None:
    hand = task("9♠ 2♥ 10♦ 7♣ 5♥ K♥")
    first = ENVIRONMENT.step(hand, (says("hit"),))
    last = ENVIRONMENT.step(hand, (says("hit"), *first.messages, says("hit")))
    told = "You draw 5♥. Your cards: 9♠ 2♥ 5♥. The dealer shows: 10♦. Hit or stand?"
    assert (first, last) == (
        Turn(messages=(Message(role="user", content=told),), done=False),
        Turn(messages=(), done=True),
    )


@pytest.mark.parametrize(("cards", "move"), read_table(__file__, "basic_strategy.yaml", list[tuple[str, str]]))
def test_what_basic_strategy_would_do(cards: str, move: str) -> None:
    score = played(task(f"{cards} 7♣ 2♠"), move)
    assert [(one.name, one.value) for one in score.criteria][1] == ("strategy", 1.0)


def test_what_comes_after_the_hand_is_ignored() -> None:
    hand = task("K♠ Q♥ 10♦ 7♣ 2♥")
    group = [Completion(messages=said) for said in ((says("stand"),), (says("stand"), says("hit")))]
    alone, more = finish(ENVIRONMENT.score(hand, group, Tools(panel=NoPanel())))
    assert (alone.reward, more) == (1.0, alone.model_copy(update={"flags": ("after_end",)}))


def test_strategies_earn_what_they_are_known_to_earn() -> None:
    """Over 2,000 hands: a third of a percent of the house's edge is lost in the noise, a wrong rule is not."""
    hands = [ENVIRONMENT.task("train", index, NoParams()) for index in range(2_000)]
    standing = sum(played(hand, "stand").reward or 0.0 for hand in hands) / len(hands)
    winnable = sum(ENVIRONMENT.gold(hand) is not None for hand in hands) / len(hands)
    assert (0.38 < standing < 0.45, 0.55 < winnable < 0.7) == (True, True)
