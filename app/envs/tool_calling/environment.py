"""Tool calling: make exactly the calls that a request needs, or none where no tool fits.

    prompt   system: … call the tools that the request needs …     tools: get_forecast, get_hourly_rain, book_table
             user:   What will the weather be like in Kyoto over the next 10 days?
    reply    <tool_call>{"name": "get_forecast", "arguments": {"city": "Kyoto", "days": 10}}</tool_call>
    reward   1.0     exactly the calls that were asked for, in any order

Only the exact set of calls is paid: valid by the tools' schemas, no argument missing or invented (an argument may equal
its default), no duplicate call, no malformed call beside a right one, nothing inside the thinking.
`app.toolkit.tool_calls` has the supported formats and the comparison of values. Where no tool fits, or the request
lacks something that a call needs, the right reply makes no call and begins `No tool fits:`, then says what is missing
and what for.

With data sets configured (in the format of BFCL or xLAM), their rows are the tasks. Otherwise tasks are generated from
built-in APIs; their metadata says so.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Dataset, FunctionCall, Message, Task, ToolCall
from app.domain.values import Split, digest_of_model
from app.envs.tool_calling.requests import (
    INSTRUCTION,
    TEST_SIZE,
    ApiBook,
    Category,
    GeneratedRequests,
    ToolRequest,
    choose_category,
    is_right_refusal,
    write_refusal,
)
from app.envs.tool_calling.rows import RowCategories, ToolRow
from app.ports import Datasets, Tools
from app.ports.environment import FreeReward
from app.toolkit.procedural import DatasetEnvironment, DatasetParams
from app.toolkit.thoughts import map_completions
from app.toolkit.tool_calls.calls import CallMatch, CallReading, ParsedCall, Strictness, match_calls
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat, find_declared_format, render_tools
from app.toolkit.tool_calls.replies import read_calls

APIS = Path(__file__).with_name("apis")
_RULES: Final[Mapping[Strictness, str]] = {"ours": "by our rule of texts", "published": "by BFCL's rule of texts"}


class ToolCallingParams(DatasetParams):
    """`tool_format`: `native` passes the tools to the model's chat template and reads any supported format; any other
    format writes tools and instructions into the prompt and reads only this format. `strictness` says when two texts
    are the same: `ours` folds the case of plain words alone; `published` folds marks and case as BFCL does, for
    figures beside those of others."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"tool_format": "native", "categories": ["choice", "several"]}]}
    )

    tool_format: Literal["native"] | ToolFormat = "native"
    categories: Annotated[tuple[Category, ...], Field(max_length=5)] = ()
    """Categories of tasks; empty means all."""
    strictness: Strictness = "ours"


