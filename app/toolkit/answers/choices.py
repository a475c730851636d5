"""Options with letters, the letter that an answer chooses, and the right option as data sets give it."""

import json
import re
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from app.domain.sources import leave_out
from app.domain.values import Frozen
from app.toolkit.seeded import SeededRandom

LETTERS: Final = ascii_uppercase
_LETTER: Final = re.compile(r"\(?([A-Za-z])[).:]?")
_NO_ANSWER: Final = "there is no answer"


def _read_text(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else value


OptionText = Annotated[str | None, BeforeValidator(_read_text)]


class ChoiceOptions(Frozen):
    """The options of a question with the index of the right one, all different."""

    texts: Annotated[tuple[str, ...], Field(min_length=2)]
    right: int

    @property
    def listed(self) -> str:
        return list_options(self.texts)

    @property
    def letter(self) -> str:
        return LETTERS[self.right]

    def shuffle(self, draws: SeededRandom) -> "ChoiceOptions":
        order = draws.shuffled(range(len(self.texts)))
        return ChoiceOptions(texts=tuple(self.texts[place] for place in order), right=order.index(self.right))


class ListedOptions(Frozen):
    """A list of texts, or an object of the lists `text` and `label`; in a cell of a CSV file either of them as JSON."""

    model_config = ConfigDict(extra="ignore")

    text: tuple[OptionText, ...]
    label: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read_list(cls, value: object) -> object:
        value = read_json_cell(value)
        return {"text": value} if isinstance(value, list | tuple) else value

    def choose(self, answer: JsonValue) -> ChoiceOptions:
        """With the option that `answer` names: a label where there are some, else a letter, an index from 0, or the
        text of the option. Options without a text are dropped. A ValueError never quotes a row."""
        right = self._find(answer)
        if not 0 <= right < len(self.text) or self.text[right] is None:
            raise ValueError("the answer is none of the options")
        kept = [(place, text) for place, text in enumerate(self.text) if text is not None]
        return build_options([text for _, text in kept], [place for place, _ in kept].index(right))

    def _find(self, answer: JsonValue) -> int:
        if isinstance(answer, bool) or not isinstance(answer, str | int):
            raise ValueError("the answer is neither a text nor a whole number")
        if answer in ("", -1):
            raise leave_out(_NO_ANSWER)
        if self.label:
            return self._find_label(str(answer).strip())
        if isinstance(answer, int):
            return answer
        return self._find_text(answer.strip())

    def _find_label(self, answer: str) -> int:
        if len(self.label) != len(self.text):
            raise ValueError("there are not as many labels as options")
        return self.label.index(answer) if answer in self.label else -1

    def _find_text(self, answer: str) -> int:
        named = self.text.index(answer) if answer in self.text else -1
        place = int(answer) if answer.isascii() and answer.isdecimal() and len(answer) < 3 else -1
        if len(answer) == 1 and answer.isascii() and answer.isalpha():
            place = LETTERS.index(answer.upper())
        if not 0 <= place < len(self.text):
            return named
        if named not in (-1, place):
            raise leave_out("the answer may be the place of an option or the text of another one")
        return place


def list_options(texts: Sequence[str]) -> str:
    """With their letters, one to a line."""
    return "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=False))


def build_options(texts: Sequence[str], right: int) -> ChoiceOptions:
    """A row is left out where it has no choice, too much of it, or two options that are the same."""
    if not 2 <= len(texts) <= len(LETTERS):
        raise leave_out(f"there are fewer than 2 options, or more than {len(LETTERS)}")
    if len({" ".join(text.split()) for text in texts}) < len(texts):
        raise leave_out("two options are the same")
    return ChoiceOptions(texts=tuple(texts), right=right)


def read_json_cell(value: object) -> object:
    """A cell of CSV that holds a list or an object as JSON; anything else as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def find_choice_fault(answer: str, right: str) -> str:
    """What is wrong with a committed answer, where the letter `right` is right; empty for a right one."""
    letter = _LETTER.fullmatch(answer)
    if letter is None:
        return "it is not one letter"
    return "" if letter[1].upper() == right else "it is another option"
