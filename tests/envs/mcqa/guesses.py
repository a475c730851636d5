"""Guesses that do not work a question out: by its kind, and by the look of the options."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from app.envs.mcqa.environment import ChoiceQuestion


def count_right_guesses(made: Sequence[ChoiceQuestion]) -> tuple[int, int]:
    """Of how many questions a guess is right, and of how many it was made: by what earned most on the other half."""
    learnt, others = made[: len(made) // 2], made[len(made) // 2 :]
    rates = {name: _learn(look, learnt) for name, look in LOOKS.items()}

    def count(name: str, among: Sequence[ChoiceQuestion]) -> int:
        look, rate = LOOKS[name], rates[name]
        return sum(
            max(range(len(one.options)), key=lambda place: rate.get(look(one, place), 0.0)) == one.right
            for one in among
        )

    return count(max(LOOKS, key=lambda name: count(name, learnt)), others), len(others)


def _learn(look: Callable[[ChoiceQuestion, int], object], made: Sequence[ChoiceQuestion]) -> Mapping[object, float]:
    """How often an option that looks so was right."""
    seen = Counter(look(one, place) for one in made for place in range(len(one.options)))
    right = Counter(look(one, one.right) for one in made)
    return {value: right[value] / times for value, times in seen.items()}


def _find_kind(made: ChoiceQuestion) -> str:
    return re.sub(r"[A-Z]\w+", "", made.text.rsplit(". ", 1)[-1]) if made.topic == "sets" else made.text.split()[-1]


def _rank(read: Callable[[ChoiceQuestion, str], float]) -> Callable[[ChoiceQuestion, int], tuple[str, int]]:
    def find(made: ChoiceQuestion, place: int) -> tuple[str, int]:
        values = [read(made, option) for option in made.options]
        return _find_kind(made), sorted(values).index(values[place])

    return find


def _read_number(made: ChoiceQuestion, option: str) -> float:
    day = re.fullmatch(r"(\d+) \w+ \d{4}", option)
    return float(day[1]) if day else float(option.replace(",", "")) if option[0].isdecimal() else 0.0


def _read_row(made: ChoiceQuestion, option: str) -> tuple[int, int]:
    row = re.search(rf"{option}: (\d+) \w+, (\d+) ", made.text)
    return (int(row[1]), int(row[2])) if row else (0, 0)


LOOKS: Mapping[str, Callable[[ChoiceQuestion, int], object]] = {
    "place and length": lambda made, place: (place, len(made.text) // 20),
    "text": lambda made, place: (_find_kind(made), made.options[place]),
    "lists": lambda made, place: (*(part.count(",") for part in made.text.split(". ")), made.options[place]),
    "rank": _rank(_read_number),
    "mentions": _rank(lambda made, option: made.text.count(option)),
    "first mention": _rank(lambda made, option: made.text.find(option)),
    "last mention": _rank(lambda made, option: made.text.rfind(option)),
    "first number": _rank(lambda made, option: _read_row(made, option)[0]),
    "second number": _rank(lambda made, option: _read_row(made, option)[1]),
    "largest number": _rank(lambda made, option: max(_read_row(made, option))),
    "balance": _rank(lambda made, option: abs(_read_row(made, option)[0] - _read_row(made, option)[1])),
}
