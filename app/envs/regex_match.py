"""Regex match: a regular expression for strings of a form that is described part by part.

    prompt   … built from these parts … 1. from 2 to 4 digits  2. the word oar or the word rust  3. at most one hyphen
             These strings match: 07oar, 4411rust-   These do not: 7oar, 4411rust--, 07OAR
    reply    <answer>[0-9]{2,4}(oar|rust)-?</answer>
    reward   1.0   it sorts every string right, of which the prompt shows a few

The other strings are never shown: fitting ones that were drawn from the form, and misfits that miss it by one part. A
list of the examples earns nothing. Expressions run on RE2, whose time grows with the text and not with its powers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field, TypeAdapter

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Frozen, Split, WholeNumber
from app.draws import Draws, drawn_apart
from app.grading.committed import grade_committed
from app.packaged import packaged_data
from app.patterns import compiled
from app.ports import Environment, Tools
from app.prompts import Phrasings, digest

_FOLDER = Path(__file__).with_suffix("")
_PHRASINGS = Phrasings.read(_FOLDER / "prompts.yaml")
_WORDS = packaged_data(_FOLDER / "words.yaml", TypeAdapter(tuple[str, ...]))
_KINDS = {"digits": ("[0-9]", "0123456789"), "small letters": ("[a-z]", "bcefgijk"), "capitals": ("[A-Z]", "BCEFGHKT")}
_MARKS = {"hyphen": "-", "underscore": "_", "full stop": ".", "colon": ":", "plus sign": "+"}
SHOWN = 3
HIDDEN = 20
FEWEST = 9
"""Strings of either kind, so that a list of those that are shown sorts most of them wrong."""
TEST_SIZE = 1_000


class Params(Frozen):
    parts: Annotated[WholeNumber, Field(ge=2, le=6)] = 3
    """Of a string's form: the more, the harder."""


class Exercise(Frozen):
    parts: tuple[str, ...]
    pattern: str
    matching: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """`fits` and `misses` draw a text that this part takes, and one that it just does not."""

    says: str
    pattern: str
    fits: Callable[[Draws], str]
    misses: Callable[[Draws], str]


class RegexMatch(Environment):
    name: ClassVar[str] = "regex_match"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = Params

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": _PHRASINGS.digest, "words": digest(_WORDS)}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = Params.model_validate(params, from_attributes=True)
        seed = f"regex_match {chosen.parts} {index}"
        made = drawn_apart(seed, split == "test", lambda draws: _exercise(draws, chosen.parts), lambda one: one.pattern)
        prompt = _PHRASINGS.say(
            Draws(f"{seed} {split}"),
            parts="\n".join(f"{place}. {part}" for place, part in enumerate(made.parts, start=1)),
            matching=", ".join(made.matching[:SHOWN]),
            others=", ".join(made.others[:SHOWN]),
        )
        return Task(messages=(Message(role="user", content=prompt),), reference=made.model_dump(mode="json"))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        made = Exercise.model_validate(task.reference)
        return [grade_committed(completion.answer, lambda answer: _fault(answer, made)) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text=f"<answer>{Exercise.model_validate(task.reference).pattern}</answer>")

    def equivalent(self, one: Task, other: Task) -> bool:
        return Exercise.model_validate(one.reference).pattern == Exercise.model_validate(other.reference).pattern


def _exercise(draws: Draws, count: int) -> Exercise:
    """Misfits are those that the form's own expression refuses: some that miss a part happen to fit all the same."""
    while True:
        parts = [draws.one((_run, _words, _optional, _listed))(draws) for _ in range(count)]
        pattern = "".join(part.pattern for part in parts)
        form = compiled(pattern)
        matching, others = dict[str, None](), dict[str, None]()
        for turn in range(2 * HIDDEN):
            matching["".join(part.fits(draws) for part in parts)] = None
            wrong = turn % count
            other = "".join((part.misses if place == wrong else part.fits)(draws) for place, part in enumerate(parts))
            if other and not form.matches(other):
                others[other] = None
        if min(len(matching), len(others)) >= FEWEST:
            said = tuple(part.says for part in parts)
            kept = tuple(matching)[:HIDDEN], tuple(others)[:HIDDEN]
            return Exercise(parts=said, pattern=pattern, matching=kept[0], others=kept[1])


def _run(draws: Draws) -> Part:
    kind = draws.one(tuple(_KINDS))
    least = 1 + draws.below(3)
    most = least + draws.below(3)
    pattern, characters = _KINDS[kind]
    stranger = draws.one([signs for name, (_, signs) in _KINDS.items() if name != kind])

    def drawn(draws: Draws, count: int) -> str:
        return "".join(draws.one(characters) for _ in range(count))

    return Part(
        f"exactly {least} {kind}" if least == most else f"from {least} to {most} {kind}",
        f"{pattern}{{{least}}}" if least == most else f"{pattern}{{{least},{most}}}",
        lambda draws: drawn(draws, least + draws.below(most - least + 1)),
        lambda draws: draws.one(
            (drawn(draws, least - 1), drawn(draws, most + 1), drawn(draws, least - 1) + stranger[0])
        ),
    )


def _words(draws: Draws) -> Part:
    words = draws.some(_WORDS, 2 + draws.below(2))
    outside = draws.one([word for word in _WORDS if word not in words])
    return Part(
        "either " + " or ".join(f"the word {word}" for word in words),
        f"({'|'.join(words)})",
        lambda draws: draws.one(words),
        lambda draws: draws.one((outside, draws.one(words).upper(), draws.one(words)[:-1], "".join(words[:2]))),
    )


def _optional(draws: Draws) -> Part:
    name = draws.one(tuple(_MARKS))
    mark = _MARKS[name]
    other = draws.one([one for one in _MARKS.values() if one != mark])
    return Part(
        f"at most one {name} ({mark})",
        f"[{mark}]?",
        lambda draws: draws.one((mark, "")),
        lambda draws: draws.one((mark * 2, other)),
    )


def _listed(draws: Draws) -> Part:
    name = draws.one(tuple(_MARKS))
    mark = _MARKS[name]
    word = draws.one(_WORDS)
    most = 2 + draws.below(3)
    return Part(
        f"the word {word}, from 1 to {most} times, with a {name} ({mark}) between one and the next",
        f"{word}([{mark}]{word}){{0,{most - 1}}}",
        lambda draws: mark.join([word] * (1 + draws.below(most))),
        lambda draws: draws.one((mark.join([word] * (most + 1)), word + mark, word * 2, "")),
    )


def _fault(answer: str, made: Exercise) -> str:
    try:
        expression = compiled(answer)
        fitting = sum(expression.matches(text) for text in made.matching)
        misfits = sum(expression.matches(text) for text in made.others)
    except ValueError as error:
        return str(error)
    if fitting == len(made.matching) and not misfits:
        return ""
    return f"it matches {fitting} of {len(made.matching)} that fit, and {misfits} of {len(made.others)} that do not"
