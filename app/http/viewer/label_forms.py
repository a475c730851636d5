"""What somebody who labels sends from the page, and the label that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationError

from app.domain.errors import InvalidRequest
from app.domain.labels import GroupLabelRequest
from app.http.viewer.forms import FormFields
from app.http.web.problems import describe_faults
from app.service.label_models import ItemRequest, SkipRequest

MAX_FORM: Final = 100_000
_LONGEST_SECONDS: Final = 86_400.0
_LEVELS: Final = frozenset("01234")

Act = Literal["next", "send", "skip", "undo"]
_ACTS: Final[Mapping[str, Act]] = {"next": "next", "send": "send", "skip": "skip", "undo": "undo"}


@dataclass(frozen=True)
class LabelForm:
    """The fields of a form, each once."""

    fields: Mapping[str, str]
    is_refused: bool = False
    """What was typed is shown again."""

    @classmethod
    def from_fields(cls, sent: FormFields) -> "LabelForm":
        return cls({name: values[-1].strip() for name, values in sent.items()})

    def refill(self, name: str) -> str:
        """What to fill into a field."""
        return self.get(name) if self.is_refused else ""

    def get(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def act(self) -> Act:
        return _ACTS.get(self.get("act"), "next")

    def build_item_request(self) -> ItemRequest:
        """InvalidRequest naming the field."""
        named = {"labeller": self.get("labeller"), "environment": self.get("environment"), "run": self.get("run")}
        try:
            return ItemRequest.model_validate({name: word for name, word in named.items() if word})
        except ValidationError as error:
            raise InvalidRequest(_describe(error)) from error

    def build_label(self, now: float) -> GroupLabelRequest:
        """InvalidRequest where nothing was chosen, or what was is no label."""
        first, second = self.get("first"), self.get("second")
        orders = {"first": [[first], [second]], "second": [[second], [first]], "equal": [[first, second]]}
        replies = {
            reply: said for reply, side in ((first, "first"), (second, "second")) if (said := self._read_reply(side))
        }
        given = {
            "labeller": self.get("labeller"),
            "lease_id": self.get("lease") or None,
            "rubric_version": self.get("rubric") or None,
            "order": orders.get(self.get("choice"), []),
            "replies": replies,
            "comment": self.get("comment"),
            "seconds": _count_seconds(self.get("shown"), now),
        }
        try:
            return GroupLabelRequest.model_validate(given)
        except ValidationError as error:
            raise InvalidRequest(_describe(error)) from error

    def build_skip(self) -> SkipRequest:
        """InvalidRequest where the item is not named."""
        try:
            return SkipRequest(labeller=self.get("labeller"), lease_id=self.get("lease"))
        except ValidationError as error:
            raise InvalidRequest(_describe(error)) from error

    def _read_reply(self, side: str) -> dict[str, object]:
        """What is said of one reply; empty where nothing is."""
        begun = f"level.{side}."
        levels = {
            name.removeprefix(begun): None if word == "none" else word
            for name, word in self.fields.items()
            if name.startswith(begun) and word
        }
        numbers = {name: int(word) if word is not None and word in _LEVELS else word for name, word in levels.items()}
        defect = {"yes": True, "no": False}.get(self.get(f"defect.{side}"))
        said = {"levels": numbers, "defect": defect}
        return {name: value for name, value in said.items() if value not in (None, {})}


def _count_seconds(shown: str, now: float) -> float | None:
    try:
        seconds = now - float(shown)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _LONGEST_SECONDS else None


def _describe(error: ValidationError) -> str:
    summary, _ = describe_faults(error.errors(include_url=False, include_context=False))
    return summary.removeprefix(": ").removeprefix("Value error, ")
