"""Stories composed of parts: a beginning, changes, asides that do not matter, and a question."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import Field

from app.domain.values import Frozen, Name
from app.envs.gsm8k.stories import Range, SolutionStep, Story
from app.toolkit.seeded import SeededRandom

MOST_CHANGES: Final = 4
MOST_ASIDES: Final = 2
_WORD: Final = re.compile(r"[a-z]\w*")
_SLOT: Final = re.compile(r"\{([a-z]\w*)\}")


class Theme(Frozen):
    """What a story is about. `gains` and `loses` are verbs before a number, `spoils` ends a sentence about some of the
    things."""

    name: Name
    things: str
    packs: str
    others: str
    """Other things, which no question is about."""
    gains: tuple[str, ...]
    loses: tuple[str, ...]
    spoils: str


class StoryPart(Frozen):
    """One or two sentences and the steps that work them out. Names of its numbers and steps are its own, but for `now`,
    `before`, `start` and `other`."""

    numbers: dict[str, Range] = {}
    texts: Annotated[tuple[str, ...], Field(min_length=1)]
    steps: tuple[SolutionStep, ...] = ()

    @property
    def needs_other(self) -> bool:
        """Whether it reckons with {B}'s number."""
        return any("other" in step.does.split() for step in self.steps) and "other" not in self.numbers


class StoryChains(Frozen):
    themes: Annotated[tuple[Theme, ...], Field(min_length=1)]
    beginnings: Annotated[tuple[StoryPart, ...], Field(min_length=1)]
    changes: Annotated[tuple[StoryPart, ...], Field(min_length=1)]
    questions: Annotated[tuple[StoryPart, ...], Field(min_length=1)]
    asides: tuple[StoryPart, ...] = ()

    def compose(self, draws: SeededRandom) -> Story:
        """Pure. The story's name says of which parts it is composed, not how they are worded."""
        theme, beginning = draws.one(self.themes), draws.one(self.beginnings)
        askable = [each for each in self.questions if "other" in beginning.numbers or not each.needs_other]
        question = draws.one(askable)
        fewest = 1 if beginning.steps or question.steps else 2
        changes = draws.some(self.changes, fewest + draws.below(MOST_CHANGES - fewest + 1))
        parts = [beginning, *changes, question]
        numbers, texts, steps = _join_parts(parts, draws)
        for place, aside in enumerate(draws.some(self.asides, draws.below(MOST_ASIDES + 1))):
            names = {name: f"aside_{name}{place}" for name in aside.numbers}
            texts.insert(1 + draws.below(len(texts) - 1), _rename_slots(draws.one(aside.texts), names))
            numbers |= {names[name]: span for name, span in aside.numbers.items()}
        ways = [self.beginnings.index(beginning), *map(self.changes.index, changes), self.questions.index(question)]
        return Story(
            name=f"{theme.name}-{'-'.join(map(str, ways))}",
            numbers=numbers,
            words={
                **{name: (getattr(theme, name),) for name in ("things", "packs", "others", "spoils")},
                "gains": theme.gains,
                "loses": theme.loses,
            },
            text=" ".join(texts),
            steps=tuple(steps),
        )


def _join_parts(
    parts: Sequence[StoryPart], draws: SeededRandom
) -> tuple[dict[str, Range], list[str], list[SolutionStep]]:
    """Numbers, sentences and steps of parts, every name with the place of its part."""
    numbers: dict[str, Range] = {}
    texts, steps = [], []
    for place, part in enumerate(parts):
        own = (*part.numbers, *(step.does.split()[0] for step in part.steps))
        names = {name: f"{name}{place}" for name in own} | {"answer": "answer"}
        names |= {"before": f"now{place - 1}", "start": "now0"} | ({} if "other" in own else {"other": "other0"})
        numbers |= {names[name]: span for name, span in part.numbers.items()}
        texts.append(_rename_slots(draws.one(part.texts), names))
        steps += [SolutionStep(says=step.says, does=_rename_words(step.does, names)) for step in part.steps]
    if not parts[-1].steps:
        steps[-1] = SolutionStep(says=steps[-1].says, does=f"answer = {steps[-1].does.partition(' = ')[2]}")
    return numbers, texts, steps


def _rename_slots(text: str, names: Mapping[str, str]) -> str:
    return _SLOT.sub(lambda slot: "{" + names.get(slot[1], slot[1]) + "}", text)


def _rename_words(formula: str, names: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: names.get(word[0], word[0]), formula)
