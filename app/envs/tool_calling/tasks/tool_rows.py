"""Requests from an operator's data set, in either supported format."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, model_validator

from app.domain.sources import Dataset, leave_out
from app.domain.tasks import Message, ToolSpec
from app.domain.values import Split
from app.envs.tool_calling.tasks import bfcl, xlam
from app.envs.tool_calling.tasks.tool_requests import Category, ToolRequest
from app.toolkit.tool_calls.calls import ExpectedCall
from app.toolkit.tool_calls.matching import match_calls
from app.toolkit.tool_calls.schemas import find_parameters


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
        try:
            self.request  # noqa: B018  # built once, and kept
        except ValueError as error:
            raise leave_out(f"no reply could be right: {error}") from None
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.question if self.query is None else xlam.parse_messages(self.query)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        return self.function if self.query is None else self.tools

    @cached_property
    def request(self) -> ToolRequest:
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


class RowCategories:
    """Which rows of a data set are of which category."""

    def __init__(self, dataset: Dataset[ToolRow]) -> None:
        """Reads every row."""
        self._categories = {
            split: tuple(row.request.category for row in rows) for split, rows in dataset.splits.items()
        }

    @lru_cache(maxsize=64)  # noqa: B019  # as many as there are choices of categories; it lives as long as the data set
    def select_rows(self, split: Split, categories: tuple[Category, ...] = ()) -> Sequence[int]:
        """Indexes of the rows of these categories, by default of all."""
        known = self._categories.get(split, ())
        if not categories:
            return range(len(known))
        return tuple(index for index, category in enumerate(known) if category in categories)


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
