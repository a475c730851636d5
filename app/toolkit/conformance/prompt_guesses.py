"""Answers learnt from the prompts and right answers of other tasks, without doing what is asked."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from app.toolkit.conformance.answer_forms import WrittenAnswer

CONSTANTS: Final = 6
"""Most frequent answers that are tried as constant ones."""
TRIED: Final = 40
"""Most frequent rules that are looked through for one that applies."""
DOUBT: Final = 2.0
"""Added to the tasks on which a rule was tried, so that one that was right once is no sure one."""

_NUMBER: Final = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_OPTION: Final = re.compile(r"^\(?([A-Za-z0-9])[).:] +(.+)$", re.MULTILINE)
_SENTENCE: Final = re.compile(r"[^.!?\n]*\?")
_NAME: Final = re.compile(r"(?<=\w )[A-Z]\w+")
_SLOT: Final = re.compile("\x00(\\d+)\x00")


@dataclass(frozen=True)
class GuessedPrompt:
    """A prompt as one sees it who does not do what it asks. `kind`: of task, by its label and level."""

    text: str
    kind: str

    @cached_property
    def numbers(self) -> Sequence[str]:
        return _NUMBER.findall(self.text)

    @cached_property
    def options(self) -> Mapping[str, str]:
        """By letter, when the prompt offers any."""
        return dict(_OPTION.findall(self.text))

    @cached_property
    def question(self) -> str:
        """The longest question, or the first line, without names and numbers."""
        asked = max(_SENTENCE.findall(self.text), key=len, default=self.text.partition("\n")[0])
        return _NAME.sub("N", _NUMBER.sub("0", asked.strip()))


@dataclass(frozen=True)
class AnswerRule:
    """How an answer follows from a prompt: `text` as it stands, with slots for numbers of the prompt; the option with
    that text; the option with that rank among numbers; or the result of that formula."""

    way: str
    text: str
    form: str


FEATURES: Final[Mapping[str, Callable[[GuessedPrompt], Hashable]]] = {
    "kind": lambda prompt: prompt.kind,
    "question": lambda prompt: prompt.question,
    "question and kind": lambda prompt: (prompt.question, prompt.kind),
    "kind and length": lambda prompt: (prompt.kind, len(prompt.text).bit_length()),
    "question and length": lambda prompt: (prompt.question, len(prompt.text) // 20),
    "kind and count of numbers": lambda prompt: (prompt.kind, len(prompt.numbers)),
    "kind and first number": lambda prompt: (prompt.kind, *prompt.numbers[:1]),
    "kind and last number": lambda prompt: (prompt.kind, *prompt.numbers[-1:]),
}
"""What a guess goes by."""


class AnswerGuesser:
    """Learns from pairs of prompt and right answer. A prompt that it learnt from is guessed without its own answer."""

    def __init__(self, seen: Sequence[tuple[GuessedPrompt, WrittenAnswer]]) -> None:
        self._own = {prompt: frozenset(_find_rules(prompt, answer)) for prompt, answer in seen}
        self._right: dict[tuple[str, Hashable], Counter[AnswerRule]] = defaultdict(Counter)
        self._offered: dict[tuple[str, Hashable], Counter[str]] = defaultdict(Counter)
        self._seen: Counter[tuple[str, Hashable]] = Counter()
        self.constants = [answer for answer, _ in Counter(answer for _, answer in seen).most_common(CONSTANTS)]
        for prompt, rules in self._own.items():
            for feature, read in FEATURES.items():
                self._right[feature, read(prompt)].update(rules)
                self._offered[feature, read(prompt)].update(set(prompt.options.values()))
                self._seen[feature, read(prompt)] += 1

    def guess(self, feature: str, prompt: GuessedPrompt) -> WrittenAnswer | None:
        """By the rule that was right most often where the feature was the same, else the most frequent answer."""
        place = (feature, FEATURES[feature](prompt))
        rates = {rule: self._rate(rule, place, prompt) for rule, _ in self._right[place].most_common(TRIED)}
        for rule in sorted(rates, key=lambda rule: -rates[rule]):
            text = _apply_rule(rule, prompt) if rates[rule] > 0 else None
            if text is not None:
                return WrittenAnswer(rule.form, text)
        return next(iter(self.constants), None)

    def _rate(self, rule: AnswerRule, place: tuple[str, Hashable], prompt: GuessedPrompt) -> float:
        """How often a rule was right, less where it was tried seldom. Options are tried where they are offered."""
        own = self._own.get(prompt)
        right = self._right[place][rule] - (own is not None and rule in own)
        tried = self._offered[place][rule.text] if rule.way == "option" else self._seen[place]
        return right / (tried - (own is not None) + DOUBT)


def _find_rules(prompt: GuessedPrompt, answer: WrittenAnswer) -> Iterator[AnswerRule]:
    """All rules that give this answer."""
    yield AnswerRule("text", answer.text, answer.form)
    if prompt.numbers:
        places = {number: place for place, number in reversed([*enumerate(prompt.numbers)])}
        slotted = _NUMBER.sub(
            lambda found: f"\x00{places[found[0]]}\x00" if found[0] in places else found[0], answer.text
        )
        if slotted != answer.text:
            yield AnswerRule("text", slotted, answer.form)
    if answer.text in prompt.options:
        yield AnswerRule("option", prompt.options[answer.text], answer.form)
        ranked = _rank_options(prompt)
        if answer.text in ranked:
            yield AnswerRule("rank", str(ranked.index(answer.text)), answer.form)
    for name, formula in _FORMULAS.items():
        if prompt.numbers and formula([_read_number(number) for number in prompt.numbers]) == answer.text:
            yield AnswerRule("formula", name, answer.form)


def _apply_rule(rule: AnswerRule, prompt: GuessedPrompt) -> str | None:
    if rule.way == "option":
        return next((letter for letter, text in prompt.options.items() if text == rule.text), None)
    if rule.way == "rank":
        ranked = _rank_options(prompt)
        return ranked[int(rule.text)] if int(rule.text) < len(ranked) else None
    if rule.way == "formula":
        return _FORMULAS[rule.text]([_read_number(number) for number in prompt.numbers]) if prompt.numbers else None
    if any(int(place) >= len(prompt.numbers) for place in _SLOT.findall(rule.text)):
        return None
    return _SLOT.sub(lambda found: prompt.numbers[int(found[1])], rule.text)


def _rank_options(prompt: GuessedPrompt) -> list[str]:
    """The letters of options that are numbers, by size."""
    numbered = {letter: text for letter, text in prompt.options.items() if _NUMBER.fullmatch(text)}
    return sorted(numbered, key=lambda letter: _read_number(numbered[letter]))


def _read_number(text: str) -> float:
    return float(text.replace(",", ""))


_FORMULAS: Final[Mapping[str, Callable[[Sequence[float]], str]]] = {
    "largest": lambda numbers: f"{max(numbers):g}",
    "smallest": lambda numbers: f"{min(numbers):g}",
    "sum": lambda numbers: f"{sum(numbers):g}",
    "sum of the first two": lambda numbers: f"{sum(numbers[:2]):g}",
    "product of the first two": lambda numbers: f"{numbers[0] * numbers[min(1, len(numbers) - 1)]:g}",
    "difference of the first two": lambda numbers: f"{abs(numbers[0] - numbers[min(1, len(numbers) - 1)]):g}",
    "count": lambda numbers: str(len(numbers)),
}
