"""Requests from an operator's data set, in either supported format."""

import logging
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, model_validator

from app.domain.sources import Dataset
from app.domain.tasks import Message, ToolSpec
from app.domain.values import Split
from app.envs.tool_calling.tasks import bfcl, xlam
from app.envs.tool_calling.tasks.requests import Category, ToolRequest
from app.toolkit.tool_calls.matching import match
from app.toolkit.tool_calls.schemas import parameters_of
from app.toolkit.tool_calls.values import ExpectedCall

log = logging.getLogger(__name__)


class ToolRow(BaseModel):
    """A row has `question` and `function` (BFCL) or `query` and `tools` (xLAM), and the expected calls in
    `ground_truth` or `answers`. Without expected calls, no call is right."""

    model_config = ConfigDict(frozen=True)

    question: Annotated[tuple[Message, ...], BeforeValidator(bfcl.messages_of)] = ()
    function: Annotated[tuple[ToolSpec, ...], BeforeValidator(bfcl.tools_of)] = ()
    ground_truth: JsonValue = None
    query: str | None = None
    tools: Annotated[tuple[ToolSpec, ...], BeforeValidator(xlam.tools_of)] = ()
    answers: JsonValue = None

    @model_validator(mode="after")
    def _is_of_a_shape(self) -> Self:
        if not {"question", "function"} <= self.model_fields_set and not {"query", "tools"} <= self.model_fields_set:
            raise ValueError("a row needs `question` and `function`, or `query` and `tools`")
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.question if self.query is None else xlam.messages_of(self.query)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        return self.function if self.query is None else self.tools

    def request(self) -> ToolRequest:
        """ValueError if no reply could be right; the data sets have a few such rows."""
        expected: tuple[ExpectedCall, ...] = ()
        if self.ground_truth is not None:
            expected = bfcl.expected_of(self.ground_truth)
        elif self.answers is not None:
            expected = xlam.expected_of(self.answers)
        expected = tuple(_as_required(one, self.offered) for one in expected)
        if not match([one.least() for one in expected], expected, self.offered).correct:
            raise ValueError("the expected calls do not fit the tools")
        return ToolRequest(
            category=_category(self.offered, expected),
            domain="dataset",
            messages=self.messages,
            tools=self.offered,
            expected=expected,
        )


class ToolRows:
    """The rows of a data set that can be answered."""

    def __init__(self, dataset: Dataset[ToolRow]) -> None:
        self.origin = dataset.origin
        self.digest = dataset.digest
        self._requests = {split: _answerable(dataset, split) for split in dataset.splits}
        self._chosen: dict[tuple[Split, tuple[Category, ...]], tuple[ToolRequest, ...]] = {}

    def size(self, split: Split, categories: tuple[Category, ...] = ()) -> int:
        return len(self._of(split, categories))

    def request(self, split: Split, index: int, categories: tuple[Category, ...] = ()) -> ToolRequest:
        return self._of(split, categories)[index]

    def _of(self, split: Split, categories: tuple[Category, ...]) -> tuple[ToolRequest, ...]:
        if not categories:
            return self._requests[split]
        key = split, categories
        if key not in self._chosen:
            self._chosen[key] = tuple(one for one in self._requests[split] if one.category in categories)
        return self._chosen[key]


def _answerable(dataset: Dataset[ToolRow], split: Split) -> tuple[ToolRequest, ...]:
    requests = []
    for row in dataset.splits[split]:
        try:
            requests.append(row.request())
        except ValueError:
            continue
    left_out = len(dataset.splits[split]) - len(requests)
    if left_out:
        log.warning("%s, %s: skipped %d rows that no reply could get right", dataset.origin, split, left_out)
    return tuple(requests)


def _as_required(call: ExpectedCall, tools: Sequence[ToolSpec]) -> ExpectedCall:
    """Arguments that the tool requires are not optional, whatever the data say."""
    required = (parameters_of(call.name, tools) or {}).get("required")
    return call.model_copy(
        update={"optional": call.optional.difference(required if isinstance(required, list) else [])}
    )


def _category(tools: Sequence[ToolSpec], expected: Sequence[ExpectedCall]) -> Category:
    if not expected:
        return "irrelevance"
    if len(expected) == 1:
        return "simple" if len(tools) == 1 else "choice"
    return "parallel" if len({one.name for one in expected}) == 1 else "several"
