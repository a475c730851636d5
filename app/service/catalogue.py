"""The catalogue: the served environments with their loaded data, and the versions of that data.

`Catalogue` says of each installed environment whether it serves, with which data, or why not. The data can be read
again while the service runs, after a character sheet was edited. `EnvironmentVersions` then finds the version that a
stored task was made from, and the one that an epoch of a run began with: the current one, one of the last few in
memory, or one that is built again from the sheets in the store.
"""

import asyncio
import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from app.domain.errors import Conflict, EnvironmentUnavailable, GatewayError, InvalidRequest, NotFound, PackageMissing
from app.domain.faults import build_refusal
from app.domain.runs import Pin, Run, ScoringOptions, Stream
from app.domain.tasks import Isolation, Task, TaskKey
from app.domain.values import MEBIBYTE, FiniteJson, Split, digest, remember, suggest
from app.ports.environment import Datasets, Environment
from app.ports.judges import Panel
from app.store.tasks import SheetStore

log = logging.getLogger(__name__)

_STILL_READING: Final = "its data is still being read"

KEPT_VERSIONS: Final = 8
"""How many earlier versions of an environment's data stay in memory, for tasks that were made from them."""


@dataclass(frozen=True, eq=False)
class ServedEnvironment:
    """An environment that can serve. `data_digest` covers all data behind its tasks. It is computed once, since the
    data of an instance never changes."""

    environment: Environment
    digests: Mapping[str, str]
    data_digest: str

    @classmethod
    def from_environment(cls, environment: Environment) -> "ServedEnvironment":
        digests = dict(sorted(environment.digests.items()))
        return cls(environment, digests, digest(digests))

    @property
    def name(self) -> str:
        return self.environment.name

    def has_made(self, key: TaskKey) -> bool:
        """Whether the task of this key was made in this version, from this data."""
        return (key.version, key.data_digest) == (self.environment.version, self.data_digest)

    def validate_params(self, values: Mapping[str, FiniteJson]) -> BaseModel:
        """InvalidRequest naming `params.<field>`."""
        try:
            params = self.environment.Params.model_validate(values)
        except ValidationError as error:
            raise build_refusal(error, self.environment.Params, "params") from error
        self.environment.check_params(params)
        return params

    def build_pin(self, options: ScoringOptions, panel: Panel | None) -> Pin:
        """The digests of everything that currently affects this environment's rewards."""
        return _build_pin(self, options, None if panel is None else panel.digest)


def make_task(environment: Environment, split: Split, index: int, params: BaseModel) -> Task:
    """GatewayError where an iterator of the environment has ended: StopIteration itself would be lost in a coroutine,
    and whoever waits for a thread that raised it would wait for ever."""
    try:
        return environment.task(split, index, params)
    except StopIteration as ended:
        raise _describe_end(environment, split, index) from ended


def read_label(environment: Environment, split: Split, index: int, params: BaseModel) -> str | None:
    """As `make_task`: most environments make the task for it."""
    try:
        return environment.label(split, index, params)
    except StopIteration as ended:
        raise _describe_end(environment, split, index) from ended


def _describe_end(environment: Environment, split: Split, index: int) -> GatewayError:
    return GatewayError(
        f"{environment.name} made no task {index} of {split}: an iterator in its `task` had ended (StopIteration)"
    )


@remember(4 * MEBIBYTE, counts_arguments=False)
def _build_pin(hosted: ServedEnvironment, options: ScoringOptions, panel_digest: str | None) -> Pin:
    environment = hosted.environment
    parts = {f"data.{name}": value for name, value in hosted.digests.items()}
    # Calibrated values stand beside rewards and change none of them.
    parts["options"] = digest(options.model_dump(mode="json", exclude_none=True, exclude={"calibration_share"}))
    if panel_digest is not None:
        parts["panel"] = panel_digest
    return Pin(
        environment=environment.name,
        version=environment.version,
        scoring_digest=digest([environment.name, environment.version, dict(sorted(parts.items()))]),
        parts=parts,
    )


