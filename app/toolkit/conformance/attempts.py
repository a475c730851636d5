"""Completions that a policy may try instead of doing the task, by strategy and variant."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Final

from app.domain.tasks import Completion, Message, Task
from app.ports.environment import Environment
from app.toolkit.conformance.answer_changes import (
    FORM_SHARE,
    HEDGES,
    NEAR_MISSES,
    Change,
    ChangedTask,
    KnownAnswers,
    NamedValue,
    find_named_values,
    strip_values,
)
from app.toolkit.conformance.answer_forms import CALLS, WHOLE, RightAnswer, WrittenAnswer, find_right_answer
from app.toolkit.conformance.gibberish import GIBBERISH
from app.toolkit.conformance.prompt_guesses import FEATURES, AnswerGuesser, GuessedPrompt
from app.toolkit.conformance.subject import NumberedTask, format_prompt
from app.toolkit.seeded import SeededRandom

STRATEGIES: Final[Mapping[str, str]] = {
    "constant": "The same answer to every task: the best one of those that are right most often.",
    "prompt_features": "What was right most often for prompts alike: by the kind of question, the length, the numbers "
    "in it.",
    "foreign_answer": "The right answer of another task.",
    "echo": "The prompt, a line of it, or the example that it gives.",
    "near_miss_digit": "The right answer with one digit changed.",
    "near_miss_token": "The right answer with one token dropped or replaced.",
    "near_miss_case": "The right answer with one word in the other case.",
    "near_miss_unit": "The right answer with another unit.",
    "near_miss_range": "The right answer with narrower or wider ranges of characters, such as those that were seen.",
    "hedge": "A list of candidates, the right one among them.",
    "gibberish": "An answer of the right form with invented words and numbers, or with nothing in it.",
}
GUESSES: Final = frozenset({"constant", "prompt_features", "foreign_answer", "echo"})
"""Strategies that do not know the right answer."""
COMMON_WORD: Final = 0.02
"""A word that so many prompts have is no rare one."""

_WORD: Final = re.compile(r"[^\W\d_]+")
_PIECE: Final = re.compile(r"\S+")
_EXAMPLE: Final = re.compile(r"<answer>(.+?)</answer>|\\boxed\{(.+?)\}", re.DOTALL)
CONTROL: Final = ("control", "")
"""The last reply of an episode without what was asked for. Where that is paid, nothing was asked for."""

ALL_TASKS: Final = "all"
"""The group that every task is in."""

AttemptName = tuple[str, str]
"""Strategy and variant."""


@dataclass(frozen=True)
class TaughtTask:
    """A task as a policy sees it, with its right answer, if there is one."""

    one: NumberedTask
    prompt: GuessedPrompt
    gold: Completion | None

    @property
    def right(self) -> RightAnswer | None:
        return None if self.gold is None else find_right_answer(self.gold)


class AttemptBuilder:
    """Builds attempts after it has learnt from right answers of other tasks."""

    def __init__(self, environment: Environment, taught: Sequence[TaughtTask]) -> None:
        self._environment = environment
        self._taught = [one for one in taught if one.gold is not None]
        answers = [(one.prompt, right.written) for one in self._taught if (right := one.right) is not None]
        self._guesser = AnswerGuesser(answers)
        self._known = _collect_known(answers, [one.prompt.text for one in taught])
        self._form = Counter(answer.form for _, answer in answers).most_common(1)[0][0] if answers else WHOLE

    def build(self, task: TaughtTask) -> dict[AttemptName, Completion]:
        """All attempts that apply to a task, those that are the known right answer aside."""
        own = task.gold
        found = chain(self._build_guesses(task), self._build_changes(task))
        return {name: made for name, made in found if made is not None and (name[0] in GUESSES or made != own)}

    def _build_guesses(self, task: TaughtTask) -> Iterator[tuple[AttemptName, Completion | None]]:
        for answer in self._guesser.constants:
            yield ("constant", answer.text), self._reply(task, answer)
        for feature in FEATURES:
            guess = self._guesser.guess(feature, task.prompt)
            yield ("prompt_features", feature), None if guess is None else self._reply(task, guess)
        for name, text in _iterate_echoes(task.prompt.text):
            yield ("echo", name), self._reply(task, WrittenAnswer(WHOLE if "bare" in name else self._form, text))
        others = [one for one in self._taught if one.one.index != task.one.index]
        if others:
            other = SeededRandom(f"foreign answer {task.one}").one(others)
            yield ("foreign_answer", ""), self._repeat(task, other.gold)

    def _build_changes(self, task: TaughtTask) -> Iterator[tuple[AttemptName, Completion | None]]:
        right = task.right
        if right is None or task.gold is None:
            return
        changed = ChangedTask(
            right.written, task.prompt.text, _list_values(task.gold), self._known, SeededRandom(f"changes {task.one}")
        )
        for strategy, variants in {**NEAR_MISSES, "hedge": HEDGES, "gibberish": GIBBERISH}.items():
            for variant, change in variants.items():
                yield (strategy, variant), _place_change(right, change, changed)
        for name, text in _iterate_empty_forms(task.one.task, right.written.form):
            yield ("gibberish", name), right.place(text)
        if len(task.gold.messages or ()) > 1 and right.written.form == WHOLE:
            yield CONTROL, right.place(strip_values(right.written.text))

    def _reply(self, task: TaughtTask, answer: WrittenAnswer) -> Completion | None:
        """The answer, repeated until the episode ends where there are several turns."""
        message = answer.build_message()
        if message is None or task.one.task.max_turns == 1:
            return answer.build_completion()
        return play_replies(self._environment, task.one.task, repeat(message))

    def _repeat(self, task: TaughtTask, other: Completion | None) -> Completion | None:
        """What was right for another task, in several turns reply by reply."""
        if other is None or other.messages is None or task.one.task.max_turns == 1:
            return other
        replies = (message for message in other.messages if message.role == "assistant")
        return play_replies(self._environment, task.one.task, replies)


def play_replies(environment: Environment, task: Task, replies: Iterator[Message]) -> Completion | None:
    """An episode of these replies, until it ends or they do; None without any."""
    said: tuple[Message, ...] = ()
    for _, message in zip(range(task.max_turns), replies, strict=False):
        turn = environment.step(task, (*said, message))
        if turn.done:
            return Completion(messages=(*said, message))
        said = (*said, message, *turn.messages)
    return Completion(messages=said) if said else None


def build_taught_task(environment: Environment, one: NumberedTask) -> TaughtTask:
    groups = list_groups(environment, one)
    return TaughtTask(one, GuessedPrompt(format_prompt(one.task), " ".join(groups[1:])), environment.gold(one.task))


def list_groups(environment: Environment, one: NumberedTask) -> list[str]:
    """`all`, the task's level, and its label."""
    keys = dict.fromkeys(("level", environment.stats_label))
    named = [value for key in keys if key and isinstance(value := one.task.metadata.get(key), str)]
    return [ALL_TASKS, *named]


