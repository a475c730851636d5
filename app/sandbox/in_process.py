"""`Workers` in the current process, for tests and for trying an environment."""

from collections.abc import Callable

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.values import FiniteJson
from app.domain.work import DEFAULT_LIMITS, Limits
from app.sandbox.frames import encode_json
from app.sandbox.work import Done, FunctionRaised, WorkerCall, WorkerLost, WorkerOutcome, build_call, unwrap_outcome

_RESULT: TypeAdapter[JsonValue] = TypeAdapter(FiniteJson)


class InProcessWorkers:
    """Calls the function directly and blocks. Only the limit on output is enforced, so it must never get untrusted
    text."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        work = build_call(function, arguments, limits)
        return unwrap_outcome(work, _call_function(work, function, *arguments))


def _call_function(work: WorkerCall, function: Callable[..., JsonValue], *arguments: JsonValue) -> WorkerOutcome:
    try:
        result = encode_json(function(*arguments))
    except Exception as error:
        return FunctionRaised(f"{type(error).__name__}: {error}")
    if len(result) > work.limits.output_bytes:
        return WorkerLost("output_bytes", "it was refused more")
    try:
        return Done(_RESULT.validate_json(result))
    except ValidationError:
        return WorkerLost(None, "it answered what cannot be read")
