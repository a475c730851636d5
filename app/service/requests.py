"""Requests and replies of the service, shared by every API, and the ids by which repeats are recognised.

Ids of tasks, groups and streams are digests of what they are made from, so that a repeat has the id of the first
request, in any process and after any restart. Requests that arrive together for one id share one execution
(`SingleFlight`).
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import Annotated, Final, Generic, TypeVar

from pydantic import ConfigDict, Field, JsonValue

from app.domain.errors import GatewayError
from app.domain.groups import Group, TaskRecord
from app.domain.parts import MAX_GROUP_SIZE, GroupPart
from app.domain.runs import HandOutPolicy, Lease, Policy, Purpose, Stream
from app.domain.scores import Outcome, Score
from app.domain.tasks import Completion, Message, TaskKey, ToolSpec
from app.domain.values import (
    FiniteJson,
    FiniteNumber,
    Frozen,
    Name,
    Reward,
    Split,
    WholeNumber,
    canonical_json,
    digest,
    digest_in_pieces,
    digest_of_list,
)

BatchSize = Annotated[WholeNumber, Field(ge=1, le=1024, description="How many tasks to hand out.")]
Cursor = Annotated[
    WholeNumber,
    Field(
        ge=0,
        le=2**40,
        description="Position to start from, instead of leasing. The same request always returns the same tasks.",
    ),
]
LeaseSeconds = Annotated[
    FiniteNumber,
    Field(ge=1, le=86_400, description="How long a task is leased to you before it can go to another holder."),
]
TaskId = Annotated[str, Field(pattern=r"^task_[0-9a-f]{32}$")]
LeaseId = Annotated[str, Field(pattern=r"^lease_[0-9a-f]{32}$")]
GroupId = Annotated[str, Field(pattern=r"^group_[0-9a-f]{32}$")]
Rate = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
TARGET_KEY: Final = "target_pass_rate"
Weights = dict[
    Annotated[str, Field(max_length=100)],
    Annotated[dict[str, Annotated[FiniteNumber, Field(ge=0, le=1e6)]], Field(min_length=1, max_length=500)],
]


class BatchOptions(Frozen):
    """Options of every request for tasks."""

    batch_size: BatchSize = 8
    run: Annotated[Name | None, Field(description="Your job's name. Without it nothing is leased.")] = None
    lease_seconds: LeaseSeconds = 600.0
    purpose: Annotated[
        Purpose, Field(description="`eval` needs a cursor, is scored on `absolute`, and is not in training statistics.")
    ] = "train"
    cursor: Cursor | None = None
    policy: Annotated[
        HandOutPolicy | None,
        Field(description="The policy that will answer. Its `step` is kept with the leases.", examples=[{"step": 12}]),
    ] = None
    wait_seconds: Annotated[
        FiniteNumber,
        Field(
            ge=0,
            le=600,
            description="In a run with `lag_policy: pace`: wait at most so long for the oldest outstanding lease. "
            "After that the reply has no tasks, and `paced` is true.",
        ),
    ] = 10.0

    @property
    def policy_step(self) -> int | None:
        return None if self.policy is None else self.policy.step


class TaskSelection(Frozen):
    """Filters tasks by their public metadata: for each key, the allowed values."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, tuple[FiniteJson, ...]]

    target_pass_rate: Rate | None = None
    """Not a metadata key. Of every few tasks the one is leased whose expected pass rate is closest to this value. Pass
    rates are estimated from the run's own groups. Needs a `run`; for training tasks only."""

    @property
    def chosen(self) -> Mapping[str, tuple[FiniteJson, ...]]:
        """The metadata filter."""
        return self.model_extra or {}


class NextBatch(BatchOptions):
    split: Split = "train"
    params: dict[str, FiniteJson] = {}
    """Environment parameters; see the environment's catalogue entry."""
    select: TaskSelection = Field(default_factory=TaskSelection, examples=[{"target_pass_rate": 0.5}])
    weights: Annotated[
        Weights,
        Field(
            max_length=4,
            description="Sampling weight of each value of a metadata key. Values that are not named have weight 1; "
            "weight 0 excludes a value. For training tasks only; the stream is endless.",
        ),
    ] = {}


class MixMember(Frozen):
    env: Name
    weight: Annotated[FiniteNumber, Field(gt=0, le=1e6)] = 1.0
    split: Split = "train"
    params: dict[str, FiniteJson] = {}


class NextMixedBatch(BatchOptions):
    mix: Annotated[tuple[MixMember, ...], Field(min_length=1, max_length=64)]


class HandedOutTask(Frozen):
    """One task as handed to a trainer. It never contains the answer."""

    task_id: str
    lease_id: str | None
    environment: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_turns: int
    metadata: dict[str, JsonValue]
    lease_expires_at: datetime | None


