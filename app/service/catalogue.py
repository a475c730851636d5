"""The served environments with their loaded data."""

import logging
import math
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Final

from pydantic import BaseModel, ValidationError

from app.domain.digests import digest
from app.domain.errors import EnvironmentUnavailable, InvalidRequest, NotFound, PackageMissing
from app.domain.programs import Isolation
from app.domain.runs import Pin, ScoringOptions
from app.domain.suggestions import suggest
from app.domain.values import FiniteJson
from app.ports.environment import Datasets, Environment
from app.ports.judges import Panel

log = logging.getLogger(__name__)

STILL_READING: Final = "its data is still being read"

KEPT_VERSIONS = 8
"""How many earlier versions of an environment's data are kept, for tasks that were made from them."""


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

    def validate_params(self, given: Mapping[str, FiniteJson]) -> BaseModel:
        """InvalidRequest naming `params.<field>`."""
        try:
            params = self.environment.Params.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            field = ".".join(["params", *(str(part) for part in first["loc"])])
            raise InvalidRequest(first["msg"], field=field) from error
        self.environment.check_params(params)
        return params

    def build_pin(self, options: ScoringOptions, panel: Panel | None) -> Pin:
        """The digests of everything that currently affects this environment's rewards."""
        return _build_pin(self, options, None if panel is None else panel.digest)


@lru_cache(maxsize=1024)
def _build_pin(hosted: ServedEnvironment, options: ScoringOptions, panel_digest: str | None) -> Pin:
    environment = hosted.environment
    parts = {f"data.{name}": value for name, value in hosted.digests.items()}
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
    settings name."""

    def __init__(self, classes: Mapping[str, type[Environment]], named: Collection[str] = ()) -> None:
        self.classes = dict(sorted(classes.items()))
        self._named = frozenset(named)
        self._hosted: dict[str, ServedEnvironment] = {}
        self._former: dict[str, deque[ServedEnvironment]] = defaultdict(lambda: deque(maxlen=KEPT_VERSIONS))
        self._reasons = dict.fromkeys(self.classes, STILL_READING)
        self._without_package: set[str] = set()
        self._reopening = Lock()
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
                return present
            if present is not None:
                self._former[name].append(present)
            self._hosted[name] = hosted
            return hosted

    def remember(self, former: ServedEnvironment) -> None:
        """Keeps an earlier version, so that `hosted` finds it by its digest until newer ones replace it."""
        with self._reopening:
            self._former[former.name].append(former)

    def require_known(self, name: str) -> None:
        """NotFound for an unknown name."""
        if name not in self.classes:
            raise NotFound(f"there is no environment {name!r}{suggest(name, self.classes)}; GET /envs lists them")

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
        former = reversed(tuple(self._former[name])) if name in self._former else ()
        return next((hosted for hosted in former if hosted.data_digest == data_digest), present)

    def is_starting(self, name: str) -> bool:
        """Whether it is not known yet if the environment can serve."""
        if name not in self._hosted:
            return self._reasons.get(name) == STILL_READING
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
