"""Requests from an operator's data set, in either supported format."""

import logging
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, model_validator

from app.domain.sources import Dataset
from app.domain.tasks import Message, ToolSpec
from app.domain.values import Split
from app.envs.tool_calling.tasks import bfcl, xlam
from app.envs.tool_calling.tasks.tool_requests import Category, ToolRequest
from app.toolkit.tool_calls.calls import ExpectedCall
from app.toolkit.tool_calls.matching import match_calls
from app.toolkit.tool_calls.schemas import find_parameters

log = logging.getLogger(__name__)


class ToolRow(BaseModel):
    """A row has `question` and `function` (BFCL) or `query` and `tools` (xLAM), and the expected calls in
    `ground_truth` or `answers`. Without expected calls, no call is right."""

    model_config = ConfigDict(frozen=True)

    question: Annotated[tuple[Message, ...], BeforeValidator(bfcl.parse_messages)] = ()
    function: Annotated[tuple[ToolSpec, ...], BeforeValidator(bfcl.parse_tools)] = ()
    ground_truth: JsonValue = None
    query: str | None = None
    tools: Annotated[tuple[ToolSpec, ...], BeforeValidator(xlam.parse_tools)] = ()
    answers: JsonValue = None

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if not {"question", "function"} <= self.model_fields_set and not {"query", "tools"} <= self.model_fields_set:
            raise ValueError("a row needs `question` and `function`, or `query` and `tools`")
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.question if self.query is None else xlam.parse_messages(self.query)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        return self.function if self.query is None else self.tools

    def build_request(self) -> ToolRequest:
        """ValueError if no reply could be right; the data sets have a few such rows."""
        expected: tuple[ExpectedCall, ...] = ()
        if self.ground_truth is not None:
            expected = bfcl.parse_expected_calls(self.ground_truth)
        elif self.answers is not None:
            expected = xlam.parse_expected_calls(self.answers)
        expected = tuple(_apply_required(one, self.offered) for one in expected)
        if not match_calls([one.build_minimal_call() for one in expected], expected, self.offered).correct:
            raise ValueError("the expected calls do not fit the tools")
        return ToolRequest(
            category=_classify_request(self.offered, expected),
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
        self._requests = {split: _load_answerable(dataset, split) for split in dataset.splits}
        self._chosen: dict[tuple[Split, tuple[Category, ...]], tuple[ToolRequest, ...]] = {}

    def size(self, split: Split, categories: tuple[Category, ...] = ()) -> int:
        return len(self._select_requests(split, categories))

    def get_request(self, split: Split, index: int, categories: tuple[Category, ...] = ()) -> ToolRequest:
        return self._select_requests(split, categories)[index]

    def _select_requests(self, split: Split, categories: tuple[Category, ...]) -> tuple[ToolRequest, ...]:
        if not categories:
            return self._requests[split]
        key = split, categories
        if key not in self._chosen:
            self._chosen[key] = tuple(one for one in self._requests[split] if one.category in categories)
        return self._chosen[key]


def _load_answerable(dataset: Dataset[ToolRow], split: Split) -> tuple[ToolRequest, ...]:
    requests = []
    for row in dataset.splits[split]:
        try:
            requests.append(row.build_request())
        except ValueError:
            continue
    left_out = len(dataset.splits[split]) - len(requests)
    if left_out:
        log.warning("%s, %s: skipped %d rows that no reply could get right", dataset.origin, split, left_out)
    return tuple(requests)


def _apply_required(call: ExpectedCall, tools: Sequence[ToolSpec]) -> ExpectedCall:
    """Arguments that the tool requires are not optional, whatever the data say."""
    required = (find_parameters(call.name, tools) or {}).get("required")
    return call.model_copy(
        update={"optional": call.optional.difference(required if isinstance(required, list) else [])}
    )


def _classify_request(tools: Sequence[ToolSpec], expected: Sequence[ExpectedCall]) -> Category:
    if not expected:
        return "irrelevance"
    if len(expected) == 1:
        return "simple" if len(tools) == 1 else "choice"
    return "parallel" if len({one.name for one in expected}) == 1 else "several"