class Catalogue:
    """Environment classes by name. `open` loads each one, or records why it cannot serve. `named`: those that the
    settings name. Loading blocks, and is called from threads."""

    def __init__(self, classes: Mapping[str, type[Environment]], named: Collection[str] = ()) -> None:
        self.classes = dict(sorted(classes.items()))
        self._named = frozenset(named)
        self._hosted: dict[str, ServedEnvironment] = {}
        self._former: dict[str, deque[ServedEnvironment]] = defaultdict(lambda: deque(maxlen=KEPT_VERSIONS))
        self._reasons = dict.fromkeys(self.classes, _STILL_READING)
        self._without_package: set[str] = set()
        self._reopening = Lock()  # a threading lock: data is read in threads
        self._datasets: Datasets | None = None
        self._weak_will_do = False
        self.isolation: Isolation | None = None
        """Isolation of programs that environments run, once it has been measured."""
        self.opened = False
        self.ready = False
        """Set when environments are open and the isolation check is done or has timed out."""

    def open(self, datasets: Datasets, names: Collection[str] | None = None) -> None:
        """Reads the data of these environments, by default of all, once. Blocking. A failure affects only its own
        environment."""
        self._datasets = datasets
        for name, environment in self.classes.items():
            if names is not None and name not in names:
                continue
            try:
                self._hosted[name] = ServedEnvironment.from_environment(environment.open(datasets))
            except EnvironmentUnavailable as error:
                self._note_unavailable(name, error)
            except Exception:
                log.exception("environment unavailable: %s", name)
                self._reasons[name] = "it could not be opened; see the service log"
        self.opened = True

    def _note_unavailable(self, name: str, error: EnvironmentUnavailable) -> None:
        self._reasons[name] = error.detail.removeprefix(f"{name}: ")
        level = logging.ERROR
        if isinstance(error, PackageMissing):
            self._without_package.add(name)
            level = logging.WARNING if name in self._named else logging.INFO
        log.log(level, "environment unavailable: %s: %s", name, self._reasons[name])

    def set_isolation(self, isolation: Isolation, *, weak_will_do: bool) -> None:
        """Enables environments that run programs, if `isolation` is strong or weak isolation is allowed."""
        self._weak_will_do = weak_will_do
        self.isolation = isolation

    @property
    def isolation_reading(self) -> float:
        """1 for strong isolation, 0 for weak, NaN until it was measured."""
        return math.nan if self.isolation is None else float(self.isolation.strong)

    def reopen(self, name: str) -> ServedEnvironment:
        """Reloads an environment's data. Blocking. Tasks handed out earlier are scored with the earlier data.
        InvalidRequest with the reason when the data cannot be read; the loaded data then stays in use."""
        try:
            return self.install(self.read_again(name))
        except InvalidRequest as error:
            raise InvalidRequest(f"{error.detail}; the data loaded before stays in use") from error

    def look_again(self, name: str) -> None:
        """Reads an environment anew that runs on another's server. It is unavailable where that fails. Blocking."""
        try:
            self.install(self.read_again(name))
        except GatewayError as error:
            self.note_down(name, error.detail)

    def note_down(self, name: str, reason: str) -> None:
        """The server that the environment runs on gives no answer: it is unavailable until `look_again`."""
        with self._reopening:
            self._hosted.pop(name, None)
            self._reasons[name] = reason.removeprefix(f"{name}: ")

    def read_again(self, name: str) -> ServedEnvironment:
        """An environment as its data is now, which is not served yet. Blocking. InvalidRequest with the reason when the
        data cannot be read."""
        self.require_known(name)
        if self._datasets is None:
            raise EnvironmentUnavailable(f"{name}: {self._reasons[name]}")
        try:
            return ServedEnvironment.from_environment(self.classes[name].open(self._datasets))
        except EnvironmentUnavailable as error:
            raise InvalidRequest(error.detail) from error

    def install(self, hosted: ServedEnvironment) -> ServedEnvironment:
        """Serves it from now on, or what is served if that has the same data."""
        name = hosted.name
        with self._reopening:
            present = self._hosted.get(name)
            if present is not None and present.data_digest == hosted.data_digest:
                return present  # the same object, so that what is cached by it stays in use
            # What runs elsewhere follows the rule that its server has now: tasks of before are of another version.
            if present is not None and not present.environment.runs_elsewhere:
                self._former[name].append(present)
            self._hosted[name] = hosted
            return hosted

    def remember(self, former: ServedEnvironment) -> ServedEnvironment:
        """Keeps an earlier version, so that it is found by its digest until newer ones replace it. What has the same
        data and is kept or served already stays in its place."""
        with self._reopening:
            name = former.name
            for known in (self._hosted.get(name), *self._former[name]):
                if known is not None and known.data_digest == former.data_digest:
                    return known
            self._former[name].append(former)
            return former

    def require_known(self, name: str, field: str | None = None) -> None:
        """NotFound for an unknown name, which stands in `field` of a request."""
        if name not in self.classes:
            near = suggest(name, self.classes)
            raise NotFound(f"there is no environment {name!r}{near}; GET /envs lists them", field=field)

    def get_environment_or_current(self, name: str, data_digest: str | None = None) -> ServedEnvironment:
        """The current version, or the one with `data_digest` if it is still kept. NotFound for an unknown name;
        EnvironmentUnavailable with the reason for one that cannot serve."""
        self.require_known(name)
        reason = self.explain_unavailability(name)
        if reason is not None:
            raise EnvironmentUnavailable(f"{name}: {reason}")
        present = self._hosted[name]
        if data_digest is None or present.data_digest == data_digest:
            return present
        # A copy, since another thread may install a version meanwhile.
        former = reversed(tuple(self._former[name])) if name in self._former else ()
        return next((hosted for hosted in former if hosted.data_digest == data_digest), present)

    def is_starting(self, name: str) -> bool:
        """Whether it is not known yet if the environment can serve."""
        if name not in self._hosted:
            return self._reasons.get(name) == _STILL_READING
        return self.classes[name].runs_programs and self.isolation is None

    def is_left_out(self, name: str) -> bool:
        """Whether an optional package is not installed for it, and nobody has asked for it."""
        return name not in self._hosted and name in self._without_package - self._named

    def explain_unavailability(self, name: str) -> str | None:
        """Why the environment cannot serve; None if it can."""
        if name not in self._hosted:
            return self._reasons[name]
        return self._explain_weak_isolation() if self.classes[name].runs_programs else None

    def _explain_weak_isolation(self) -> str | None:
        """Why programs must not run on this machine; None if isolation is strong or weak isolation is allowed."""
        if self.isolation is None:
            return "it runs programs written by models, and the isolation check has not finished"
        if self._weak_will_do or self.isolation.strong:
            return None
        return (
            "it runs programs written by models, and this machine cannot isolate them well enough: "
            f"{self.isolation.weaknesses}. Set programs.allow_weak_isolation to serve it anyway"
        )


