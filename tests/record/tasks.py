"""The part `tasks`: everything that is handed out, and the answers that are not."""

from collections.abc import Iterator

from pydantic import JsonValue

from app.domain.tasks import TaskKey
from app.service.requests import compute_task_id
from tests.record.hosting import Block, all_hosted, blocks_of
from tests.record.rows import Blocks


def tasks() -> Blocks:
    return {block.name: list(_rows(block)) for hosted in all_hosted().values() for block in blocks_of(hosted)}


def key_of(block: Block, index: int) -> TaskKey:
    """As the service makes it where nothing was retrieved."""
    return TaskKey(
        environment=block.hosted.name,
        version=block.environment.version,
        data_digest=block.hosted.data_digest,
        split=block.split,
        index=index,
        params=block.params.model_dump(mode="json"),
    )


def _rows(block: Block) -> Iterator[JsonValue]:
    for index in block.indexes():
        task = block.task(index)
        gold = block.environment.gold(task)
        query = block.environment.query(task)
        yield {
            "task_id": compute_task_id(key_of(block, index)),
            "size": block.environment.size(block.split, block.params),
            "task": task.model_dump(mode="json"),
            "gold": None if gold is None else gold.model_dump(mode="json"),
            "label": block.environment.label(block.split, index, block.params),
            "query": None if query is None else query.model_dump(mode="json"),
        }
