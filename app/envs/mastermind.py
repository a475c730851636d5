"""Mastermind: find a hidden code by guesses that are answered with two numbers.

    prompt   … a code of 4 letters, each one of A, B, C, D, E, F … You have 8 guesses to find it.
    reply    <think>Halves first.</think> <answer>AABB</answer>
    step     1 exact, 2 misplaced. 7 guesses are left.      … and so on until it is found or none is left
    reward   1.0 where the first guess is right, 0.125 less for each one more; 0 for a code that was not found

A reply without a guess uses one up. The answers are replayed from the transcript, so any replica can serve any turn,
and one that was not given makes the transcript forged. A group shares its code.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.domain.values import Frozen, Split, WholeNumber
from app.draws import Draws, drawn_apart
from app.errors import InvalidRequest
from app.grading.committed import committed
from app.ports import Environment, Tools
from app.prompts import Phrasings
from app.transcripts import forged, replayed, turn_after

_PHRASINGS = Phrasings.read(Path(__file__).with_suffix("") / "prompts.yaml")
LETTERS = "ABCDEFGH"
TEST_SIZE = 500


class Params(Frozen):
    pegs: Annotated[WholeNumber, Field(ge=3, le=6)] = 4
    colours: Annotated[WholeNumber, Field(ge=5, le=8)] = 6
    """Different letters that a code may have."""
    guesses: Annotated[WholeNumber, Field(ge=4, le=12)] = 8


class Secret(Frozen):
    code: str
    colours: int
    guesses: int


@dataclass(frozen=True)
class Game:
    """As far as it went."""

    secret: Secret
    used: int = 0
    found: bool = False
    observed: tuple[Message, ...] = ()

    @property
    def done(self) -> bool:
        return self.found or self.used == self.secret.guesses


class Mastermind(Environment):
    name: ClassVar[str] = "mastermind"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = Params
    multi_turn: ClassVar[bool] = True

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": _PHRASINGS.digest}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = Params.model_validate(params, from_attributes=True)
        letters = LETTERS[: chosen.colours]
        seed = f"mastermind {chosen.model_dump_json()} {index}"

        def drawn(draws: Draws) -> tuple[str, str]:
            code = "".join(draws.one(letters) for _ in range(chosen.pegs))
            example = "".join(draws.one([letter for letter in letters if letter != sign]) for sign in code)
            said = _PHRASINGS.say(
                draws, pegs=chosen.pegs, colours=", ".join(letters), guesses=chosen.guesses, example=example
            )
            return code, said

        code, said = drawn_apart(seed, split == "test", drawn, lambda made: f"{chosen.pegs} {chosen.colours} {made[0]}")
        secret = Secret(code=code, colours=chosen.colours, guesses=chosen.guesses)
        return Task(
            messages=(Message(role="user", content=f"Game {2 * index + (split == 'test')}. {said}"),),
            max_turns=chosen.guesses,
            reference=secret.model_dump(mode="json"),
        )

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        return turn_after(_played(task, messages), messages)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [_score(task, completion) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text=f"<answer>{Secret.model_validate(task.reference).code}</answer>")


def _score(task: Task, completion: Completion) -> Score:
    said = completion.messages or (Message(role="assistant", content=completion.answer),)
    try:
        game = _played(task, said)
    except InvalidRequest as error:
        return forged(error)
    reward = 1 - (game.used - 1) / game.secret.guesses if game.found else 0.0
    found = Criterion(name="found", value=float(game.found), weight=0.0, note="the code was found at all")
    return Score(
        outcome="scored",
        reward=reward,
        gate=1.0,
        absolute=reward,
        criteria=(Criterion(name="speed", value=reward, weight=1.0), found),
        rationale=f"{'found' if game.found else 'not found'} (guesses used: {game.used} of {game.secret.guesses})",
    )


def _played(task: Task, messages: Sequence[Message]) -> Game:
    return replayed(Game(Secret.model_validate(task.reference)), _guessed, messages)


def _guessed(game: Game, message: Message) -> Game:
    secret, used = game.secret, game.used + 1
    guess = (committed(message.content or "").text or "").upper()
    if guess == secret.code:
        return Game(secret, used, found=True)
    if used == secret.guesses:
        return Game(secret, used)
    valid = len(guess) == len(secret.code) and set(guess) <= set(LETTERS[: secret.colours])
    told = _answer(guess, secret.code) if valid else f"That is no guess of {len(secret.code)} letters in answer tags."
    left = secret.guesses - used
    more = f"{left} guesses are left." if left > 1 else "One guess is left."
    return Game(secret, used, observed=(Message(role="user", content=f"{told} {more}"),))


def _answer(guess: str, code: str) -> str:
    exact = sum(one == other for one, other in zip(guess, code, strict=True))
    common = sum((Counter(guess) & Counter(code)).values())
    return f"{exact} exact, {common - exact} misplaced."
