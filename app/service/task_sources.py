"""What batches draw their tasks from: an environment with a split, params and a selection, or several in a mixture."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, JsonValue

from app.domain.errors import InvalidRequest
from app.domain.runs import Run, Stream
from app.ports.store import SlotLocator
from app.service.catalogue import ServedEnvironment
from app.service.identity import build_stream
from app.service.request_models import TARGET_KEY, MixMember, NextBatch, TaskSelection
from app.service.task_selection import build_locator


@dataclass(frozen=True)
class TaskSource:
    """An environment with a split, params and selection, from which a batch draws tasks. `weight` is its weight in a
    mixture."""

    hosted: ServedEnvironment
    params: BaseModel
    stream: Stream
    locate: SlotLocator
    weight: float = 1.0


def build_source(hosted: ServedEnvironment, run: Run | None, request: NextBatch) -> TaskSource:
    params = hosted.validate_params(request.params)
    return TaskSource(
        hosted=hosted,
        params=params,
        stream=build_stream(
            run.name if run is not None else "",
            hosted.name,
            request.split,
            params.model_dump(mode="json"),
            _build_selection(request.select),
            request.weights,
        ),
        locate=build_locator(hosted, request, params, run.seed if run is not None else None),
    )


def _build_selection(select: TaskSelection) -> dict[str, tuple[JsonValue, ...]]:
    target = select.target_pass_rate
    return dict(select.chosen) | ({} if target is None else {TARGET_KEY: (target,)})


def build_member(place: int, hosted: ServedEnvironment, run: Run | None, member: MixMember) -> TaskSource:
    try:
        source = build_source(hosted, run, NextBatch(split=member.split, params=member.params))
    except InvalidRequest as error:
        raise InvalidRequest(error.detail, field=f"mix[{place}].{error.field}") from error
    return replace(source, weight=member.weight)


def merge_sources(sources: Sequence[TaskSource]) -> list[TaskSource]:
    """Merges members that use the same stream and adds their weights. Separately they would hand out the same tasks
    twice."""
    by_stream: dict[str, TaskSource] = {}
    for source in sources:
        met = by_stream.get(source.stream.digest)
        by_stream[source.stream.digest] = source if met is None else replace(met, weight=met.weight + source.weight)
    return list(by_stream.values())


def list_weights(sources: Sequence[TaskSource]) -> tuple[float, ...]:
    return tuple(source.weight for source in sources)
