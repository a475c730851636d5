"""A gateway over small environments for each test that is a coroutine. One gateway and one judge for all tests that ask
for rewards, which have runs and tasks of their own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.playground import World, gateway
from tests.support.reward_trainers import Judged, judged_gateway
from tests.support.serving import free_port


@pytest.fixture(scope="session")
def game_port() -> int:
    """Where mastermind is served at the root."""
    return free_port()


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory, game_port: int) -> Iterator[Judged]:
    """For the group `one judge`: each worker that asks for it has one."""
    asked = {"PORT": str(game_port), "ENVIRONMENT": "mastermind", "RUN": "port", "GROUP_SIZE": "2"}
    ports = {f"ATROPOS_ENVS_NEMO_GYM_PORTS__GAME__{name}": value for name, value in asked.items()}
    with judged_gateway(tmp_path_factory.mktemp("judged"), **ports) as judged:
        yield judged


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def client(world: World, database: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway(world, database) as client:
        yield client
