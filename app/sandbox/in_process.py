"""`Workers` in the current process, for tests and for trying an environment."""

from collections.abc import Callable

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.values import FiniteJson
from app.domain.work import DEFAULT_LIMITS, Limits
from app.sandbox.frames import encoded
from app.sandbox.work import Broke, Done, Lost, Outcome, Work, result_of, work_of

_RESULT: TypeAdapter[JsonValue] = TypeAdapter(FiniteJson)


class InProcessWorkers:
    """Calls the function directly and blocks. Only the limit on output is enforced, so it must never get untrusted
    text."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        work = work_of(function, arguments, limits)
        return result_of(work, _outcome(work, function, *arguments))


def _outcome(work: Work, function: Callable[..., JsonValue], *arguments: JsonValue) -> Outcome:
    try:
        result = encoded(function(*arguments))
    except Exception as error:
        return Broke(f"{type(error).__name__}: {error}")
    if len(result) > work.limits.output_bytes:
        return Lost("output_bytes", "it was refused more")
    try:
        return Done(_RESULT.validate_json(result))
    except ValidationError:
        return Lost(None, "it answered what cannot be read")
