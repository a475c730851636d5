"""Two gateways over one PostgreSQL serve episodes that run on another's server, and one is killed in the middle."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.databases import Postgres
from tests.support.foreign_episodes import LOST, SAID, Trainer, seed_of
from tests.support.openenv_server import ScriptedServer, count_reward, start
from tests.support.serving import serving

GROUPS = 4
WAIT = 60.0
Messages = list[dict[str, Any]]


def begin(trainers: Sequence[Trainer], others: Sequence[Trainer]) -> list[tuple[dict[str, Any], Messages]]:
    """Episodes that have had two of their three steps, each at another replica."""
    begun = []
    for trainer, other in zip(trainers, others, strict=True):
        task = trainer.lease()
        messages: Messages = []
        for replica, word in zip((trainer, other), SAID, strict=False):
            messages.append({"role": "assistant", "content": word})
            messages += replica.step(task, messages)["messages"]
        begun.append((task, [*messages, {"role": "assistant", "content": SAID[2]}]))
    return begun


def wait_for_steps(server: ScriptedServer, count: int) -> None:
    end = time.monotonic() + WAIT
    while len(server.steps) < count:
        assert time.monotonic() < end, server.steps
        time.sleep(0.01)


@pytest.mark.faults
def test_episodes_go_on_at_the_other_replica_where_they_can_be_played_again(postgres: Postgres, tmp_path: Path) -> None:
    with start() as server, ThreadPoolExecutor(GROUPS) as threads, ExitStack() as stack:
        words = {"serve": "openenv", "url": server.url, "sessions": 64}
        environments = {"words": words, "once": {**words, "replay": False}}
        settings = {
            "ATROPOS_ENVS_DATABASE_URL": postgres.migrated(),
            "ATROPOS_ENVS_ENVIRONMENTS": json.dumps(environments),
        }
        folders = [tmp_path / name for name in ("first", "second")]
        for folder in folders:
            folder.mkdir()
        with serving(folders[0], settings=settings) as first, serving(folders[1], settings=settings) as second:
            clients = [
                stack.enter_context(httpx.Client(base_url=served.url, timeout=WAIT)) for served in (first, second)
            ]
            one, other = (Trainer(client) for client in clients)
            at_one, at_other = (Trainer(client, run="once", environment="once") for client in clients)
            played = begin([one, other] * (GROUPS // 2), [other, one] * (GROUPS // 2))
            once = begin([at_one, at_other], [at_one, at_other])
            server.behaviour.seconds, known = 1.0, len(server.steps)
            stepping = [threads.submit(one.step, task, messages) for task, messages in played]
            wait_for_steps(server, known + GROUPS)
            first.kill()
            broken = [isinstance(done.exception(WAIT), httpx.TransportError) for done in stepping]
            server.behaviour.seconds = 0.0
            told = [other.score(task, messages) for task, messages in played]
            told_once = [at_other.score(task, messages) for task, messages in once]
    whole = [[count_reward(seed_of(task), SAID)] for task, _ in (*played, once[1])]
    assert (broken, [*told, told_once[1]], told_once[0]) == ([True] * GROUPS, whole, [LOST])
