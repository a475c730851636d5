"""Letter counting: how often each of several letters occurs in a text.

    prompt   How often does each of these letters occur in the text below: e, r, p? … Upper and lower case count …
             Every apprentice repainted the attic ladder in broad daylight.
    reply    <think>Every: e, e, r …</think> <answer>8, 5, 3</answer>
    reward   1.0   every count is right

Several letters at once, half of them frequent, so that no constant answer is worth giving: of three letters the best
one is right in about one task of a hundred. Texts are sentences of odd parts, or strings of letters without sense.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, TypeAdapter

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Frozen, Split, WholeNumber
from app.draws import Draws, drawn_apart
from app.grading.committed import grade_committed
from app.packaged import packaged_data
from app.ports import Environment, Tools
from app.prompts import Phrasings, digest

_FOLDER = Path(__file__).with_suffix("")
_PHRASINGS = Phrasings.read(_FOLDER / "prompts.yaml")
_PARTS = packaged_data(_FOLDER / "words.yaml", TypeAdapter(tuple[tuple[str, ...], ...]))
_COUNTS = re.compile(r"[0-9]{1,4}(?:\s*,\s*[0-9]{1,4})*")
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TEST_SIZE = 1_000

Kind = Literal["sentence", "letters", "both"]


class Params(Frozen):
    letters: Annotated[WholeNumber, Field(ge=2, le=6)] = 3
    """How many letters are asked for: the more, the harder to guess."""
    length: Annotated[WholeNumber, Field(ge=1, le=6)] = 1
    """Sentences, or lines of about forty letters, in a text."""
    kind: Kind = "both"
    """Sentences, strings of letters that mean nothing, or now one and now the other."""


class Question(Frozen):
    text: str
    letters: tuple[str, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(self.text.casefold().count(letter) for letter in self.letters)


class LetterCounting(Environment):
    name: ClassVar[str] = "letter_counting"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = Params

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": _PHRASINGS.digest, "words": digest(_PARTS)}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = Params.model_validate(params, from_attributes=True)
        seed = f"letter_counting {chosen.model_dump_json()} {index}"
        asked = drawn_apart(seed, split == "test", lambda draws: _question(draws, chosen), lambda made: made.text)
        prompt = _PHRASINGS.say(Draws(f"{seed} {split}"), text=asked.text, letters=", ".join(asked.letters))
        return Task(messages=(Message(role="user", content=prompt),), reference=list(asked.counts))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        counts = _counts(task)
        return [grade_committed(completion.answer, lambda answer: _fault(answer, counts)) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text=f"<answer>{', '.join(map(str, _counts(task)))}</answer>")


def _counts(task: Task) -> tuple[int, ...]:
    return TypeAdapter(tuple[int, ...]).validate_python(task.reference)


def _question(draws: Draws, params: Params) -> Question:
    kind = draws.one(("sentence", "letters")) if params.kind == "both" else params.kind
    if kind == "letters":
        letters = draws.some(ALPHABET, 5 + draws.below(8))
        lines = ["".join(draws.one(letters) for _ in range(30 + draws.below(20))) for _ in range(params.length)]
        return Question(text=" ".join(lines), letters=tuple(draws.some(letters, params.letters)))
    text = " ".join(_sentence(draws) for _ in range(params.length))
    common, rare = _by_frequency(text)
    frequent = draws.some(common, (params.letters + 1) // 2)
    return Question(
        text=text, letters=tuple(draws.shuffled(frequent + draws.some(rare, params.letters - len(frequent))))
    )


def _sentence(draws: Draws) -> str:
    said = " ".join(draws.one(part) for part in _PARTS)
    return f"{said[0].upper()}{said[1:]}."


def _by_frequency(text: str) -> tuple[list[str], list[str]]:
    """Letters that occur three times or more, and the rest of the alphabet."""
    folded = text.casefold()
    common = [letter for letter in ALPHABET if folded.count(letter) >= 3]
    return common, [letter for letter in ALPHABET if letter not in common]


def _fault(answer: str, counts: Sequence[int]) -> str:
    if not _COUNTS.fullmatch(answer):
        return "it is no list of whole numbers"
    given = [int(number) for number in answer.split(",")]
    if len(given) != len(counts):
        return f"it has {len(given)} numbers for {len(counts)} letters"
    wrong = sum(one != other for one, other in zip(given, counts, strict=True))
    return f"{wrong} of {len(counts)} counts are wrong" if wrong else ""
