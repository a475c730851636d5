"""Ids of tasks, groups and streams, as digests, and single-flight: requests for one id share one execution."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from pydantic import JsonValue

from app.domain.digests import canonical_json, digest, digest_in_pieces, digest_of_list
from app.domain.errors import GatewayError
from app.domain.groups import Group
from app.domain.runs import Policy, Purpose, Stream
from app.domain.tasks import Completion, TaskKey
from app.domain.values import Split

log = logging.getLogger(__name__)

LandedT = TypeVar("LandedT")


class SingleFlight(Generic[LandedT]):
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
                if self._by_name.get(name) is done:
                    del self._by_name[name]
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
    by_text = {canonical_json(plain): plain for plain in map(_normalise_numbers, values)}
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
