"""Guesses that do not work a question out: by its kind, its length and its numbers, and by the look of the options."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from app.envs.mcqa.environment import ChoiceQuestion

Looks = Sequence[Mapping[str, object]]
"""For each option what there is to see of it, by what is looked at."""


def count_right_guesses(made: Sequence[ChoiceQuestion]) -> tuple[int, int]:
    """Of how many questions a guess is right, and of how many it was made: by what earned most on the other half."""
    half = len(made) // 2
    looks = [[_look_at(one, place) for place in range(len(one.options))] for one in made]
    guesses = {name: _learn(name, made[:half], looks[:half]) for name in looks[0][0]}

    def count(name: str, among: slice) -> int:
        return sum(
            max(range(len(options)), key=lambda place: guesses[name].get(options[place][name], 0.0)) == one.right
            for one, options in zip(made[among], looks[among], strict=True)
        )

    best = max(guesses, key=lambda name: count(name, slice(half)))
    return count(best, slice(half, None)), len(made) - half


def _learn(name: str, made: Sequence[ChoiceQuestion], looks: Sequence[Looks]) -> Mapping[object, float]:
    """How often an option that looks so was right."""
    seen = Counter(option[name] for options in looks for option in options)
    right = Counter(options[one.right][name] for one, options in zip(made, looks, strict=True))
    return {look: right[look] / times for look, times in seen.items()}


def _look_at(made: ChoiceQuestion, place: int) -> Mapping[str, object]:
    kind = re.sub(r"[A-Z]\w+", "", made.text.rsplit(". ", 1)[-1]) if made.topic == "sets" else made.text.split()[-1]
    numbers = [int(number.replace(",", "")) // 10 for number in re.findall(r"\d[\d,]*", made.text)[:2]]
    around: Mapping[str, object] = {
        "kind": kind,
        "lists": (kind, *(part.count(",") for part in made.text.split(". "))) if made.topic == "sets" else "",
        "length": len(made.text) // 20,
        "numbers": tuple(numbers),
    }
    looks = {what: find(made, place) for what, find in OPTION_LOOKS.items()}
    return {f"{what} by {name}": (one, found) for what, found in looks.items() for name, one in around.items()} | {
        "text": made.options[place],
        "text by kind": (around["kind"], made.options[place]),
        "text by lists": (around["lists"], made.options[place]),
    }


def _rank(read: Callable[[ChoiceQuestion, str], float]) -> Callable[[ChoiceQuestion, int], int]:
    def find(made: ChoiceQuestion, place: int) -> int:
        values = [read(made, option) for option in made.options]
        return sorted(values).index(values[place])

    return find


def _read_number(made: ChoiceQuestion, option: str) -> float:
    day = re.fullmatch(r"(\d+) \w+ \d{4}", option)
    return float(day[1]) if day else float(option.replace(",", "")) if option[0].isdecimal() else 0.0


def _read_row(made: ChoiceQuestion, option: str) -> tuple[int, int]:
    row = re.search(rf"{option}: (\d+) \w+, (\d+) ", made.text)
    return (int(row[1]), int(row[2])) if row else (0, 0)


OPTION_LOOKS: Mapping[str, Callable[[ChoiceQuestion, int], int]] = {
    "place": lambda made, place: place,
    "rank": _rank(_read_number),
    "mentions": lambda made, place: made.text.count(made.options[place]),
    "first mention": _rank(lambda made, option: made.text.find(option)),
    "last mention": _rank(lambda made, option: made.text.rfind(option)),
    "first number": _rank(lambda made, option: _read_row(made, option)[0]),
    "second number": _rank(lambda made, option: _read_row(made, option)[1]),
    "largest number": _rank(lambda made, option: max(_read_row(made, option))),
    "balance": _rank(lambda made, option: abs(_read_row(made, option)[0] - _read_row(made, option)[1])),
}
