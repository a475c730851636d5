"""What NeMo Gym 0.7.0's agents send to a resources server, and what they are answered."""

from collections.abc import Mapping
from hashlib import sha256
from statistics import fmean
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.errors import InvalidRequest
from app.domain.parts import SampleName
from app.domain.runs import Purpose
from app.domain.values import FiniteNumber, Frozen, WholeNumber
from app.http.compat.nemo_gym.responses import ResponsesObject
from app.http.compat.one_sample.labels import SampleLabel
from app.http.compat.one_sample.options import GATHER_DESCRIPTION, SampleOptions
from app.service.request_models import TaskId

ReverifyMode = Literal["stateless", "unsupported"]
Index = Annotated[WholeNumber, Field(ge=0, lt=2**53)]
_DAY: Final = 86_400


class NemoGymOptions(SampleOptions):
    contract: ClassVar[str] = "nemo_gym"

    gather_seconds: Annotated[float, Field(ge=0, le=_DAY, allow_inf_nan=False, description=GATHER_DESCRIPTION)] = 300.0
    wait_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=_DAY,
            allow_inf_nan=False,
            description="Maximum seconds until the response. NeMo Gym waits without end, verifiers 60 seconds.",
        ),
    ] = 900.0


class NemoGymRow(BaseModel):
    """A row of the data set with what collection has added. Other keys are echoed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: TaskId
    purpose: Purpose = "train"
    """`eval`: scored by itself, in no training figure."""
    task_index: Annotated[Index | None, Field(alias="_ng_task_index")] = None
    rollout_index: Annotated[Index | None, Field(alias="_ng_rollout_index")] = None

    def read_label(self, options: NemoGymOptions) -> SampleLabel:
        """Rollouts beyond the size of a group are the next groups of their task."""
        group = "" if self.task_index is None else str(self.task_index)
        if group and self.rollout_index is not None and self.rollout_index >= options.group_size:
            group = f"{group}/{self.rollout_index // options.group_size}"
        return SampleLabel(task_id=self.task_id, group=group, purpose=self.purpose)

    def name_sample(self, size: int, body: bytes) -> SampleName:
        """Agents send a request again, byte for byte, when its reply was lost. Another rollout has another response,
        with an id of its own."""
        named = size > 1 and self.task_index is not None and self.rollout_index is not None
        return SampleName((self.rollout_index or 0) % size if named else None, sha256(body).hexdigest())


class VerifyRequest(NemoGymRow):
    """A row and the response to it."""

    responses_create_params: dict[str, JsonValue]
    response: ResponsesObject
    instance_config: JsonValue = None

    @property
    def offers_tools(self) -> bool:
        return bool(self.responses_create_params.get("tools"))


class SeedRequest(BaseModel):
    """A row, or since 0.7 a session's id with a row in `task_data`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    resources_session_id: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    task_id: JsonValue = None
    task_data: dict[str, JsonValue] = {}

    def find_task(self) -> str:
        """InvalidRequest naming the field."""
        field, named = ("task_id", self.task_id)
        if self.resources_session_id is not None:
            field, named = ("task_data.task_id", self.task_data.get("task_id"))
        if not isinstance(named, str):
            raise InvalidRequest(
                "a row names its task: write rows with `atropos-envs tasks --for nemo_gym`", field=field
            )
        return named


class SeedReply(Frozen):
    """For a session that the caller has named."""

    resources_session_id: str
    resources_tools: None = None
    sandbox_access: None = None


class CloseRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    resources_session_id: Annotated[str, Field(max_length=500)]


class CloseReply(Frozen):
    resources_session_id: str


class VerifiedRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    task_index: Annotated[JsonValue, Field(alias="_ng_task_index")] = None
    mask_sample: bool = False

    @property
    def numbers(self) -> dict[str, float]:
        """What is counted: numbers, and truths as 0 and 1."""
        return {
            name: float(value)
            for name, value in self.__pydantic_extra__.items()
            if isinstance(value, (bool, int, float)) and not name.startswith("_")
        }


class MetricsRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    verify_responses: Annotated[tuple[VerifiedRow, ...], Field(max_length=1_000_000)]


Metrics = dict[str, FiniteNumber | str | int | None]


class MetricsReply(Frozen):
    """Means. Masked rows are counted and left out of them."""

    group_level_metrics: tuple[Metrics, ...]
    agent_metrics: Metrics
    key_metrics: Metrics
    perf_summary: None = None
    repeat_level_metrics: tuple[Metrics, ...] = ()


def aggregate_metrics(asked: MetricsRequest) -> MetricsReply:
    by_task: dict[str, list[VerifiedRow]] = {}
    for row in asked.verify_responses:
        by_task.setdefault(str(row.task_index), []).append(row)
    whole = _average(asked.verify_responses)
    return MetricsReply(
        group_level_metrics=tuple({"_ng_task_index": name, **_average(rows)} for name, rows in by_task.items()),
        agent_metrics=whole,
        key_metrics={name: value for name, value in whole.items() if name == "mean/reward"},
    )


def _average(rows: "list[VerifiedRow] | tuple[VerifiedRow, ...]") -> Metrics:
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in {} if row.mask_sample else row.numbers.items():
            values.setdefault(name, []).append(value)
    counts: Mapping[str, int] = {"rollouts": len(rows), "masked": sum(row.mask_sample for row in rows)}
    return {**{f"mean/{name}": fmean(found) for name, found in values.items()}, **counts}
