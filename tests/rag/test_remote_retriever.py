"""A retriever behind a URL that is slow, down, huge, malformed or hostile, in a process of its own, and what a trainer
meets then."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from app.domain.errors import RetrieverFailed
from app.domain.tasks import ContextQuery
from app.rag.remote import MakeResolver, RemoteRetriever, RemoteRetrieverConfig, create_system_resolver
from app.settings import RagSettings
from tests.support.hostile_retriever import MIB, Hostile, hostile_retriever
from tests.support.playground import WAIT, World, gateway
from tests.support.serving import free_port
from tests.support.tables import read_table

FAILURES = read_table(__file__, "failures.yaml", dict[str, tuple[str, int]])


QUERY = ContextQuery(text="What news?", character="hob", world="valley")


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    with hostile_retriever() as server:
        yield server


def rag(url: str, on_failure: str = "refuse", deadline: float = WAIT, **remote: object) -> RagSettings:
    return RagSettings.model_validate(
        {
            "retriever": "remote",
            "on_failure": on_failure,
            "deadline_seconds": deadline,
            "remote": {"url": url, **remote},
        }
    )


def served(database: Path, settings: RagSettings) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    return gateway(World(), database, rag=settings)


async def retrieved(config: RemoteRetrieverConfig, resolver: MakeResolver = create_system_resolver) -> str:
    """The first passage, or why there is none."""
    retriever = RemoteRetriever(config, resolver)
    await retriever.open()
    try:
        return (await retriever.retrieve(QUERY)).passages[0].text
    except RetrieverFailed as error:
        return error.detail
    finally:
        await retriever.close()


async def asked(client: httpx.AsyncClient, count: int = 1, **more: object) -> httpx.Response:
    return await client.post("/envs/tavern/next-batch", json={"batch_size": count, **more})


def told(reply: httpx.Response) -> list[tuple[str, Mapping[str, object]]]:
    return [(task["messages"][0]["content"], task["metadata"]) for task in reply.json()["tasks"]]


@pytest.mark.parametrize("behaviour", FAILURES)
async def test_only_what_may_pass_is_tried_again(hostile: Hostile, behaviour: str) -> None:
    path, followed = f"{behaviour}/counted", hostile.posts("good")
    outcome = await retrieved(RemoteRetrieverConfig(url=hostile.url(path), deadline_seconds=WAIT))
    assert (outcome, hostile.posts(path)) == FAILURES[behaviour]
    assert (hostile.posts("good"), hostile.sent(path) < 64 * MIB) == (followed, True)


async def test_a_server_that_is_down() -> None:
    outcome = await retrieved(RemoteRetrieverConfig(url=f"http://127.0.0.1:{free_port()}/"))
    assert outcome == "the retriever's server could not be reached"


@pytest.mark.parametrize("behaviour", ["slow-headers", "slow-drip", "hang"])
async def test_a_retriever_that_fails_refuses_the_batch_or_leaves_it_without(
    hostile: Hostile, database: Path, behaviour: str
) -> None:
    """More tasks than are asked for at once, whose answers would take minutes."""
    replies = []
    for on_failure in ("refuse", "without"):
        settings = rag(hostile.url(behaviour), on_failure, 0.5)
        async with served(database, settings) as client, asyncio.timeout(WAIT):
            replies.append(await asked(client, 40, run="a", cursor=0))
    refused, without = replies
    problem, late = refused.json(), "the retriever gave no answer within 0.5 seconds"
    assert (refused.status_code, problem["code"], problem["detail"]) == (503, "retriever_failed", late)
    assert [(text, metadata["context"]) for text, metadata in told(without)] == [("", "failed")] * 40


async def test_a_failure_is_frozen_so_that_all_ranks_see_one_prompt(hostile: Hostile, database: Path) -> None:
    async with served(database, rag(hostile.url("until-mended"), "without")) as client:
        before = told(await asked(client, run="a", cursor=0))
        await asyncio.to_thread(hostile.mend, "until-mended")
        prompts = [told(await asked(client, run=run, cursor=0))[0][0] for run in ("a", "b")]
        assert (before[0][0], prompts) == ("", ["", "News for hob."])


async def test_passages_from_the_future_reach_no_prompt(hostile: Hostile, database: Path) -> None:
    async with served(database, rag(hostile.url("future"))) as client:
        (task,) = (await asked(client, run="a", cursor=0)).json()["tasks"]
        counted = (await client.get("/metrics")).text
        withheld = (await client.get(f"/tasks/{task['task_id']}")).text
        assert task["messages"][0]["content"] == "It rained."
        assert "atropos_envs_passages_future_total 0.0" not in counted
        assert "The bridge will fall." not in withheld


async def test_a_world_that_the_server_does_not_know_is_the_callers_mistake(hostile: Hostile, database: Path) -> None:
    async with served(database, rag(hostile.url("unknown-world"), "without")) as client:
        reply = await asked(client, run="a", cursor=0)
        problem = reply.json()
        known = "the retriever does not know the world 'valley'"
        assert (reply.status_code, problem["errors"][0]["field"], problem["detail"]) == (422, "params.world", known)


async def test_the_key_is_sent_and_never_told(
    hostile: Hostile, database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LORE_KEY", "a-secret-of-the-studio")
    caplog.set_level(0)
    async with served(database, rag(hostile.url("key"), api_key_env="LORE_KEY")) as client:
        assert told(await asked(client))[0][0] == "Bearer a-secret-of-the-studio"
    async with served(database, rag(hostile.url("echo"), api_key_env="LORE_KEY")) as client:
        reply = await asked(client)
    assert (reply.status_code, "secret" in reply.text, "secret" in caplog.text) == (503, False, False)


class Pointing(AbstractResolver):
    """Says of every name that it stands for these addresses."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in self._addresses
        ]

    async def close(self) -> None:
        pass


PRIVATE = "the retriever's host name resolves to a private address, and rag.remote.allow_private is not set"


@pytest.mark.parametrize(
    ("host", "addresses", "allow_private", "outcome"),
    [
        ("lore.example", ["127.0.0.1"], False, PRIVATE),
        ("lore.example", ["127.0.0.1"], True, "News for hob."),
        ("lore.example", ["8.8.8.8", "127.0.0.1"], False, PRIVATE),
        ("localhost", ["127.0.0.1"], False, "News for hob."),
        ("localhost", ["10.0.0.1"], False, PRIVATE),
        ("127.0.0.1", [], False, "News for hob."),
    ],
)
async def test_a_name_that_stands_for_a_private_address_is_not_asked(
    hostile: Hostile, host: str, addresses: list[str], allow_private: bool, outcome: str
) -> None:
    config = RemoteRetrieverConfig(url=hostile.url("good/named", host), allow_private=allow_private)
    before = hostile.posts("good/named")
    told = await retrieved(config, lambda: Pointing(*addresses))
    assert (told, hostile.posts("good/named") - before) == (outcome, int(outcome != PRIVATE))
