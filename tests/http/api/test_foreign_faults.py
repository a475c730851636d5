"""A server of OpenEnv's that fails under a gateway: no reward is made up, and nothing that was given is lost."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.settings import Settings
from tests.support.foreign_episodes import LOST, SAID, Trainer, seed_of
from tests.support.openenv_server import Behaviour, ScriptedServer, count_reward, find_reward, start
from tests.support.playground import serve_here
from tests.support.tables import read_table, unfold

OTHERS = ("ccc", "d", "e")
LEAST = -4.0
FAULTS: dict[str, list[str]] = read_table(__file__, "foreign_faults.yaml", dict[str, list[str]])


def wait_until(true: Callable[[], bool]) -> bool:
    """False when it does not become true."""
    end = time.monotonic() + 30
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


@contextmanager
def serving(folder: Path, server: ScriptedServer) -> Iterator[TestClient]:
    words = {"serve": "openenv", "url": server.url, "deadline_seconds": 2, "sessions": 4, "reward_range": (LEAST, 6)}
    settings = Settings(database_url=f"sqlite:///{folder}/gateway.db", environments={"words": words})
    with serve_here(settings) as client:
        yield client


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with start() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(tmp_path_factory.mktemp("words"), server) as client:
        yield client


@pytest.fixture
def trainer(client: TestClient, server: ScriptedServer) -> Iterator[Trainer]:
    server.behaviour = Behaviour()
    yield Trainer(client)
    server.behaviour = Behaviour()


@pytest.mark.parametrize(("fault", "earns"), unfold(FAULTS))
def test_one_wrong_answer_costs_its_episode_at_most(
    trainer: Trainer, server: ScriptedServer, fault: str, earns: str
) -> None:
    task = trainer.lease()
    server.behaviour = Behaviour(fault, times=1)
    episodes = [trainer.play(task, words) for words in (SAID, OTHERS)]
    told, seed = trainer.score(task, *episodes), seed_of(task)
    whole, second = count_reward(seed, SAID), find_reward(seed, 2, SAID[1])
    due = {"all": whole, "without the second": whole - second, "one for the second": whole - second + 1}
    assert told == [due.get(earns, earns), count_reward(seed, OTHERS)]


def test_no_reward_is_no_zero(trainer: Trainer, server: ScriptedServer) -> None:
    server.behaviour = Behaviour(rewards_nothing=True)
    task = trainer.lease()
    told = trainer.score(task, trainer.play(task, SAID))
    assert told == ["reward_missing: the environment gave no reward for this episode"]


def test_who_sends_no_action_earns_the_least(trainer: Trainer, server: ScriptedServer) -> None:
    server.behaviour = Behaviour("refused", at=1, times=1)
    task = trainer.lease()
    assert trainer.score(task, trainer.play(task, SAID[:1])) == [LEAST]


def test_an_episode_that_was_scored_keeps_no_place(trainer: Trainer, server: ScriptedServer) -> None:
    """It was not over, so its session was open until then."""
    task = trainer.lease()
    episode = trainer.play(task, SAID[:1])
    episode.pop()
    before = server.live
    trainer.score(task, episode)
    assert wait_until(lambda: server.live == before - 1)


def test_a_task_that_could_not_be_opened_is_handed_out_next(client: TestClient, server: ScriptedServer) -> None:
    trainer = Trainer(client, run="opened")
    server.behaviour = Behaviour(handshake=500)
    refused = trainer.lease()
    server.behaviour = Behaviour()
    outstanding = sum(one["outstanding"] for one in client.get("/runs/opened").json()["activity"])
    told = refused, outstanding, trainer.lease()["task_id"]
    assert told == ((503, "environment_failed"), 0, trainer.lease(cursor=0)["task_id"])


def test_a_score_that_the_server_kept_back_is_given_later(trainer: Trainer, server: ScriptedServer) -> None:
    task = trainer.lease()
    episode = trainer.play(task, SAID[:1])
    server.behaviour = Behaviour("cut")
    episode.append({"role": "assistant", "content": SAID[1]})
    before = trainer.score(task, episode)
    server.behaviour = Behaviour()
    told = before, trainer.score(task, episode)
    assert told == (["environment_failed: words closed the session"], [count_reward(seed_of(task), SAID[:2])])


def test_more_episodes_than_the_server_has_places_all_play(trainer: Trainer, server: ScriptedServer) -> None:
    """It has two, and the settings say four."""
    tasks = [trainer.lease() for _ in range(6)]
    server.behaviour, server.most_live = Behaviour(places=2), 0

    def play(task: dict[str, Any]) -> list[float | str]:
        return trainer.score(task, trainer.play(task, SAID))

    with ThreadPoolExecutor(6) as threads:
        told = list(threads.map(play, tasks))
    assert told == [[count_reward(seed_of(task), SAID)] for task in tasks]


def test_an_episode_goes_on_when_the_server_was_started_again(tmp_path: Path) -> None:
    with ExitStack() as first:
        server = first.enter_context(start())
        with serving(tmp_path, server) as client:
            trainer = Trainer(client)
            task = trainer.lease()
            episode = trainer.play(task, SAID[:2])
            first.close()
            with start(port=int(server.url.rpartition(":")[2])) as again:
                episode.append({"role": "assistant", "content": SAID[2]})
                told = trainer.score(task, episode), [step for _, step, _ in again.steps]
    assert told == ([count_reward(seed_of(task), SAID)], [1, 2, 3])


def test_what_came_out_otherwise_is_not_played_again(tmp_path: Path) -> None:
    """The server ignores seeds from the moment that it was looked at."""
    with start() as server, serving(tmp_path, server) as client:
        trainer = Trainer(client)
        server.behaviour = Behaviour(ignores_seed=True)
        task = trainer.lease()
        told = trainer.score(task, *(trainer.play(task, words) for words in (SAID, OTHERS)))
        other = trainer.lease()
        server.behaviour.fault, server.behaviour.times = "cut", 1
        lost = trainer.score(other, trainer.play(other, SAID))
    otherwise = "replay_diverged: another session of the same task began otherwise"
    assert (told, lost) == ([count_reward(seed_of(task), SAID), otherwise], [LOST])
