"""Mastermind: find a hidden code; two numbers answer each guess.

    prompt   … a code of 4 letters, each one of A, B, C, D, E, F … You have 8 guesses to find it.
    reply    <think>Halves first.</think> <answer>AABB</answer>
    step     1 exact, 2 misplaced. 7 guesses are left.      … and so on until it is found or none is left
    reward   1.0 where the first guess is right, 0.125 less for each one more; 0 for a code that was not found

A reply without a guess uses up a guess. The answers are recomputed from the transcript, so any replica can serve any
turn; an answer that the environment did not give makes the transcript forged. All completions of a group share a code.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field

from app.domain.errors import InvalidRequest
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.domain.values import Frozen, WholeNumber
from app.ports import Tools
from app.ports.environment import FreeReward
from app.toolkit.answers import extract_committed, strip_markup
from app.toolkit.procedural import LEVELS, Level, LevelParams, ProceduralEnvironment
from app.toolkit.replay import build_turn, list_stages, replay_episode, replay_for_score, score_forgery
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings
from app.toolkit.thoughts import map_completions

_LETTERS = "ABCDEFGH"
_MEASURES: Final[Mapping[Level, tuple[int, int]]] = {"first": (2, 5), "easy": (3, 5), "medium": (4, 6), "hard": (5, 8)}
"""Pairs: pegs and colours."""


class MastermindParams(LevelParams):
    pegs: Annotated[WholeNumber, Field(ge=3, le=6)] | None = None
    """Length of the code. Default by level: 2 (first), 3 (easy), 4 (medium), 5 (hard)."""
    colours: Annotated[WholeNumber, Field(ge=5, le=8)] | None = None
    """Number of possible letters. Default by level: 5 (first, easy), 6 (medium), 8 (hard)."""
    guesses: Annotated[WholeNumber, Field(ge=4, le=12)] = 8


class SecretCode(Frozen):
    code: str
    colours: int
    guesses: int


@dataclass(frozen=True)
class MastermindGame:
    """The state of a game."""

    secret: SecretCode
    used: int = 0
    found: bool = False
    exact: int = 0
    """Most pegs that one guess had in their places."""
    observed: tuple[Message, ...] = ()

    @property
    def done(self) -> bool:
        return self.found or self.used == self.secret.guesses


class Mastermind(ProceduralEnvironment[SecretCode, MastermindParams]):
    name: ClassVar[str] = "mastermind"
    version: ClassVar[str] = "5"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    multi_turn: ClassVar[bool] = True
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    test_size: ClassVar[int] = 500
    chance: ClassVar[float] = 0.005
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="near_miss_case", share=None, because="The case of a guess does not matter."),
    )

    def make(self, draws: SeededRandom, level: Level, params: MastermindParams) -> SecretCode:
        pegs, colours = _MEASURES[level]
        letters = _LETTERS[: params.colours or colours]
        code = "".join(draws.one(letters) for _ in range(params.pegs or pegs))
        return SecretCode(code=code, colours=len(letters), guesses=params.guesses)

    def key(self, made: SecretCode) -> str:
        return f"{made.colours} {made.code}"

    def slots(self, made: SecretCode) -> Mapping[str, str | int]:
        """The example guess uses letters that no code has, so it reveals nothing and earns nothing."""
        pegs, colours = len(made.code), ", ".join(_LETTERS[: made.colours])
        return {"pegs": pegs, "colours": colours, "guesses": made.guesses, "form": "UVWXYZ"[:pegs]}

    def turns(self, made: SecretCode) -> int:
        return made.guesses

    def solution(self, made: SecretCode) -> str:
        return made.code

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        return build_turn(_replay_game(task, messages), messages)

    def turn_rewards(self, task: Task, messages: Sequence[Message]) -> Sequence[float | None]:
        return _reward_guesses(list_stages(_start_game(task), _apply_guess, messages))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return await map_completions(group, lambda completion: _score_completion(task, completion))


def _score_completion(task: Task, completion: Completion) -> Score:
    messages = completion.messages or (Message(role="assistant", content=completion.answer),)
    try:
        game, flags = replay_for_score(_start_game(task), _apply_guess, messages)
    except InvalidRequest as error:
        return score_forgery(error)
    reward = 1 - (game.used - 1) / game.secret.guesses if game.found else 0.0
    found = Criterion(name="found", value=float(game.found), weight=0.0, note="the code was found at all")
    return Score(
        outcome="scored",
        reward=reward,
        gate=1.0,
        absolute=reward,
        criteria=(Criterion(name="speed", value=reward, weight=1.0), found),
        flags=flags,
        rationale=f"{'found' if game.found else 'not found'} (guesses used: {game.used} of {game.secret.guesses})",
    )


def _replay_game(task: Task, messages: Sequence[Message]) -> MastermindGame:
    return replay_episode(_start_game(task), _apply_guess, messages)


def _start_game(task: Task) -> MastermindGame:
    return MastermindGame(SecretCode.model_validate(task.reference))


def _apply_guess(game: MastermindGame, message: Message) -> MastermindGame:
    secret, used = game.secret, game.used + 1
    guess = strip_markup(extract_committed(message.content or "").text or "").upper()
    if guess == secret.code:
        return MastermindGame(secret, used, found=True, exact=len(guess))
    if used == secret.guesses:
        return MastermindGame(secret, used, exact=game.exact)
    valid = len(guess) == len(secret.code) and set(guess) <= set(_LETTERS[: secret.colours])
    exact = _count_exact(guess, secret.code) if valid else 0
    text = (
        _describe_match(guess, secret.code)
        if valid
        else f"That is no guess of {len(secret.code)} letters in answer tags."
    )
    left = secret.guesses - used
    more = f"{left} guesses are left." if left > 1 else "One guess is left."
    best = max(game.exact, exact)
    return MastermindGame(secret, used, exact=best, observed=(Message(role="user", content=f"{text} {more}"),))


def _describe_match(guess: str, code: str) -> str:
    exact = _count_exact(guess, code)
    common = sum((Counter(guess) & Counter(code)).values())
    return f"{exact} exact, {common - exact} misplaced."


def _count_exact(guess: str, code: str) -> int:
    return sum(one == other for one, other in zip(guess, code, strict=True))


def _reward_guesses(games: Sequence[MastermindGame]) -> list[float]:
    """For each guess the places that it got right beyond the best guess before. All places together are worth what the
    last possible guess earns, so a code that is found never takes anything back."""
    best = [0, *(game.exact for game in games)]
    return [
        (now - before) / (len(game.secret.code) * game.secret.guesses)
        for game, (before, now) in zip(games, pairwise(best), strict=True)
    ]
