"""Tasks of single rows, and what programs earn for them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.tasks import Completion, Dataset, Task
from app.envs.code_exec.environment import CodeExec, CodeExecParams, CodeRow
from app.ports.environment import Tools
from app.sandbox.programs import JailedPrograms
from app.service.judging import NoPanel
from tests.support.event_loop import closed_after


def make_row_task(row: CodeRow, **params: Any) -> tuple[CodeExec, Task]:
    environment = CodeExec({"rows": Dataset(name="rows", origin="rows", digest="1", splits={"train": [row]})})
    return environment, environment.task("train", 0, CodeExecParams(**params))


async def score_programs(row: CodeRow, programs: Sequence[str], **params: Any) -> list[float | None]:
    environment, task = make_row_task(row, **params)
    group = [Completion(text=f"```python\n{source}\n```") for source in programs]
    async with closed_after(JailedPrograms(1)) as jails:
        scores = await environment.score(task, group, Tools(panel=NoPanel(), programs=jails))
        return [score.reward for score in scores]


@contextmanager
def left_out(reason: str) -> Iterator[None]:
    with pytest.raises(ValidationError, match=reason) as caught:
        yield
    assert [error["type"] for error in caught.value.errors()] == ["left_out"]
