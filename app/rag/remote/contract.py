"""The HTTP contract of remote retrievers, version 1. Retrievers are untrusted."""

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, ValidationError

from app.domain.errors import RetrieverFailed
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.values import Frozen, require_encodable
from app.domain.worlds import GameTime

CONTRACT_VERSION: Final = 1
DEFAULT_SOURCE: Final = "remote"
"""Source of passages without one."""
UNKNOWN_WORLD: Final = "unknown_world"
"""Error code of a 404 for an unknown world."""

_LINE_BREAKS = "\n\r\t"


def _require_readable(text: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in text if character not in _LINE_BREAKS):
        raise ValueError("Input should have no control characters but line breaks and tabs")
    if not text.strip():
        raise ValueError("Input should not be blank")
    return require_encodable(text)


def _require_one_line(text: str) -> str:
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in text):
        raise ValueError("Input should be one line")
    return _require_readable(text)


OneLineText = Annotated[str, Field(max_length=200), AfterValidator(_require_one_line)]
ReadableText = Annotated[str, AfterValidator(_require_readable)]


class RemotePassage(Frozen):
    id: OneLineText
    text: ReadableText
    source: OneLineText = DEFAULT_SOURCE
    time: GameTime | None = None
    kind: Literal["event", "lore"] = "event"


class RemoteWithheld(Frozen):
    id: OneLineText
    reason: OneLineText
    text: ReadableText | None = None
    leak_terms: Annotated[tuple[OneLineText, ...], Field(max_length=64)] = ()


class RetrieverAnswer(Frozen):
    passages: tuple[RemotePassage, ...]
    withheld: tuple[RemoteWithheld, ...] = ()
    as_of: GameTime | None = None

    @property
    def context(self) -> Context:
        return Context(
            passages=tuple(Passage(**passage.model_dump()) for passage in self.passages),
            withheld=tuple(
                Withheld(id=one.id, reason=one.reason, text=one.text or "", leak_terms=one.leak_terms)
                for one in self.withheld
            ),
            as_of=self.as_of,
        )


class RetrieverRefusal(Frozen):
    """The body of a 404 with an error code."""

    error: str


@dataclass(frozen=True)
class AnswerBounds:
    """Limits of one answer: number of passages, and characters of each. They also apply to withheld items."""

    passages: int = 64
    characters: int = 8000


def encode_query(query: ContextQuery) -> bytes:
    """Times are in UTC."""
    as_of = None if query.as_of is None else query.as_of.astimezone(UTC)
    asked = {"version": CONTRACT_VERSION, "query": query.model_copy(update={"as_of": as_of}).model_dump(mode="json")}
    return json.dumps(asked, allow_nan=False).encode()


def parse_answer(body: bytes, bounds: AnswerBounds) -> Context:
    """RetrieverFailed, with a message that quotes nothing of the body."""
    try:
        answer = RetrieverAnswer.model_validate_json(body)
    except ValidationError as error:
        raise RetrieverFailed(f"the retriever's answer violates the contract: {_describe_error(error)}") from None
    _require_bounds("passages", [passage.text for passage in answer.passages], bounds)
    _require_bounds("withheld", [one.text or "" for one in answer.withheld], bounds)
    _require_unique_ids([*(passage.id for passage in answer.passages), *(one.id for one in answer.withheld)])
    return answer.context


def is_unknown_world(body: bytes) -> bool:
    """Whether a 404 is about the world, and not about the URL."""
    try:
        return RetrieverRefusal.model_validate_json(body).error == UNKNOWN_WORLD
    except ValidationError:
        return False


def _describe_error(error: ValidationError) -> str:
    """Describes the first error, without names that the retriever invented."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = first["loc"]
    if first["type"] == "extra_forbidden":
        where, wrong = where[:-1], "has an unknown key"
    else:
        wrong = first["msg"].removeprefix("Value error, ")
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")
    return f"{path or 'it'}: {wrong}"


def _require_bounds(name: str, texts: Sequence[str], bounds: AnswerBounds) -> None:
    if len(texts) > bounds.passages:
        raise RetrieverFailed(f"the retriever's answer is too large: more than {bounds.passages} {name}")
    for place, text in enumerate(texts):
        if len(text) > bounds.characters:
            long = f"{name}[{place}].text has more than {bounds.characters} characters"
            raise RetrieverFailed(f"the retriever's answer is too large: {long}")


def _require_unique_ids(ids: Sequence[str]) -> None:
    if len(set(ids)) < len(ids):
        raise RetrieverFailed("the retriever's answer violates the contract: two items have the same id")
