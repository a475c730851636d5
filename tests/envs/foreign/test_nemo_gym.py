"""Resources servers of NeMo Gym, played through `NemoGymServer` against a real server on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from app.domain.errors import EnvironmentUnavailable, HostFailed
from app.domain.hosting import HostedStep
from app.domain.tasks import FunctionCall, FunctionSpec, Message, Opening, ToolCall, ToolSpec
from app.envs.foreign.contract import Description, ForeignOptions, Start
from app.envs.foreign.nemo_gym import NemoGymOptions, NemoGymServer
from app.ports.hosts import HostedSession
from tests.support.resources_server import Given, Object, ResourcesServer, make_counter, make_guess, serving
from tests.support.tables import read_table

TOOL = {"type": "function", "name": "increment_counter", "description": None, "parameters": {"type": "object"}}
COUNTER_ROW: Object = {
    "responses_create_params": {"input": "Add 1 and 2.", "instructions": "Count.", "tools": [{**TOOL, "strict": True}]},
    "initial_count": 3,
    "expected_count": 6,
}
COUNTER_OPENING = Opening(
    messages=(Message(role="system", content="Count."), Message(role="user", content="Add 1 and 2.")),
    tools=(ToolSpec(function=FunctionSpec(name="increment_counter", parameters={"type": "object"})),),
)
GUESS_ROW: Object = {"responses_create_params": {"input": [{"role": "system", "content": "Guess."}]}, "secret": "b"}


@dataclass(frozen=True)
class Played:
    foreign: NemoGymServer
    description: Description

    async def open(self) -> HostedSession:
        assert self.description.rows is not None
        return await self.foreign.open_session(Start("train", 0, 0, self.description.rows["train"][0].hidden))


@asynccontextmanager
async def playing(
    folder: Path, server: ResourcesServer, *rows: Object, key: SecretStr | None = None, seconds: float = 60.0
) -> AsyncIterator[Played]:
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    options = ForeignOptions(deadline_seconds=seconds)
    foreign = NemoGymServer("foreign", f"{server.url}/", options, NemoGymOptions(file, file), key)
    await foreign.open()
    try:
        yield Played(foreign, await asyncio.to_thread(foreign.describe_blocking))
    finally:
        await foreign.close()


def call(name: str, arguments: Any, call_id: str | None = "a") -> ToolCall:
    return ToolCall(id=call_id, function=FunctionCall(name=name, arguments=arguments))


def say(text: str | None, *calls: ToolCall) -> Message:
    return Message(role="assistant", content=text, tool_calls=calls)


def hear(text: str, call_id: str | None = "a") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id)


async def test_tools_are_called_in_one_session_and_all_that_was_said_is_verified(tmp_path: Path) -> None:
    async with serving(make_counter()) as server, playing(tmp_path, server, COUNTER_ROW) as played:
        session = await played.open()
        server.received.clear()
        steps = [
            await session.step(
                say(
                    "Now.",
                    call("increment_counter", {"count": 1}),
                    call("increment_counter", '{"count": 2}', None),
                    call("increment_counter", {}, "c"),
                    call("increment_counter", "[]", "d"),
                    call("verify", {}, "e"),
                )
            ),
            await session.step(say("Done.")),
        ]
        await session.close()
    refused = '{"detail": [{"type": "missing", "loc": ["body", "count"], "msg": "Field required"}]}'
    texts = ['{"success": true}', '{"success": true}', refused]
    texts += ['{"error": "The arguments are no JSON object."}', '{"error": "There is no tool verify."}']
    assert (session.opening, steps) == (
        COUNTER_OPENING,
        [
            HostedStep(messages=tuple(map(hear, texts, ("a", None, "c", "d", "e")))),
            HostedStep(done=True, reward=1.0, parts={"count": 1.0}),
        ],
    )
    (routes, bodies) = zip(*server.received, strict=True)
    output = bodies[-1]["response"]["output"]
    assert (routes, bodies[-1] == {**COUNTER_ROW, "response": bodies[-1]["response"]}) == (
        ("increment_counter", "increment_counter", "increment_counter", "verify"),
        True,
    )
    assert [(one["type"], one.get("call_id", one.get("id"))) for one in output] == [
        ("message", "msg_1"),
        *(("function_call", call_id) for call_id in ("a", "msg_1_call_1", "c", "d", "e")),
        *(("function_call_output", call_id) for call_id in ("a", "msg_1_call_1", "c", "d", "e")),
        ("message", "msg_2"),
    ]


async def test_an_episode_that_ends_early_is_verified_as_it_stands(tmp_path: Path) -> None:
    async with serving(make_counter()) as server, playing(tmp_path, server, COUNTER_ROW) as played:
        session = await played.open()
        await session.step(say(None, call("increment_counter", {"count": 3})))
        assert await session.finish() == HostedStep(done=True, reward=1.0, parts={"count": 1.0})
        await session.close()


async def test_a_reset_ends_the_prompt_and_each_step_has_its_reward(tmp_path: Path) -> None:
    async with serving(make_guess()) as server, playing(tmp_path, server, GUESS_ROW) as played:
        session = await played.open()
        steps = [
            await session.step(say("a", call("hint", {}, "h"), call("hint", {}, None))),
            await session.step(say("b")),
        ]
        end = await (await played.open()).finish()
    prompt = Message(role="system", content="Guess."), Message(role="user", content="Guess a letter.")
    assert (session.opening, steps, end) == (
        Opening(messages=prompt),
        [
            HostedStep(
                messages=(hear("no hints", "h"), hear("no hints", None), Message(role="user", content="Not a.")),
                reward=-0.25,
            ),
            HostedStep(done=True, reward=1.0),
        ],
        HostedStep(done=True),
    )


class Case(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    route: str
    status: int = 200
    body: str = "{}"
    times: int = 1
    latin: bool = False
    headers: dict[str, str] = {}
    failure: str | None = None
    reward: float | None = None
    shows: str | None = None
    raises: str | None = None

    @property
    def given(self) -> Given:
        body = (self.body * self.times).encode("latin-1" if self.latin else "utf-8")
        return Given(self.status, body, self.headers)


@pytest.mark.parametrize("case", read_table(__file__, "nemo_gym_faults.yaml", list[Case]), ids=lambda case: case.route)
async def test_whose_fault_it_is(case: Case, tmp_path: Path) -> None:
    server, row = (make_guess(), GUESS_ROW) if case.route == "step" else (make_counter(), COUNTER_ROW)
    calls = (call("increment_counter", {"count": 1}),) if case.route == "increment_counter" else ()
    wanted: Any
    async with serving(server), playing(tmp_path, server, row) as played:
        session = await played.open()
        server.given[case.route] = case.given
        found: Any
        try:
            found = await session.step(say("a", *calls))
        except HostFailed as error:
            found = error.detail.replace(server.url, "URL")
        await session.close()
    if case.raises is not None:
        wanted = case.raises
    elif case.shows is not None:
        wanted = HostedStep(messages=(hear(case.shows),))
    elif case.failure is not None:
        wanted = HostedStep(failure=case.failure)
    else:
        wanted = HostedStep(done=True, reward=case.reward)
    assert found == wanted


LOST = "the session was lost: the server was restarted, or could not be reached for a while"


@pytest.mark.parametrize("make", [make_counter, make_guess])
async def test_a_session_is_lost_with_the_server_that_knew_it(make: Any, tmp_path: Path) -> None:
    row = COUNTER_ROW if make is make_counter else GUESS_ROW
    async with serving(make()) as server, playing(tmp_path, server, row) as played:
        before = await played.open()
        await server.restart()
        after = await played.open()
        with pytest.raises(HostFailed) as caught:
            await before.step(say("b"))
        assert (caught.value.detail, (await after.step(say("b"))).done) == (LOST, True)


async def test_a_server_that_keeps_nothing_loses_nothing(tmp_path: Path) -> None:
    stateless = make_counter(mode="stateless", sets_cookies=False)
    row = {**COUNTER_ROW, "responses_create_params": {"input": "What is 3 and 3?"}}
    async with serving(stateless) as server, playing(tmp_path, server, row) as played:
        session = await played.open()
        await server.restart()
        assert (played.description.replayable, (await session.step(say("b"))).reward) == (True, 0.0)


async def test_a_server_that_ends_each_connection_loses_no_session_by_it(tmp_path: Path) -> None:
    async with serving(make_guess(ends_connections=True)) as server, playing(tmp_path, server, GUESS_ROW) as played:
        session = await played.open()
        assert [(await session.step(say(text))).reward for text in "ab"] == [-0.25, 1.0]


@pytest.mark.parametrize(
    ("server", "row", "told"),
    [
        (make_counter(), COUNTER_ROW, (False, False, 1)),
        (make_counter(mode="stateless"), COUNTER_ROW, (False, True, 0)),
        (make_guess(), GUESS_ROW, (True, True, 0)),
        (make_guess(deals=True), GUESS_ROW, (True, False, 1)),
    ],
)
async def test_what_can_be_played_again_is_tried(
    server: ResourcesServer, row: Object, told: tuple[bool, bool, int], tmp_path: Path
) -> None:
    async with serving(server), playing(tmp_path, server, row, row) as played:
        found = played.description
        assert found.rows is not None
        messages = () if found.opens_prompt else COUNTER_OPENING.messages
        assert ((found.opens_prompt, found.replayable, len(found.notes)), found.version) == (told, None)
        read = {split: [(one.messages, one.hidden) for one in rows] for split, rows in found.rows.items()}
        assert read == dict.fromkeys(("train", "test"), [(messages, row)] * 2)


@pytest.mark.parametrize(("line", "words"), read_table(__file__, "broken_rows.yaml", list[tuple[str, str]]))
async def test_a_broken_row_is_named_with_its_line(line: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{json.dumps(COUNTER_ROW)}\n\n{line}\n", encoding="utf-8")
    async with serving(make_counter()) as server:
        foreign = NemoGymServer("foreign", server.url, ForeignOptions(), NemoGymOptions(file))
        with pytest.raises(EnvironmentUnavailable) as caught:
            await asyncio.to_thread(foreign.describe_blocking)
    assert caught.value.detail.startswith(f"{file}:3: {words}")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "URL/openapi.json could not be asked: nothing listens there"),
        ({"sets_cookies": False}, "/seed_session set no cookie: the server could not tell one session from another"),
        ({"routes": {}}, "it is no resources server: it has no /verify, and not both /reset and /step"),
        ({"given": {"seed_session": Given(status=500)}}, "/seed_session broke: it answered 500"),
    ],
)
async def test_a_server_that_cannot_be_played_says_why(given: Object, words: str, tmp_path: Path) -> None:
    server = make_counter()
    for name, value in given.items():
        setattr(server, name, value)
    async with serving(server):
        url = server.url
        if not given:
            await server.stop()
        with pytest.raises(HostFailed) as caught:
            async with playing(tmp_path, server, COUNTER_ROW):
                pass
    assert caught.value.detail.replace(url, "URL") == words


async def test_the_key_is_sent_and_never_shown(tmp_path: Path) -> None:
    server = make_counter()
    async with serving(server), playing(tmp_path, server, COUNTER_ROW, key=SecretStr("hush-hush")) as played:
        session = await played.open()
        server.given["increment_counter"] = Given(body=b"Bearer hush-hush")
        step = await session.step(say(None, call("increment_counter", {"count": 1})))
        await session.close()
    assert (step.messages, {*server.keys}) == ((hear("Bearer …"),), {"Bearer hush-hush"})


async def test_a_server_that_hangs_is_given_up(tmp_path: Path) -> None:
    server = make_counter()
    async with serving(server), playing(tmp_path, server, COUNTER_ROW, seconds=0.5) as played:
        session = await played.open()
        server.awake.clear()
        with pytest.raises(HostFailed) as caught:
            await session.step(say("b"))
        server.awake.set()
    assert caught.value.detail.replace(server.url, "URL") == "URL/verify gave no answer within 0.5 seconds"
