"""OpenEnv's wire, read: what a model may do, what it is shown, and whose fault a failure is."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from app.domain.errors import HostFailed, HostFull
from app.domain.tasks import Message
from app.envs.foreign.contract import ForeignOptions, Start
from app.envs.foreign.openenv import OpenEnvOptions, OpenEnvServer
from tests.support.tables import read_table

CASES = read_table(__file__, "openenv.yaml", dict[str, Any])
SEED = Start("train", 7, 7)


class Script:
    """A server that gives the answers of a script, in order, over a real socket."""

    def __init__(self, action: Mapping[str, Any], answers: list[Any]) -> None:
        self.frames: list[Any] = []
        self._action = action
        self._answers = answers

    def serve(self) -> TestServer:
        app = web.Application()
        app.router.add_get("/metadata", self._describe)
        app.router.add_get("/schema", self._describe)
        app.router.add_get("/ws", self._talk)
        return TestServer(app)

    async def _describe(self, request: web.Request) -> web.Response:
        about = {"name": "Scripted", "version": "2"}
        # Longer than what a stream has at once.
        schema = {"action": self._action, "observation": {"description": "x" * 300_000}}
        return web.json_response(about if request.path == "/metadata" else schema)

    async def _talk(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for frame in socket:
            self.frames.append(json.loads(frame.data))
            answer = self._answers.pop(0)
            if answer is None:
                break
            await socket.send_str(answer if isinstance(answer, str) else json.dumps(answer))
        return socket


def observe(data: Any) -> Any:
    return {"type": "observation", "data": data}


async def open_server(server: TestServer, own: OpenEnvOptions) -> OpenEnvServer:
    await server.start_server()
    options = ForeignOptions(deadline_seconds=10)
    opened = OpenEnvServer("game", str(server.make_url("")), options, own)
    await opened.open()
    return opened


@pytest.mark.parametrize("name", CASES)
async def test_a_session_by_its_frames(name: str) -> None:
    case = CASES[name]
    shown = observe({"observation": case["shown"], "reward": None, "done": False})
    begin = [shown, *([observe({"observation": case["listed"]})] if "listed" in case else [])]
    sent = [one for one in case["turns"] if "frame" in one]
    answers = [observe(one["answer"]) if "answer" in one else {"type": "error", "data": one["error"]} for one in sent]
    # A look at the server opens two sessions and sends an action to each, where words are one.
    acts = case["action"].get("required") == ["message"] or "listed" in case
    probes = 2 * [*begin, *([observe({"done": True, "observation": {}})] if acts else [])]
    script = Script(case["action"], [*probes, *begin, *answers])
    served = script.serve()
    opened = await open_server(served, OpenEnvOptions(**case.get("own", {})))
    try:
        description = await opened.describe()
        script.frames.clear()
        session = await opened.open_session(SEED)
        steps = [await session.step(Message(role="assistant", **one["said"])) for one in case["turns"]]
        await session.close()
    finally:
        await opened.close()
        await served.close()
    assert session.opening.model_dump(mode="json") == case["opening"]
    assert [one.model_dump(mode="json") for one in steps] == [one["step"] for one in case["turns"]]
    assert [frame["data"] for frame in script.frames if frame["type"] == "step"][-len(sent) :] == [
        one["frame"] for one in sent
    ]
    assert (script.frames[0], description.version, description.replayable) == (
        {"type": "reset", "data": {"seed": 7}},
        "2",
        True,
    )


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (None, HostFailed, "closed the session"),
        ("{", HostFailed, "no JSON"),
        ("[]", HostFailed, "no JSON object"),
        ({"type": "state", "data": {}}, HostFailed, "no observation"),
        ({"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "1/1"}}, HostFull, "no free place"),
        ({"type": "error", "data": {"code": "SESSION_ERROR", "message": "gone"}}, HostFailed, "gone"),
        (observe({"observation": {}, "done": True, "reward": 1.0}), HostFailed, "done before it began"),
    ],
)
async def test_a_server_that_opens_no_session(answer: Any, error: type[HostFailed], words: str) -> None:
    begin = observe({"observation": {"text": "begin"}})
    script = Script(CASES["text"]["action"], [begin, begin, begin, begin, answer])
    served = script.serve()
    opened = await open_server(served, OpenEnvOptions())
    try:
        await opened.describe()
        with pytest.raises(error, match=words):
            await opened.open_session(SEED)
    finally:
        await opened.close()
        await served.close()