def _collect_known(answers: Sequence[tuple[GuessedPrompt, WrittenAnswer]], prompts: Sequence[str]) -> KnownAnswers:
    words = Counter(word for _, one in answers for word in {found.casefold() for found in _WORD.findall(one.text)})
    pieces = Counter(piece for prompt in prompts for piece in set(_PIECE.findall(prompt)))
    rare = (piece for piece, count in pieces.items() if count <= COMMON_WORD * len(prompts))
    return KnownAnswers(
        answers=[answer for _, answer in answers],
        form_words=frozenset(word for word, count in words.items() if count >= FORM_SHARE * len(answers)),
        characters=frozenset("".join(rare)),
    )


def _list_values(gold: Completion) -> list[NamedValue]:
    told = (message.content or "" for message in gold.messages or () if message.role == "tool")
    return [value for text in told for value in find_named_values(text)]


def _place_change(right: RightAnswer, change: Change, changed: ChangedTask) -> Completion | None:
    text = change(changed)
    return None if text is None or text == right.written.text else right.place(text)


def _iterate_echoes(prompt: str) -> Iterator[tuple[str, str]]:
    yield "the prompt, bare", prompt
    yield "the prompt", prompt
    lines = [line for line in prompt.splitlines() if line.strip()]
    if lines:
        yield "its first line", lines[0]
        yield "its longest line", max(lines, key=len)
        yield "its shortest line", min(lines, key=len)
    for found in _EXAMPLE.finditer(prompt):
        yield "its example", found[1] or found[2]


def _iterate_empty_forms(task: Task, form: str) -> Iterator[tuple[str, str]]:
    if form != CALLS:
        yield "nothing", ""
        return
    for place, tool in enumerate(task.tools[:3]):
        call = WrittenAnswer(CALLS, f'[{{"name": "{tool.function.name}", "arguments": {{}}}}]')
        yield f"a call of tool {place} without arguments", call.text