class ToolCalling(DatasetEnvironment[ToolRow]):
    name: ClassVar[str] = "tool_calling"
    version: ClassVar[str] = "3"
    scores_at_once: ClassVar[bool] = True
    chance: ClassVar[float] = 0.002
    Params: ClassVar[type[BaseModel]] = ToolCallingParams
    stats_label: ClassVar[str | None] = "category"
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="near_miss_case",
            share=None,
            because="The case of plain words does not matter unless the schema lists its values.",
        ),
        FreeReward(
            strategy="field_changed",
            share=0.3,
            because="An argument may be left out where its value is the default of the schema.",
        ),
    )

    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (ToolRow,)

    def __init__(self, generated: GeneratedRequests, datasets: Mapping[str, Dataset[ToolRow]] | None = None) -> None:
        super().__init__(datasets)
        self._generated = generated
        self._categories = {name: RowCategories(dataset) for name, dataset in self.datasets.items()}

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        return cls(GeneratedRequests(ApiBook.read(APIS)), cls.read_datasets(datasets))

    @property
    def own_digests(self) -> Mapping[str, str]:
        return {"apis": digest_of_model(self._generated.book)}

    def count_own_tasks(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        asked = _parse_params(params)
        request = self._generated.get_request(split, index, asked.categories)
        task = _build_task(request, asked)
        origin: dict[str, JsonValue] = {"source": self.own_origin, "split": split, "index": index}
        return task.model_copy(update={"metadata": {**origin, **task.metadata}})

    def build_row_task(self, row: ToolRow, dataset: Dataset[ToolRow], params: BaseModel) -> Task:
        return _build_task(row.request, _parse_params(params))

    def size(self, split: Split, params: BaseModel) -> int | None:
        dataset = self.find_dataset(params)
        if dataset is None:
            return self.count_own_tasks(split, params)
        return len(self._categories[dataset.name].select_rows(split, _parse_params(params).categories))

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        dataset = self.find_dataset(params)
        if dataset is not None:
            index = self._categories[dataset.name].select_rows(split, _parse_params(params).categories)[index]
        return super().task(split, index, params)

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        if self.find_dataset(params) is None:
            return choose_category(index, _parse_params(params).categories)
        return super().label(split, index, params)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        request, form = _parse_request(task), find_declared_format(task.metadata["tool_format"])
        return await map_completions(group, lambda one: _grade_reply(request, read_calls(one, request.tools, form)))

    def gold(self, task: Task) -> Completion:
        request, form = _parse_request(task), find_declared_format(task.metadata["tool_format"])
        calls = [one.build_minimal_call() for one in request.expected]
        if not calls:
            return Completion(text=write_refusal(request))
        if form is not None:
            return Completion(text=FORMATS[form].write(calls))
        return Completion(messages=(Message(role="assistant", tool_calls=tuple(map(_build_native_call, calls))),))

    def equivalent(self, one: Task, other: Task) -> bool:
        """Where no tool fits, the same words may be right for both tasks."""
        first, second = _parse_request(one), _parse_request(other)
        if not first.expected and not second.expected:
            return is_right_refusal(write_refusal(second), first)
        return first.expected == second.expected


def _merge_system_messages(system: str, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Merges the system messages of a row into one, since chat templates allow only one."""
    own = [message.content for message in messages if message.role == "system" and message.content]
    content = "\n\n".join([system, *own])
    return (Message(role="system", content=content), *(message for message in messages if message.role != "system"))


def _grade_reply(request: ToolRequest, reading: CallReading) -> Score:
    matches = {rule: match_calls(reading.calls, request.expected, request.tools, rule) for rule in _RULES}
    matched = matches[request.strictness]
    refused = is_right_refusal(reading.said, request)
    is_read = not reading.fault and (refused or bool(request.expected))
    correct, missing = is_read and matched.correct, bool(request.expected) and not reading.calls
    return Score(
        outcome="scored",
        reward=float(correct),
        gate=1.0,
        absolute=float(correct),
        criteria=(
            Criterion(name="correct", value=float(correct), weight=1.0),
            Criterion(name="precision", value=matched.precision, weight=0.0, note="calls that were asked for"),
            Criterion(name="recall", value=matched.recall, weight=0.0, note="what was asked for and called"),
            # Both verdicts, so that figures can be compared with those of others whichever rule pays.
            *(
                Criterion(name=rule, value=float(is_read and one.correct), weight=0.0, note=_RULES[rule])
                for rule, one in matches.items()
            ),
        ),
        flags=("malformed_call",) if reading.fault else ("no_call",) if missing else (),
        rationale=_explain_score(request, reading, matched, refused),
    )


def _explain_score(request: ToolRequest, reading: CallReading, matched: CallMatch, refused: bool) -> str:
    if reading.fault:
        return f"the reply cannot be read: {reading.fault}"
    if not matched.correct:
        return matched.fault
    if request.expected:
        return f"the calls are right ({reading.format})"
    return "no tool fits, and the reply says so" if refused else "the reply does not say what is missing"


def _build_task(request: ToolRequest, asked: ToolCallingParams) -> Task:
    form = asked.tool_format
    system = INSTRUCTION if form == "native" else f"{INSTRUCTION}\n\n{render_tools(request.tools, form)}"
    return Task(
        messages=_merge_system_messages(system, request.messages),
        tools=request.tools if form == "native" else (),
        metadata={
            "category": request.category,
            "domain": request.domain,
            "tool_format": form,
            "strictness": asked.strictness,
        },
        reference=request.model_copy(update={"strictness": asked.strictness}).model_dump(mode="json"),
    )


def _parse_params(params: BaseModel) -> ToolCallingParams:
    return ToolCallingParams.model_validate(params, from_attributes=True)


def _parse_request(task: Task) -> ToolRequest:
    return ToolRequest.model_validate(task.reference)


def _build_native_call(call: ParsedCall) -> ToolCall:
    return ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments))
