"""The errors of the service, with the HTTP status of each.

GatewayError                     500  unexpected fault of the service
├── RequestRefused               4xx  the caller can fix it
│   ├── InvalidRequest           422  names the field
│   │   └── InvalidValue              its detail says nothing of the field, its sentence does
│   ├── Unauthorized             401
│   ├── Forbidden                403  names the missing scope or the bound
│   ├── NotFound                 404
│   ├── Gone                     410  it was pruned
│   │   └── PartsGone                 a part of it that this needs is not kept
│   ├── Conflict                 409  a pinned run, another scoring
│   │   └── RunHeld                   an alarm holds the run: it hands out no tasks
│   ├── TooLarge                 413
│   └── QuotaExceeded            429  tasks, and runs that were not handed any: retry after
├── Unavailable                  503  temporary fault of the service: retry
│   ├── StillStarting                 told to a probe
│   ├── EnvironmentUnavailable        its configured data cannot be read
│   │   └── PackageMissing            an optional package is not installed
│   ├── RetrieverFailed
│   ├── PlayerFailed
│   ├── HostFailed                    the server of a foreign environment gave no answer
│   │   └── HostFull                  it has no place for another session now
│   └── StoreUnavailable
└── ScoringFailed                     never reaches HTTP: the rollout becomes `unscored` with the reason
    ├── JudgeFailed                   `judge_failed`
    ├── VerifierFailed                `verifier_failed`
    │   └── WorkerFailed              a function failed in a worker, or the worker died
    └── WorkExceeded                  `verifier_killed`: checking a text exceeded its limits

UserError                             a ValueError whose words are for whoever gave the value: commands show them
"""

from typing import ClassVar


class GatewayError(Exception):
    """Base of all errors. `detail` is shown to the caller, so it never contains a secret or a reference."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    retry_after: int | None = None
    """Seconds, sent as the `Retry-After` header."""

    def __init__(self, detail: str, *, field: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field

    @property
    def sentence(self) -> str:
        """The detail, for whoever sees no field beside it."""
        return self.detail


class RequestRefused(GatewayError):
    status = 400
    code = "bad_request"


class InvalidRequest(RequestRefused):
    status = 422
    code = "invalid_request"


class InvalidValue(InvalidRequest):
    """From `app.domain.faults`."""

    @property
    def sentence(self) -> str:
        return self.detail if self.field is None else f"`{self.field}`: {self.detail}"


class Unauthorized(RequestRefused):
    status = 401
    code = "unauthorized"


class Forbidden(RequestRefused):
    status = 403
    code = "forbidden"


class NotFound(RequestRefused):
    status = 404
    code = "not_found"


class Gone(RequestRefused):
    status = 410
    code = "pruned"


class PartsGone(Gone):
    code = "reduced"


class Conflict(RequestRefused):
    status = 409
    code = "conflict"


class RunHeld(Conflict):
    code = "run_held"


class TooLarge(RequestRefused):
    status = 413
    code = "too_large"


class QuotaExceeded(RequestRefused):
    status = 429
    code = "quota_exceeded"

    def __init__(self, detail: str, *, retry_after: int) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class Unavailable(GatewayError):
    status = 503
    code = "unavailable"
    retry_after = 5


class StillStarting(Unavailable):
    """Told to a probe; nothing that an operator need look at."""


class EnvironmentUnavailable(Unavailable):
    code = "environment_unavailable"


class PackageMissing(EnvironmentUnavailable):
    """An optional one: whoever does not want the environment need do nothing."""


class RetrieverFailed(Unavailable):
    code = "retriever_failed"


class PlayerFailed(Unavailable):
    """The model that plays the player gave no line. Whoever asks again has it asked again."""

    code = "player_failed"


class HostFailed(Unavailable):
    """The server on which a foreign environment runs gave no answer, or one that cannot be read. Whoever asks again has
    it asked again."""

    code = "environment_failed"


class HostFull(HostFailed):
    """It has no place for another session now: one that nobody uses has to be closed first."""


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class ScoringFailed(GatewayError):
    """The service could not score an item. `reason` is one of `domain.scores.Reason`."""

    reason: ClassVar[str] = "internal"


class JudgeFailed(ScoringFailed):
    reason = "judge_failed"


class VerifierFailed(ScoringFailed):
    reason = "verifier_failed"


class WorkerFailed(VerifierFailed):
    """A fault of the service: a function raised in a worker, or the worker did not start or died."""


class WorkExceeded(ScoringFailed):
    """The text's fault: each call that its limits allow exceeded them, the second one in a fresh worker. `limit` is the
    field of `domain.tasks.Limits` exceeded in the last one, and `allowed` says what it may use. Environments that blame
    the completion catch it; otherwise the group is `unscored`."""

    reason = "verifier_killed"

    def __init__(self, detail: str, *, limit: str, allowed: str = "") -> None:
        super().__init__(detail)
        self.limit = limit
        self.allowed = allowed


class UserError(ValueError):
    """What somebody gave at the terminal, in a file or in the settings cannot be used. A command shows the words and
    ends; any other ValueError is a mistake of ours and keeps its traceback."""