class TaskBatch(Frozen):
    tasks: tuple[HandedOutTask, ...]
    next_cursor: int | None
    """The cursor of the next request; null when tasks were leased."""
    exhausted: bool
    """True when no task is left and none is leased. Fewer tasks than requested with `exhausted: false` means that the
    remaining tasks are leased to other holders: retry later."""
    paced: Annotated[bool, Field(exclude_if=not_)] = False
    """True, and else left out, when the run's `lag_policy: pace` held the tasks back: retry later."""
    warnings: Annotated[tuple[str, ...], Field(exclude_if=not_)] = ()
    """Quotas of the key of which 80 % are used; left out without any."""


class GroupToScore(Frozen):
    task_id: TaskId
    lease_id: LeaseId | None = None
    completions: Annotated[tuple[Completion, ...], Field(min_length=1, max_length=MAX_GROUP_SIZE)]
    part: Annotated[
        GroupPart | None,
        Field(
            description="For a group sent in pieces: which piece these completions are. The reply has their rewards "
            "and the statistics of the whole group, once all pieces have arrived or the deadline has passed.",
            examples=[{"key": "step-12/prompt-3", "index": 0, "size": 8}],
        ),
    ] = None


class ScoreRequest(Frozen):
    groups: Annotated[tuple[GroupToScore, ...], Field(min_length=1, max_length=256)]
    run: Name | None = None
    policy: Policy | None = None
    purpose: Purpose = "train"
    wait_seconds: Annotated[
        Annotated[FiniteNumber, Field(ge=0, le=600)] | None,
        Field(description="Reply after at most this time. Groups that are not finished come back as `pending`."),
    ] = None


class GroupReply(Frozen):
    """One scored group. `rewards`, `scores` and `advantages` are in the order of its completions."""

    group_id: str
    task_id: str
    outcome: Outcome
    rewards: tuple[Reward | None, ...]
    scores: tuple[Score, ...]
    mean: FiniteNumber | None
    std: FiniteNumber | None
    """Sample standard deviation (n - 1)."""
    advantages: tuple[FiniteNumber | None, ...]
    """(reward - mean) / (std + 1e-4)."""
    low_signal: bool
    lag: int | None
    """Training step at scoring minus training step at hand-out; null unless the lease and the request name one."""
    flags: tuple[str, ...]

    @property
    def score(self) -> Score:
        """Of the only completion that it is about."""
        (score,) = self.scores
        return score

    @property
    def is_masked(self) -> bool:
        """Whether no member of the group has a reward, whatever its score is."""
        return "masked" in self.flags


class GroupProblem(Frozen):
    """An error in one group. The other groups of the request are not affected."""

    task_id: str
    code: str
    detail: str
    field: str | None = None


class ScoreResponse(Frozen):
    groups: tuple[GroupReply | GroupProblem, ...]
    warnings: Annotated[tuple[str, ...], Field(exclude_if=not_)] = ()
    """Quotas of the key of which 80 % are used; left out without any."""

    def to_json(self) -> bytes:
        """The JSON of the model. A score that several completions share is written once: verifiers give few different
        ones, and they are most of a reply."""
        scores = {id(score): score for group in self.groups if isinstance(group, GroupReply) for score in group.scores}
        written = {key: _write_model(score) for key, score in scores.items()}
        warned = b',"warnings":%b' % json.dumps(self.warnings).encode() if self.warnings else b""
        return b'{"groups":[%b]%b}' % (b",".join([_write_group(group, written) for group in self.groups]), warned)


def _write_model(model: Frozen, exclude: set[str] | None = None) -> bytes:
    return model.__pydantic_serializer__.to_json(model, exclude=exclude)


def _write_group(group: GroupReply | GroupProblem, scores: Mapping[int, bytes]) -> bytes:
    if isinstance(group, GroupProblem):
        return _write_model(group)
    # `mean` follows `scores`. No string before it can hold this text, since quotes in strings are escaped.
    before, mean, after = _write_model(group, {"scores"}).partition(b',"mean":')
    listed = b",".join([scores[id(score)] for score in group.scores])
    return b"".join((before, b',"scores":[', listed, b"]", mean, after))


class StepRequest(Frozen):
    task_id: TaskId
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=1000)]
    """All messages after the prompt, observations included. The last one is the model's."""
    run: Name | None = None
    """The run that the episode is played for. Only a run with `turn_rewards` is answered otherwise."""