# Memory of what the store has

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

RECHECK_SECONDS: Final = 5.0
"""After so long a value is read or stored again, since the store may have lost it in a failover or a restore."""


class StoreMemory(Generic[KeyT, ValueT]):
    """Values by key, each with the moment at which the store was last known to have it. A full memory starts anew."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[KeyT, tuple[ValueT, float]] = {}

    def put(self, key: KeyT, value: ValueT) -> None:
        """Call when the store has just returned or taken the value."""
        if key not in self._entries and len(self._entries) >= self._most:
            self._entries.clear()
        self._entries[key] = (value, time.monotonic())

    def get(self, key: KeyT) -> ValueT | None:
        """The last known value, however old: what is stored again if the store has lost it."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def get_recent(self, key: KeyT) -> ValueT | None:
        """The value, unless the store must be asked again."""
        entry = self._entries.get(key)
        return None if entry is None or time.monotonic() - entry[1] >= RECHECK_SECONDS else entry[0]


# Versions of an environment's data

_STARTING_POLL_SECONDS: Final = 0.2
_REMEMBERED_EPOCHS: Final = 20_000
_REMEMBERED_EDITIONS: Final = 1_000
"""A full memory starts anew, since a service runs for months."""


class EnvironmentVersions:
    """Served environments in the version that a task or an epoch needs.

    Only character sheets have versions: they can be edited while the service runs. Each version, an edition of all of
    an environment's sheets, is stored before the first task made from it is handed out, so that every replica finds it,
    also after a restart. Of an environment without sheets the version is always the current one, and nothing is read.
    """

    def __init__(self, catalogue: Catalogue, sheets: SheetStore) -> None:
        self._catalogue = catalogue
        self._sheets = sheets
        self._begun = StoreMemory[tuple[str, str, int], str](_REMEMBERED_EPOCHS)
        """The data digest that each epoch of a stream began with."""
        self._kept = StoreMemory[tuple[str, str], bool](_REMEMBERED_EDITIONS)
        self._lost: set[tuple[str, str]] = set()
        """Versions that cannot be rebuilt here: their sheets are unknown, or other data changed too."""
        self._pinned: dict[tuple[ServedEnvironment, str], ServedEnvironment] = {}
        """What pinned runs use in place of what is served, by that and the digest that they pinned."""
        self._rebuilding = asyncio.Lock()  # requests that need the same version build it once

    def get_current(self, name: str) -> ServedEnvironment:
        """NotFound for an unknown name; EnvironmentUnavailable with the reason for one that cannot serve."""
        return self._catalogue.get_environment_or_current(name)

    def require_started(self, name: str) -> None:
        """EnvironmentUnavailable while it is not known yet if the environment can serve."""
        if self._catalogue.is_starting(name):
            raise EnvironmentUnavailable(f"{name}: {self._catalogue.explain_unavailability(name)}")

    def scores_at_once(self, name: str) -> bool:
        """Whether the environment has started, and awaits nothing when it scores a group that is not large."""
        classes = self._catalogue.classes
        return name in classes and classes[name].scores_at_once and not self._catalogue.is_starting(name)

    async def wait_until_started(self, name: str) -> None:
        while self._catalogue.is_starting(name):  # noqa: ASYNC110  # it is opened in threads
            await asyncio.sleep(_STARTING_POLL_SECONDS)

    async def get_version(self, name: str, data_digest: str) -> ServedEnvironment:
        """The version with this data digest, or the current one if it cannot be rebuilt. Raises as `get_current` does,
        and StoreUnavailable."""
        found = self._catalogue.get_environment_or_current(name, data_digest)
        edition = (name, data_digest)
        if found.data_digest == data_digest or edition in self._lost or not found.environment.sheet_texts():
            return found
        async with self._rebuilding:
            found = self._catalogue.get_environment_or_current(name, data_digest)
            if found.data_digest == data_digest:
                return found
            texts = await self._sheets.get(name, data_digest)
            made = None if texts is None else await asyncio.to_thread(_rebuild_version, found, texts)
            if made is None or made.data_digest != data_digest:
                if len(self._lost) >= _REMEMBERED_EDITIONS:
                    self._lost.clear()
                self._lost.add(edition)
                return found
            self._catalogue.remember(made)
            return made

    async def get_pinned(self, run: Run, present: ServedEnvironment) -> ServedEnvironment:
        """With the characters of the first use of a run that pins them, which are kept from that use on. Conflict when
        the store has lost them."""
        if not present.environment.sheet_texts():
            return present
        pin = next((pin for pin in run.pins if pin.environment == present.name), None)
        if pin is None:
            await self._store_character_sheets(present)
            return present
        data = {name.removeprefix("data."): value for name, value in pin.parts.items() if name.startswith("data.")}
        data_digest = digest(dict(sorted(data.items())))
        found = await self.get_version(present.name, data_digest)
        if found.data_digest == data_digest:
            return found
        return await self._rebuild_pinned(run, present, data_digest)

    async def _rebuild_pinned(self, run: Run, present: ServedEnvironment, data_digest: str) -> ServedEnvironment:
        """Where other data has changed since, such as a data set or the service's own prompt: those characters with the
        rest as it is now."""
        if made := self._pinned.get((present, data_digest)):
            return made
        async with self._rebuilding:
            texts = await self._sheets.get(present.name, data_digest)
            made = None if texts is None else await asyncio.to_thread(_rebuild_version, present, texts)
        if made is None:
            raise Conflict(f"the characters that run {run.name!r} pinned can no longer be read", field="run")
        made = self._catalogue.remember(made)
        if len(self._pinned) >= KEPT_VERSIONS:
            self._pinned.clear()
        self._pinned[present, data_digest] = made
        return made

    async def get_epoch_versions(
        self, present: ServedEnvironment, stream: Stream, params: BaseModel, epochs: Collection[int]
    ) -> dict[int, ServedEnvironment]:
        """The version for each epoch: the one that the epoch began with in this run. The current one without a run, or
        if the number of tasks has changed, since positions then mean other tasks."""
        if epochs and present.environment.sheet_texts():
            await self._store_character_sheets(present)
            if stream.run:
                begun = await self._begin_epochs(stream, epochs, present.data_digest)
                return {
                    epoch: await self._resolve_epoch_version(present, stream, params, begun[epoch]) for epoch in epochs
                }
        return dict.fromkeys(epochs, present)

    async def _resolve_epoch_version(
        self, present: ServedEnvironment, stream: Stream, params: BaseModel, begun: str
    ) -> ServedEnvironment:
        former = await self.get_version(present.name, begun)
        sizes = {hosted.environment.size(stream.split, params) for hosted in (former, present)}
        return former if len(sizes) == 1 else present

    async def _store_character_sheets(self, present: ServedEnvironment) -> None:
        edition = (present.name, present.data_digest)
        if not self._kept.get_recent(edition):
            await self._sheets.keep(*edition, present.environment.sheet_texts())
            self._kept.put(edition, True)

    async def _begin_epochs(self, stream: Stream, epochs: Collection[int], data_digest: str) -> dict[int, str]:
        begun: dict[int, str] = {}
        to_store: defaultdict[str, list[int]] = defaultdict(list)
        for epoch in sorted(epochs):
            key = (stream.run, stream.digest, epoch)
            if recent := self._begun.get_recent(key):
                begun[epoch] = recent
            else:
                # Where the store has lost how an epoch began, it is told again what it said before.
                to_store[self._begun.get(key) or data_digest].append(epoch)
        for version, numbers in to_store.items():
            begun |= await self._sheets.begin_epochs(stream, numbers, version)
            for epoch in numbers:
                self._begun.put((stream.run, stream.digest, epoch), begun[epoch])
        return begun


def _rebuild_version(present: ServedEnvironment, texts: tuple[str, ...]) -> ServedEnvironment | None:
    try:
        return ServedEnvironment.from_environment(present.environment.with_sheets(texts))
    except ValueError:
        log.warning("earlier character sheets can no longer be read: %s", present.name, exc_info=True)
        return None
