"""NeMo Gym's released resources servers, played through our environment and by HTTP: the rewards are the same."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import islice, product
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.errors import HostFailed
from app.domain.hosting import HostedStep
from app.domain.tasks import FunctionCall, Message, ToolCall
from app.envs.foreign.contract import Description, ForeignOptions, Start
from app.envs.foreign.nemo_gym import NemoGymOptions, NemoGymServer
from tests.support.nemo_gym import NemoGym, build_response, play_simple, say
from tests.support.serving import free_port
from tests.support.small_servers import Handler, Server
from tests.support.small_servers import running as relaying
from tests.trainers.installed import NEMO_GYM, serving_nemo_gym

NEEDS = (NEMO_GYM / ".installed",)
TASKS = 64
COUNTER = "resources_servers.example_session_state_mgmt"


def find_rows(package: str) -> Path:
    """The five rows that the wheel has of each server."""
    (file,) = NEMO_GYM.glob(f"lib/python*/site-packages/{package.replace('.', '/')}/data/example.jsonl")
    return file


@asynccontextmanager
async def playing(package: str, url: str) -> AsyncIterator[tuple[NemoGymServer, Description]]:
    foreign = NemoGymServer("foreign", url, ForeignOptions(), NemoGymOptions(find_rows(package)))
    await foreign.open()
    try:
        yield foreign, await asyncio.to_thread(foreign.describe_blocking)
    finally:
        await foreign.close()


async def play(foreign: NemoGymServer, row: Any, messages: Sequence[Message]) -> list[HostedStep]:
    session = await foreign.open_session(Start("train", 0, 0, row))
    steps = [await session.step(message) for message in messages]
    if not steps[-1].is_over:
        steps.append(await session.finish())
    await session.close()
    return steps


def write_items(message: Message, number: int) -> list[dict[str, Any]]:
    """As a model server writes what the model said."""
    said = [say(message.content, id=f"msg_{number}")] if message.content is not None else []
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]
    return said + [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in calls
    ]


async def compare(package: str, folder: Path, plans: Sequence[Sequence[Message]]) -> Counter[float]:
    """How often each reward was given, by both."""
    with serving_nemo_gym(folder, package) as url:
        async with playing(package, url) as (foreign, description):
            assert description.rows is not None
            rows: list[Any] = [row.hidden for row in description.rows["train"]]
            ours = [(await play(foreign, rows[task % len(rows)], plan))[-1].reward for task, plan in enumerate(plans)]
            theirs = [
                (
                    await play_simple(
                        NemoGym(url),
                        rows[task % len(rows)],
                        [write_items(message, number) for number, message in enumerate(plan)],
                    )
                )["reward"]
                for task, plan in enumerate(plans)
            ]
    assert ours == theirs
    return Counter(theirs)


def choose_texts(*texts: str) -> list[list[Message]]:
    """Each of them for every row in turn."""
    return [[Message(role="assistant", content=texts[task // 5 % len(texts)])] for task in range(TASKS)]


@pytest.mark.parametrize(
    ("package", "plans"),
    [
        (
            "resources_servers.string_match",
            choose_texts(
                r"\boxed{Paris}", "Final answer: Saturn", "It is\nPacific Ocean", "Final answer: 15", r"\boxed{80}", ""
            ),
        ),
        ("resources_servers.mcqa", choose_texts(*(rf"Answer: \boxed{{{letter}}}" for letter in "ABCDEFGHIJ"), "none")),
    ],
)
async def test_a_reply_earns_what_it_earns_by_http(
    package: str, plans: Sequence[Sequence[Message]], tmp_path: Path
) -> None:
    found = await compare(package, tmp_path, plans)
    assert (found.total(), set(found)) == (TASKS, {0.0, 1.0})


def plan_counts() -> Iterator[list[Message]]:
    """What makes a count right, or not: in one message or several, with bad arguments and unknown tools."""
    odd = ("increment_counter", '{"count": "x"}'), ("reset_counter", "{}")
    for first, second, other, closes in product(range(1, 15, 3), range(2, 16, 3), odd, (True, False)):
        counts = [("increment_counter", json.dumps({"count": count})) for count in (first, second)]
        calls = [
            ToolCall(id=f"call_{number}", function=FunctionCall(name=name, arguments=arguments))
            for number, (name, arguments) in enumerate([*counts, other, ("get_counter_value", "{}")])
        ]
        yield [
            Message(role="assistant", tool_calls=tuple(calls[:1])),
            Message(role="assistant", content="More.", tool_calls=tuple(calls[1:])),
            *([Message(role="assistant", content="Done.")] if closes else []),
        ]


async def test_tools_with_a_state_earn_what_they_earn_by_http(tmp_path: Path) -> None:
    found = await compare(COUNTER, tmp_path, list(islice(plan_counts(), TASKS)))
    assert (found.total(), set(found)) == (TASKS, {0.0, 1.0})


async def test_a_restarted_server_gives_no_reward_for_a_session_that_it_lost(tmp_path: Path) -> None:
    port, sessions = free_port(), ExitStack()
    url = sessions.enter_context(serving_nemo_gym(tmp_path, COUNTER, port=port))
    async with playing(COUNTER, url) as (foreign, description):
        assert description.rows is not None
        row: Any = description.rows["train"][0].hidden
        client = NemoGym(url)
        session = await foreign.open_session(Start("train", 0, 0, row))
        (await client.post("seed_session", row)).raise_for_status()
        sessions.close()
        with serving_nemo_gym(tmp_path, COUNTER, port=port):
            told = await client.verify(row, build_response(say("Done.", id="msg")))
            with pytest.raises(HostFailed, match="the session was lost"):
                await session.step(Message(role="assistant", content="Done."))
        await session.close()
    assert (told["reward"], told["mask_sample"]) == (0.0, False)


@contextmanager
def recording(url: str) -> Iterator[tuple[str, list[Any]]]:
    """A way to a server, and what it answered to steps in turn: hands are dealt anew each time."""
    steps: list[Any] = []

    class Relay(Handler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            headers = {
                name: value for name, value in self.headers.items() if name.lower() in ("cookie", "content-type")
            }
            reply = httpx.request(self.command, f"{url}{self.path}", content=self.read_body(), headers=headers)
            if self.path == "/step":
                steps.append(reply.json())
            self.answer(reply.content, reply.status_code, {"set-cookie": reply.headers.get("set-cookie", "")})

        do_GET = do_POST = pass_on

    with relaying(Server(Relay)) as server:
        yield server.url, steps


async def test_turns_earn_what_the_server_gave_for_them(tmp_path: Path) -> None:
    package = "resources_servers.blackjack"
    ours: list[Any] = []
    with serving_nemo_gym(tmp_path, package) as direct, recording(direct) as (url, theirs):
        async with playing(package, url) as (foreign, description):
            assert description.rows is not None
            theirs.clear()
            for task in range(TASKS):
                session = await foreign.open_session(Start("train", task, 0, description.rows["train"][0].hidden))
                said = ["hit"] * (task % 4) + ["stand"]
                done = False
                while not done:
                    step = await session.step(Message(role="assistant", content=f"<action>{said.pop(0)}</action>"))
                    ours.append((step.done, step.reward, [message.content for message in step.messages]))
                    done = step.done
                await session.close()
    assert description.opens_prompt
    assert ours == [
        (one["terminated"], one["reward"], [] if one["terminated"] else [one["observation"]]) for one in theirs
    ]
    assert sum(done for done, *_ in ours) == TASKS
