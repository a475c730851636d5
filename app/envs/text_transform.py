"""Text transform: carry out a few exact steps on a line of words.

    prompt   Take this line: copper maple otter maple
             1. Drop every word that has stood further to the left already.  2. Write each word backwards.
    reply    <think>copper maple otter; backwards …</think> <answer>reppoc elpam retto</answer>
    reward   1.0   exactly that

White space around and between words counts as one space; everything else counts. `steps` is how many steps follow one
another: later ones work on what earlier ones left.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final

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
_WORDS = packaged_data(_FOLDER / "words.yaml", TypeAdapter(tuple[str, ...]))
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TEST_SIZE = 1_000
_TRIES = 40
"""Of steps on one line: what earlier steps left may be too short for another."""

Words = tuple[str, ...]
Change = Callable[[Words, int], Words]


class Params(Frozen):
    steps: Annotated[WholeNumber, Field(ge=1, le=5)] = 2
    words: Annotated[WholeNumber, Field(ge=3, le=20)] = 6
    """In the line to begin with."""


class Exercise(Frozen):
    words: Words
    steps: tuple[str, ...]
    result: str


def _shifted(letter: str, places: int) -> str:
    return ALPHABET[(ALPHABET.index(letter) + places) % 26] if letter in ALPHABET else letter


_ANYWHERE: Final[Mapping[str, Change]] = {
    "write each word backwards": lambda words, _: tuple(word[::-1] for word in words),
    "put the words in reverse order": lambda words, _: words[::-1],
    "sort the words alphabetically": lambda words, _: tuple(sorted(words)),
    "sort the words from short to long, and leave those of the same length in the order in which they are": (
        lambda words, _: tuple(sorted(words, key=len))
    ),
    "drop every word that has stood further to the left already": lambda words, _: tuple(dict.fromkeys(words)),
    "replace each letter by the one {number} places later in the alphabet, where a comes after z": (
        lambda words, number: tuple("".join(_shifted(letter, number) for letter in word) for word in words)
    ),
    "move the first {number} words to the end": lambda words, number: words[number:] + words[:number],
    "drop every word whose position, counted from 1, is a multiple of {number}": (
        lambda words, number: tuple(word for place, word in enumerate(words, start=1) if place % number)
    ),
    "remove the letters a, e, i, o and u": (
        lambda words, _: tuple("".join(letter for letter in word if letter not in "aeiou") for word in words)
    ),
    "write each word twice in a row": lambda words, _: tuple(word for word in words for _ in range(2)),
}
_LAST: Final[Mapping[str, Change]] = {
    "write every second word, beginning with the second, in capitals": (
        lambda words, _: tuple(word.upper() if place % 2 else word for place, word in enumerate(words))
    ),
    "write after each word the number of its letters, in digits, as a word of its own": (
        lambda words, _: tuple(part for word in words for part in (word, str(len(word))))
    ),
}
"""After these there would be two opinions of what sorting or shifting means."""
CHANGES: Final[Mapping[str, Change]] = {**_ANYWHERE, **_LAST}


class TextTransform(Environment):
    name: ClassVar[str] = "text_transform"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = Params

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": _PHRASINGS.digest, "words": digest(_WORDS)}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = Params.model_validate(params, from_attributes=True)
        seed = f"text_transform {chosen.model_dump_json()} {index}"
        made = drawn_apart(seed, split == "test", lambda draws: _exercise(draws, chosen), lambda one: str(one.words))
        listed = "\n".join(f"{place}. {step[0].upper()}{step[1:]}." for place, step in enumerate(made.steps, start=1))
        prompt = _PHRASINGS.say(Draws(f"{seed} {split}"), text=" ".join(made.words), steps=listed)
        return Task(messages=(Message(role="user", content=prompt),), reference=made.result)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        result = str(task.reference)
        return [grade_committed(completion.answer, lambda answer: _fault(answer, result)) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text=f"<answer>{task.reference}</answer>")


def _exercise(draws: Draws, params: Params) -> Exercise:
    """Some words come twice, and every step changes something."""
    while True:
        different = draws.some(_WORDS, params.words - params.words // 4)
        words = tuple(draws.shuffled(different + draws.some(different, params.words // 4)))
        steps, now = list[str](), words
        for _ in range(_TRIES):
            if len(steps) == params.steps:
                return Exercise(words=words, steps=tuple(steps), result=" ".join(now))
            step = draws.one([*_ANYWHERE, *(_LAST if len(steps) == params.steps - 1 else ())])
            number = 2 + draws.below(3)
            said = step.format(number=number)
            changed = CHANGES[step](now, number) if len(now) > number else now
            if changed != now and said not in steps:
                steps.append(said)
                now = changed


def _fault(answer: str, result: str) -> str:
    return "" if answer.split() == result.split() else "it is another line"
