"""Everything that can go wrong, and the HTTP status each kind carries.

GatewayError                     500  ours, unexpected
├── RequestRefused               4xx  the caller can mend it
│   ├── InvalidRequest           422  names the field
│   ├── Unauthorized             401
│   ├── NotFound                 404
│   ├── Conflict                 409  a pinned run, another scoring
│   └── TooLarge                 413
├── Unavailable                  503  ours, passing: try again
│   ├── EnvironmentUnavailable        its configured data cannot be read
│   ├── RetrieverFailed
│   └── StoreUnavailable
└── ScoringFailed                     never reaches HTTP: the rollout becomes `unscored` with the reason
    ├── JudgeFailed                   `judge_failed`
    ├── VerifierFailed                `verifier_failed`
    │   └── WorkerFailed              a function of ours broke in a worker, or the worker did
    └── WorkExceeded                  `verifier_killed`: a text needs more than checking it may take
"""

from typing import ClassVar


class GatewayError(Exception):
    """Root of the tree. `detail` is shown to the caller, so it never holds a secret or a reference."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"

    def __init__(self, detail: str, *, field: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field


class RequestRefused(GatewayError):
    status = 400
    code = "bad_request"


class InvalidRequest(RequestRefused):
    status = 422
    code = "invalid_request"


class Unauthorized(RequestRefused):
    status = 401
    code = "unauthorized"


class NotFound(RequestRefused):
    status = 404
    code = "not_found"


class Conflict(RequestRefused):
    status = 409
    code = "conflict"


class TooLarge(RequestRefused):
    status = 413
    code = "too_large"


class Unavailable(GatewayError):
    """`retry_after` is in seconds and is sent as the header of that name."""

    status = 503
    code = "unavailable"
    retry_after: ClassVar[int] = 5


class StillStarting(Unavailable):
    """Told to a probe; nothing that an operator need look at."""


class EnvironmentUnavailable(Unavailable):
    code = "environment_unavailable"


class RetrieverFailed(Unavailable):
    code = "retriever_failed"


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class ScoringFailed(GatewayError):
    """The service could not score an item. `reason` is a word of `domain.scores.Reason`, shown beside the null."""

    reason: ClassVar[str] = "internal"


class JudgeFailed(ScoringFailed):
    reason = "judge_failed"


class VerifierFailed(ScoringFailed):
    reason = "verifier_failed"


class WorkerFailed(VerifierFailed):
    """Our fault, and nothing is known of the text: a function of ours raised, or its worker did not start or died."""


class WorkExceeded(ScoringFailed):
    """The text's doing: the same call exceeded its limits in a fresh worker too. `limit` is a field of
    `domain.work.Limits`, the one of the second attempt. Environments that count this as the completion's fault catch
    it; else the group is `unscored`."""

    reason = "verifier_killed"

    def __init__(self, detail: str, *, limit: str) -> None:
        super().__init__(detail)
        self.limit = limit
