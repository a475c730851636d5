"""Blackjack: play one hand against the dealer.

    prompt   … Your cards: 9♠ 4♥. The dealer shows: 6♦. … <answer>hit</answer> … or <answer>stand</answer>
    reply    <think>A six: the dealer is likely to bust.</think> <answer>stand</answer>
    reward   1.0 for a hand that is won, 0.5 for a draw, 0 for one that is lost; a reply without a move loses it

All completions of a group play with the same deck, so only their moves differ. The reward of one hand is mostly luck:
on average, always standing earns 0.42, basic strategy 0.49, always hitting nothing. The criterion `strategy`
(weight 0) is the share of moves that basic strategy would make.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from app.domain.errors import InvalidRequest
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.domain.values import Split
from app.ports import Environment, Tools
from app.ports.environment import FreeReward
from app.toolkit.answers import extract_committed, strip_markup
from app.toolkit.replay import build_turn, replay_episode, replay_for_score, score_forgery
from app.toolkit.seeded import SeededRandom, draw_apart
from app.toolkit.templates import Phrasings
from app.toolkit.thoughts import map_completions

_PHRASINGS = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
_RANKS = ("2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K", "A")
_DECK = tuple(rank + suit for suit in "♠♥♦♣" for rank in _RANKS)
_USED = 22
"""Most cards that one hand can use, the player's and the dealer's together."""
_MOST_MOVES = 10
_TEST_SIZE = 1_000


@dataclass(frozen=True)
class Hand:
    """`cards`: two for the player, two for the dealer (the first is shown), then the cards to draw."""

    cards: tuple[str, ...]
    hits: int = 0
    moves: int = 0
    by_strategy: int = 0
    ended: str = ""
    """`stand`, `bust` or `forfeit`."""
    observed: tuple[Message, ...] = ()

    @property
    def done(self) -> bool:
        return bool(self.ended)

    @property
    def own(self) -> tuple[str, ...]:
        return self.cards[:2] + self.cards[4 : 4 + self.hits]


class Blackjack(Environment):
    name: ClassVar[str] = "blackjack"
    version: ClassVar[str] = "4"
    scores_at_once: ClassVar[bool] = True
    multi_turn: ClassVar[bool] = True
    chance: ClassVar[float] = 0.41
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="constant", share=0.42, because="Whoever always stands earns so much."),
        FreeReward(strategy="prompt_features", share=0.42, because="The guess is to stand, as for the constant."),
        FreeReward(strategy="echo", share=0.42, because="The prompt names the two moves, and one of them is to stand."),
        FreeReward(strategy="near_miss_case", share=None, because="The case of a move does not matter."),
    )

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": _PHRASINGS.digest}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return _TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        seed = f"blackjack {index}"
        cards = draw_apart(seed, split == "test", lambda draws: draws.some(_DECK, _USED), str)
        phrase = _PHRASINGS.say(SeededRandom(f"{seed} {split}"), hand=" ".join(cards[:2]), shown=cards[2])
        return Task(
            messages=(Message(role="user", content=f"Hand {2 * index + (split == 'test')}. {phrase}"),),
            max_turns=_MOST_MOVES,
            reference=list(cards),
        )

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        return build_turn(_replay_hand(task, messages), messages)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return await map_completions(group, lambda completion: _score_completion(task, completion))

    def gold(self, task: Task) -> Completion | None:
        """The first winning sequence of moves for a player who knows the deck; None if there is none."""
        messages: tuple[Message, ...] = ()
        while True:
            standing = (*messages, _build_move("stand"))
            if _compute_reward(_replay_hand(task, standing)) == 1.0:
                return Completion(messages=standing)
            hand = _replay_hand(task, (*messages, _build_move("hit")))
            if hand.done:
                return None
            messages = (*messages, _build_move("hit"), *hand.observed)

    def equivalent(self, one: Task, other: Task) -> bool:
        gold = self.gold(other)
        return gold is not None and _score_completion(one, gold).reward == 1.0


def _build_move(move: str) -> Message:
    return Message(role="assistant", content=f"<answer>{move}</answer>")


def _replay_hand(task: Task, messages: Sequence[Message]) -> Hand:
    return replay_episode(_deal_hand(task), _apply_move, messages)


def _deal_hand(task: Task) -> Hand:
    cards = task.reference if isinstance(task.reference, list) else []
    return Hand(tuple(map(str, cards)))


def _apply_move(hand: Hand, message: Message) -> Hand:
    move = strip_markup(extract_committed(message.content or "").text or "").casefold()
    as_advised = hand.by_strategy + (move == _advise_move(hand))
    moves = hand.moves + 1
    if move == "stand":
        return Hand(hand.cards, hand.hits, moves, as_advised, "stand")
    if move != "hit":
        return Hand(hand.cards, hand.hits, moves, as_advised, "forfeit")
    drawn = Hand(hand.cards, hand.hits + 1, moves, as_advised)
    total = _total_points(drawn.own)
    if total > 21 or moves == _MOST_MOVES:
        return Hand(hand.cards, drawn.hits, moves, as_advised, "bust" if total > 21 else "stand")
    text = (
        f"You draw {drawn.own[-1]}. Your cards: {' '.join(drawn.own)}. The dealer shows: {hand.cards[2]}. Hit or stand?"
    )
    return Hand(hand.cards, drawn.hits, moves, as_advised, observed=(Message(role="user", content=text),))


def _count_points(card: str) -> int:
    rank = card[:-1]
    return 11 if rank == "A" else 10 if rank in "JQK" else int(rank)


def _total_points(cards: Sequence[str]) -> int:
    total, aces = sum(map(_count_points, cards)), sum(card[0] == "A" for card in cards)
    while total > 21 and aces:
        total, aces = total - 10, aces - 1
    return total


def _advise_move(hand: Hand) -> str:
    """Basic strategy without doubling and splitting, for a dealer who stands on every 17 (Baldwin et al. 1956)."""
    total, shown = _total_points(hand.own), _count_points(hand.cards[2])
    soft = sum(map(_count_points, hand.own)) == total and any(card[0] == "A" for card in hand.own)
    if soft:
        enough = 19 if shown in (9, 10) else 18
    elif 4 <= shown <= 6:
        enough = 12
    else:
        enough = 13 if shown in (2, 3) else 17
    return "stand" if total >= enough else "hit"


def _compute_reward(hand: Hand) -> float:
    if hand.ended != "stand":
        return 0.0
    dealer = list(hand.cards[2:4])
    left = list(hand.cards[4 + hand.hits :])
    while _total_points(dealer) < 17:
        dealer.append(left.pop(0))
    own, theirs = _total_points(hand.own), _total_points(dealer)
    return 1.0 if theirs > 21 or own > theirs else 0.5 if own == theirs else 0.0


def _score_completion(task: Task, completion: Completion) -> Score:
    messages = completion.messages or (Message(role="assistant", content=completion.answer),)
    try:
        hand, flags = replay_for_score(_deal_hand(task), _apply_move, messages)
    except InvalidRequest as error:
        return score_forgery(error)
    reward = _compute_reward(hand)
    strategy = hand.by_strategy / hand.moves if hand.moves else 0.0
    return Score(
        outcome="scored",
        reward=reward,
        gate=1.0,
        absolute=reward,
        criteria=(
            Criterion(name="outcome", value=reward, weight=1.0),
            Criterion(name="strategy", value=strategy, weight=0.0, note="moves that basic strategy would make"),
        ),
        flags=flags,
        rationale=f"{hand.ended or 'stopped early'} at {_total_points(hand.own)} after {hand.hits} cards drawn",
    )