def build_handed_out_task(record: TaskRecord, lease: Lease | None) -> HandedOutTask:
    return HandedOutTask(
        task_id=record.task_id,
        lease_id=None if lease is None else lease.lease_id,
        environment=record.key.environment,
        messages=record.prompt.messages,
        tools=record.prompt.tools,
        max_turns=record.prompt.max_turns,
        metadata=record.prompt.metadata,
        lease_expires_at=None if lease is None else lease.expires_at,
    )


# Single flight

log = logging.getLogger(__name__)

LandedT = TypeVar("LandedT")


class SingleFlight(Generic[LandedT]):
    """Work under names: whoever asks for a name under which work is in progress waits for that."""

    def __init__(self, fault: str) -> None:
        """`fault` begins the log message about an unexpected failure; the names follow."""
        self._fault = fault
        self._by_name: dict[str, asyncio.Future[LandedT]] = {}
        self._began: dict[asyncio.Future[LandedT], float] = {}
        """Oldest first."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    @property
    def longest_seconds(self) -> float:
        """Age of the oldest execution in progress; 0 without any."""
        return next((time.monotonic() - began for began in self._began.values()), 0.0)

    def find(self, names: Iterable[str]) -> dict[str, asyncio.Future[LandedT]]:
        """The executions in progress under these names."""
        return {name: self._by_name[name] for name in names if name in self._by_name}

    def start(self, names: Sequence[str], work: Awaitable[LandedT]) -> asyncio.Future[LandedT]:
        """Starts work that is found under each name until it ends or is replaced. Callers get its errors; it continues
        when they leave."""
        flight = asyncio.ensure_future(work)
        self._by_name.update(dict.fromkeys(names, flight))
        if names:
            self._began[flight] = time.monotonic()

        def remove_finished(done: asyncio.Future[LandedT]) -> None:
            self._began.pop(done, None)
            for name in names:
                if self._by_name.get(name) is done:  # it may have been replaced
                    del self._by_name[name]
            # Read here too, since everybody who waited may have left.
            error = None if done.cancelled() else done.exception()
            if error is not None and not isinstance(error, GatewayError):
                log.error("%s: %s", self._fault, ", ".join(names), exc_info=error)

        flight.add_done_callback(remove_finished)
        return flight

    async def close(self) -> tuple[str, ...]:
        """Cancels all work in progress, waits until it has ended and returns its names."""
        names, flights = self.names, set(self._by_name.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        return names


# Ids


def compute_task_id(key: TaskKey) -> str:
    return "task_" + digest(key.model_dump(mode="json"))


def build_stream(
    run: str,
    environment: str,
    split: Split,
    params: dict[str, JsonValue],
    select: Mapping[str, tuple[JsonValue, ...]],
    weights: Mapping[str, Mapping[str, float]] | None = None,
) -> Stream:
    chosen: list[object] = [{key: normalise_values(values) for key, values in select.items()}]
    if weights:
        chosen.append({key: dict(values) for key, values in weights.items()})
    return Stream(
        run=run,
        environment=environment,
        split=split,
        params=params,
        select=dict(select),
        digest=digest([environment, split, params, *chosen]),
    )


def normalise_values(values: Iterable[JsonValue]) -> list[JsonValue]:
    """Distinct values in a fixed order. 1 and 1.0 are equal; 1, "1" and true are different."""
    by_text = {canonical_json(value): value for value in map(_normalise_numbers, values)}
    return [by_text[text] for text in sorted(by_text)]


def _normalise_numbers(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normalise_numbers(item) for item in value]
    return {key: _normalise_numbers(item) for key, item in value.items()} if isinstance(value, dict) else value


def compute_group_id(
    task: str,
    holder: str,
    policy: Policy | None,
    purpose: Purpose,
    completions: Sequence[Completion],
    *,
    large: bool = False,
) -> str:
    """The id that identifies retries of a group. `holder` is the lease, else the run, else empty. Where the completions
    are `large`, other threads run meanwhile."""
    compute = digest_in_pieces if large else digest_of_list
    shared: list[JsonValue] = [task, holder, _list_policy_parts(policy), purpose]
    return "group_" + compute([*shared, [completion.identity for completion in completions]])


def compute_part_group_id(task: str, holder: str, policy: Policy | None, purpose: Purpose, key: str) -> str:
    """The id of a group sent in pieces, independent of its completions."""
    return "group_" + digest(["part", task, holder, _list_policy_parts(policy), purpose, key])


def compute_scope(group: Group, key: str, size: int) -> str:
    """The scope of a sample. Samples without a position join the same group if their scopes are equal."""
    shared = [group.environment, group.task_id, group.run, _list_policy_parts(group.policy), group.purpose]
    return digest(["sample", *shared, key, size])


def _list_policy_parts(policy: Policy | None) -> list[JsonValue] | None:
    return None if policy is None else [policy.model, policy.step]
