"""The environments that are served, each with what it became when its data was opened."""

import logging
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

from pydantic import BaseModel, ValidationError

from app.domain.digests import digest
from app.domain.errors import EnvironmentUnavailable, InvalidRequest, NotFound
from app.domain.programs import Isolation
from app.domain.runs import Pin, ScoringOptions
from app.domain.suggestions import suggest
from app.domain.values import FiniteJson
from app.ports.environment import Datasets, Environment
from app.ports.judges import Panel

log = logging.getLogger(__name__)

FORMER_EDITIONS = 8
"""How many earlier states of its data an environment is kept with, for tasks that were made from them."""


@dataclass(frozen=True, eq=False)
class Hosted:
    """An environment that can serve. `data_digest` covers everything but code that its tasks rest on; it is taken
    once, since an environment's data does not change while it serves."""

    environment: Environment
    digests: Mapping[str, str]
    data_digest: str

    @classmethod
    def of(cls, environment: Environment) -> "Hosted":
        digests = dict(sorted(environment.digests.items()))
        return cls(environment, digests, digest(digests))

    @property
    def name(self) -> str:
        return self.environment.name

    def params(self, given: Mapping[str, FiniteJson]) -> BaseModel:
        """InvalidRequest naming `params.<field>`."""
        try:
            return self.environment.Params.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            field = ".".join(["params", *(str(part) for part in first["loc"])])
            raise InvalidRequest(first["msg"], field=field) from error

    def pin(self, options: ScoringOptions, panel: Panel | None) -> Pin:
        """What decides about this environment's rewards at this moment."""
        return _pin(self, options, None if panel is None else panel.digest)


@lru_cache(maxsize=1024)
def _pin(hosted: Hosted, options: ScoringOptions, panel_digest: str | None) -> Pin:
    environment = hosted.environment
    parts = {f"data.{name}": value for name, value in hosted.digests.items()}
    parts["options"] = digest(options.model_dump(mode="json", exclude_none=True))
    if panel_digest is not None:
        parts["panel"] = panel_digest
    return Pin(
        environment=environment.name,
        version=environment.version,
        scoring_digest=digest([environment.name, environment.version, dict(sorted(parts.items()))]),
        parts=parts,
    )


class Catalogue:
    """Environment classes by name; `open` turns each into something that serves, or into the reason why it cannot."""

    def __init__(self, classes: Mapping[str, type[Environment]]) -> None:
        self.classes = dict(sorted(classes.items()))
        self._hosted: dict[str, Hosted] = {}
        self._former: dict[str, deque[Hosted]] = defaultdict(lambda: deque(maxlen=FORMER_EDITIONS))
        self._reasons = dict.fromkeys(self.classes, "its data is still being read")
        self._reopening = Lock()
        self._datasets: Datasets | None = None
        self._weak_will_do = False
        self.isolation: Isolation | None = None
        """Of the programs that environments run, once that has been tried."""
        self.opened = False
        self.ready = False
        """Set by whoever opens it and tries the isolation, when both are done or the latter takes too long."""

    def open(self, datasets: Datasets, names: Collection[str] | None = None) -> None:
        """Blocking: reads the data of these environments, of all by default, once. One that breaks takes no other with
        it."""
        self._datasets = datasets
        for name, environment in self.classes.items():
            if names is not None and name not in names:
                continue
            try:
                self._hosted[name] = Hosted.of(environment.open(datasets))
            except EnvironmentUnavailable as error:
                log.error("environment unavailable: %s: %s", name, error.detail)
                self._reasons[name] = error.detail
            except Exception:
                log.exception("environment unavailable: %s", name)
                self._reasons[name] = "it could not be opened; the service's log says why"
        self.opened = True

    def judge_isolation(self, isolation: Isolation, *, weak_will_do: bool) -> None:
        """Lets environments serve that run what models wrote, where `isolation` is strong or `weak_will_do`."""
        self._weak_will_do = weak_will_do
        self.isolation = isolation

    def reopen(self, name: str) -> Hosted:
        """Blocking: reads an environment's data again. What was handed out before is scored as before. InvalidRequest
        with the reason when the data cannot be read, and everything stays as it is."""
        self.require(name)
        if self._datasets is None:
            raise EnvironmentUnavailable(f"{name}: {self._reasons[name]}")
        with self._reopening:
            try:
                hosted = Hosted.of(self.classes[name].open(self._datasets))
            except EnvironmentUnavailable as error:
                raise InvalidRequest(f"{error.detail}; what was read before stays in use") from error
            present = self._hosted.get(name)
            if present is not None and present.data_digest == hosted.data_digest:
                return present
            if present is not None:
                self._former[name].append(present)
            self._hosted[name] = hosted
            return hosted

    def remember(self, former: Hosted) -> None:
        """Finds it again as `hosted` by its digest, until newer ones take its place."""
        with self._reopening:
            self._former[former.name].append(former)

    def require(self, name: str) -> None:
        """NotFound for an unknown name."""
        if name not in self.classes:
            raise NotFound(f"there is no environment {name!r}{suggest(name, self.classes)}; GET /envs lists them")

    def hosted(self, name: str, data_digest: str | None = None) -> Hosted:
        """As it is now; with `data_digest` as it was when its data had that, if it is still known. NotFound for an
        unknown name; EnvironmentUnavailable with the reason for one that cannot serve."""
        self.require(name)
        reason = self.reason(name)
        if reason is not None:
            raise EnvironmentUnavailable(f"{name}: {reason}")
        present = self._hosted[name]
        if data_digest is None or present.data_digest == data_digest:
            return present
        former = reversed(tuple(self._former[name])) if name in self._former else ()
        return next((hosted for hosted in former if hosted.data_digest == data_digest), present)

    def reason(self, name: str) -> str | None:
        """Why the environment cannot serve, or None when it can."""
        if name not in self._hosted:
            return self._reasons[name]
        return self._exposed() if self.classes[name].runs_programs else None

    def _exposed(self) -> str | None:
        """To what threat programs would expose this machine, unless nothing or it is accepted."""
        if self.isolation is None:
            return "it runs programs that models write, and whether they can be kept apart here is still being tried"
        if self._weak_will_do or self.isolation.strong:
            return None
        return (
            "it runs programs that models write, which cannot be kept apart here well enough: "
            f"{self.isolation.weaknesses}. The setting programs.allow_weak_isolation lets it serve all the same"
        )
