"""An environment that runs programs: it serves where they are kept apart, says how, and is off where they are not."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx
import pytest
from pydantic import BaseModel

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Program, Task
from app.domain.values import Split
from app.http.api.models import EnvironmentInfo
from app.main.application import create_app
from app.ports.environment import Environment, Tools
from app.sandbox.programs import JailedPrograms
from app.settings import ProgramSettings, Settings
from tests.support.playground import started

WEAK: Final = (("",), ())
"""No namespaces, no locks."""


class Doubling(Environment):
    """Double it."""

    name: ClassVar[str] = "doubling"
    version: ClassVar[str] = "1"
    runs_programs: ClassVar[bool] = True

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return Task(messages=(Message(role="user", content=f"Double {index}."),))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        programs = [Program(source=one.answer, function="f", calls=((4,),)) for one in group]
        executions = await asyncio.gather(*(tools.programs.run(program) for program in programs))
        return [Score.exact([one.value for one in execution.returned] == [8]) for execution in executions]


class Plain(Doubling):
    name: ClassVar[str] = "plain"
    runs_programs: ClassVar[bool] = False


KINDS: Final[dict[str, type[Environment]]] = {"doubling": Doubling, "plain": Plain}


@asynccontextmanager
async def service(
    folder: Path, *, forced: bool = False, weak: bool = False, kinds: dict[str, type[Environment]] = KINDS
) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(
        database_url=f"sqlite:///{folder / 'test.db'}", programs=ProgramSettings(allow_weak_isolation=forced)
    )
    app = create_app(settings, environments=kinds, programs=JailedPrograms(2, *WEAK) if weak else None)
    async with started(app) as door:
        # Readiness waits for two seconds at most until it is known how well programs are isolated.
        async with asyncio.timeout(60):
            while "doubling" in kinds and (await door.get("/envs/doubling")).json()["isolation"] is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        yield door


async def entry(folder: Path, **how: Any) -> dict[str, Any]:
    async with service(folder, **how) as door:
        return {kind: (await door.get(f"/envs/{kind}")).json() for kind in how.get("kinds", KINDS)}


async def test_strong_isolation_is_shown_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "app.sandbox.isolation"):
        seen = await entry(tmp_path)
    read = {name: EnvironmentInfo.model_validate(one) for name, one in seen.items()}
    doubling, plain = read["doubling"], read["plain"]
    assert doubling.isolation is not None
    held = {one.against: one.held for one in doubling.isolation.protections}
    lines = [record.getMessage() for record in caplog.records if record.name == "app.sandbox.isolation"]
    assert (doubling.available, doubling.isolation.strong, held, plain.isolation) == (
        True,
        True,
        dict.fromkeys(["network", "files", "processes", "memory", "time", "service"], True),
        None,
    )
    assert [line.partition(":")[0] for line in lines] == ["programs of models are isolated"]
    assert {name: one.model_dump(mode="json") for name, one in read.items()} == seen


async def test_where_it_is_weak_the_environment_is_off_says_what_is_missing_and_scores_nothing(tmp_path: Path) -> None:
    async with service(tmp_path, weak=True) as door:
        weak, plain = [(await door.get(f"/envs/{kind}")).json() for kind in ("doubling", "plain")]
        replies = [
            await door.post("/envs/doubling/next-batch", json={"batch_size": 1}),
            await door.post("/envs/doubling/score", json={"groups": [{"task_id": "x", "completions": []}]}),
        ]
    statuses = [reply.status_code for reply in replies]
    expected = ("a TCP connection was made", "/etc/passwd was read", "programs.allow_weak_isolation", "seccomp")
    assert (weak["available"], weak["isolation"]["strong"], plain["available"]) == (False, False, True)
    assert [words for words in expected if words not in weak["reason"]] == []
    assert (statuses[0], statuses[1] >= 400) == (503, True)


async def test_a_weak_one_that_is_forced_serves_and_says_so(tmp_path: Path) -> None:
    """Where isolation is strong, programs are run in tests/envs."""
    async with service(tmp_path, weak=True, forced=True) as door:
        seen = (await door.get("/envs/doubling")).json()
        batch = (await door.post("/envs/doubling/next-batch", json={"batch_size": 1, "run": "a"})).json()
        answers = ["def f(x): return 2 * x", "def f(x): return x", "import os; os._exit(0)"]
        group = {"task_id": batch["tasks"][0]["task_id"], "completions": [{"text": text} for text in answers]}
        reply = await door.post("/envs/doubling/score", json={"groups": [group], "run": "a"}, timeout=60)
    rewards = [one["reward"] for one in reply.json()["groups"][0]["scores"]]
    assert (seen["available"], seen["reason"], seen["isolation"]["strong"]) == (True, None, False)
    assert rewards == [1.0, 0.0, 0.0]
