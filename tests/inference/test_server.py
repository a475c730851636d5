"""Which refusals of an inference server may pass, and a policy's server that fails in odd ways, without a socket."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
from pydantic import JsonValue

from app.domain.errors import GatewayError, InvalidRequest, NotFound, Unauthorized, Unavailable
from app.domain.tasks import FunctionSpec, Message, ToolSpec
from app.inference import policies
from app.inference.connection import CHAT_PATH, Connection, Credentials, Endpoint, OpenReply, ServerReply
from app.inference.policies import ChatPolicyServer, InferenceServer, LineMeter, ReplyTally
from app.inference.wire import read_answer
from app.ports.play import Chunk
from tests.support.event_loop import finish


class Refusing(Connection):
    """Answers everything with one status."""

    def __init__(self, status: int) -> None:
        super().__init__(Endpoint("http://policy/v1", Credentials(None)))
        self._status = status

    async def post(self, body: object, path: str = CHAT_PATH) -> ServerReply:
        return ServerReply(self._status, {}, b"not\n now")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, Unavailable) for status in (307, 408, 409, 425, 429, 500, 502, 503)),
        *((status, Unauthorized) for status in (401, 403)),
        (404, NotFound),
        *((status, InvalidRequest) for status in (400, 413, 422, 499)),
    ],
)
def test_a_status_says_whether_to_try_again(status: int, kind: type[GatewayError]) -> None:
    server = InferenceServer(Refusing(status), "m")
    with pytest.raises(GatewayError) as refused:
        finish(server.ask([Message(role="user", content="Hello?")]))
    told = f"http://policy/v1 answers {status}: not now"
    assert (type(refused.value), refused.value.detail) == (kind, told)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (b'{"message": "Slow down", "code": 429}', Unavailable),
        (b'{"message": "Slow down", "code": 502}', Unavailable),
        (b'{"message": "Slow down"}', Unavailable),
        (b'{"message": "Slow down", "code": 401}', Unauthorized),
        (b'{"message": "Slow down", "code": 400}', InvalidRequest),
    ],
)
def test_an_error_with_status_200_says_it_too(error: bytes, kind: type[GatewayError]) -> None:
    server = InferenceServer(ScriptedConnection(b'{"error": %s}' % error), "m")
    with pytest.raises(GatewayError) as refused:
        finish(server.ask([Message(role="user", content="Hello?")]))
    told = "http://policy/v1 answers 200 with an error: Slow down"
    assert (type(refused.value), refused.value.detail) == (kind, told)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (b'{"finish_reason": "abort", "message": {"content": "Ay"}}', "an error: the reply broke off .abort."),
        (b'{"finish_reason": "odd", "message": {"content": ""}}', "broke off its reply .odd."),
        (b'{"finish_reason": "error", "message": {"content": "Ay"}}', "an error: the reply broke off .error."),
    ],
)
def test_a_reply_that_broke_off_is_asked_for_again(choice: bytes, words: str) -> None:
    server = InferenceServer(ScriptedConnection(b'{"choices": [%s]}' % choice), "m")
    with pytest.raises(Unavailable, match=words):
        finish(server.ask([Message(role="user", content="Hello?")]))


def test_replies_that_broke_off_are_counted_by_their_length() -> None:
    whole, long = b'{"finish_reason": "stop", "message": {"content": "Aye."}}', b"x" * 3000
    broken = b'{"finish_reason": "%s", "message": {"content": "%s"}}'
    odd = broken % (b"odd", b"")
    server = InferenceServer(ScriptedConnection(b""), "m")
    for choices in (whole, b",".join((whole, odd)), b",".join((whole, broken % (b"abort", long)))):
        answer = replace(server, connection=ScriptedConnection(b'{"choices": [%s]}' % choices))
        assert len(finish(answer.ask([Message(role="user", content="Hello?")])).said) == 1
    told = "2 of 5 replies broke off and were asked for again (25.0% up to 500 characters, 100.0% of longer ones)"
    assert (server.tally.describe(), ReplyTally().describe()) == (told, "")


def test_lines_are_measured() -> None:
    choice = b'{"finish_reason": "stop", "message": {"content": "Aye."}}'
    said = b'{"choices": [%s, %s], "usage": {"prompt_tokens": 1200, "completion_tokens": 40}}' % (choice, choice)
    server = InferenceServer(ScriptedConnection(said), "m")
    meter = LineMeter()
    meter.add(finish(server.ask([Message(role="user", content="Hello?")])), 1.5)
    tokens = "20 tokens (20), 1,200 prompt tokens (1,200)"
    assert meter.describe() == f"one line, median (95th percentile): 1.50 s (1.50), {tokens}"
    assert (server.meter.describe().endswith(tokens), LineMeter().describe()) == (True, "")


def test_requests_without_a_reply_are_told_once_they_wait_for_long() -> None:
    class Watched(ScriptedConnection):
        async def post(self, body: Mapping[str, JsonValue], path: str = "") -> ServerReply:
            told.extend(server.standing.describe_wait(at_least) for at_least in (0.0, 3600.0))
            return await super().post(body, path)

    told: list[str] = []
    server = InferenceServer(Watched(b'{"choices": [{"message": {"content": "Aye."}}]}'), "m")
    finish(server.ask([Message(role="user", content="Hello?")]))
    told.append(server.standing.describe_wait(0.0))
    assert told == ["requests without a reply: 1, the oldest sent 0 s ago", "", ""]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("Field 'n': Value must be between 1 <= value <= 4, but got 8", [8, 4]),
        ("n must be 1 when using greedy sampling, got 8.", [8, 4]),
        ("the prompt has 9000 tokens", [8]),
    ],
)
def test_a_server_that_gives_fewer_replies_at_once_is_asked_for_fewer(words: str, asked: list[int]) -> None:
    class Limited(ScriptedConnection):
        async def post(self, body: Mapping[str, JsonValue], path: str = "") -> ServerReply:
            reply = await super().post(body, path)
            refusal = json.dumps({"error": {"message": words}}).encode()
            return ServerReply(400, {}, refusal) if body.get("n") == 8 else reply

    connection = Limited(b'{"choices": [{"message": {"content": "Aye."}}]}')
    server = InferenceServer(connection, "m")
    for _ in range(2):
        with suppress(InvalidRequest):
            finish(server.ask([Message(role="user", content="Hello?")], count=8))
    assert [one["n"] for one in connection.sent] == [*asked, asked[-1]]


EMPTIED = b'{"finish_reason": "content_filter", "message": {"content": ""}}'
MALFORMED = b'{"finish_reason": "malformed_function_call", "message": {"content": ""}}'


ABORTED = b'{"finish_reason": "abort", "message": {"content": "A"}}'
REFUSED = b'{"error": {"code": 400, "message": "No"}, "message": {"content": ""}}'


@pytest.mark.parametrize(
    ("choices", "kind", "asked"),
    [
        ((EMPTIED, EMPTIED), InvalidRequest, 1),
        ((REFUSED, REFUSED), InvalidRequest, 1),
        ((MALFORMED, MALFORMED), InvalidRequest, 5),
        ((EMPTIED, MALFORMED), InvalidRequest, 5),
        ((EMPTIED, ABORTED), Unavailable, 1),
        ((REFUSED, ABORTED), Unavailable, 1),
        ((MALFORMED, ABORTED), Unavailable, 1),
    ],
)
def test_replies_that_broke_off_are_asked_for_again_where_one_of_them_may_end(
    choices: tuple[bytes, bytes], kind: type[GatewayError], asked: int
) -> None:
    """A call that the server could not read a few times at once; Unavailable as long as the caller likes."""
    connection = ScriptedConnection(b'{"choices": [%s]}' % b", ".join(choices))
    with pytest.raises(GatewayError) as told:
        finish(InferenceServer(connection, "m").ask([Message(role="user", content="Hello?")], count=2))
    assert (isinstance(told.value, kind), len(connection.sent)) == (True, asked)


@pytest.mark.parametrize("broken", [EMPTIED, MALFORMED, b'{"error": {"code": 502}, "message": {"content": "A"}}'])
def test_a_whole_reply_beside_one_that_broke_off_is_kept(broken: bytes) -> None:
    whole = b'{"finish_reason": "stop", "message": {"content": "Aye."}}'
    server = InferenceServer(ScriptedConnection(b'{"choices": [%s, %s]}' % (broken, whole)), "m")
    said = finish(server.ask([Message(role="user", content="Hello?")], count=2)).said
    assert [one.message.content for one in said] == ["Aye."]


@pytest.mark.parametrize(
    ("counts", "hidden"), [((57, 57), True), ((157, 57), False), ((0, 0), False)], ids=["hidden", "shown", "uncounted"]
)
def test_a_template_without_tools_counts_the_same_tokens_with_them(counts: tuple[int, int], hidden: bool) -> None:
    class Counting(ScriptedConnection):
        async def post(self, body: Mapping[str, JsonValue], path: str = "") -> ServerReply:
            self.sent.append(body)
            usage = b'{"prompt_tokens": %d}' % counts["tools" not in body]
            choice = b'{"finish_reason": "length", "message": {"content": "Ay"}}'
            return ServerReply(200, {}, b'{"choices": [%s], "usage": %s}' % (choice, usage))

    connection = Counting(b"")
    tools = [ToolSpec(function=FunctionSpec(name="add"))]
    hides = finish(InferenceServer(connection, "m").hides_tools([Message(role="user", content="1 + 1?")], tools))
    assert (hides, [(one["max_tokens"], "tools" in one) for one in connection.sent]) == (
        hidden,
        [(1, True), (1, False)],
    )


FINISHED = b'data: {"choices": [{"index": 0, "delta": {"content": "Aye."}, "finish_reason": "stop"}]}\n\n'
BEGUN = b'data: {"choices": [{"index": 1, "delta": {"content": "No"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


class ScriptedConnection(Connection):
    """Answers with one body."""

    def __init__(self, body: bytes) -> None:
        super().__init__(Endpoint("http://policy/v1"))
        self.sent: list[Mapping[str, JsonValue]] = []
        self.closed = 0
        self._body = body

    async def post(self, body: Mapping[str, JsonValue], path: str = "") -> ServerReply:
        self.sent.append(body)
        return ServerReply(200, {}, self._body)

    async def open(self, body: Mapping[str, JsonValue], path: str = "") -> OpenReply:
        self.sent.append(body)
        return OpenReply(200, self._iterate(), self._close)

    async def _iterate(self) -> AsyncIterator[bytes]:
        yield self._body

    async def _close(self) -> None:
        self.closed += 1


def build_policy(connection: Connection, seconds: float = 20.0) -> ChatPolicyServer:
    return ChatPolicyServer(
        "warm",
        "model",
        connection,
        temperature=1.0,
        max_output_tokens=64,
        deadline_seconds=seconds,
        extra_body={},
        continue_body={},
        max_concurrency=1,
    )


async def stream(policy: ChatPolicyServer) -> list[Chunk]:
    events = await policy.stream({"messages": []})
    try:
        return [event async for event in events]
    finally:
        await events.close()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"choices": []}', "did not return a chat completion"),
        (b'{"choices": null, "usage": {}}', "did not return a chat completion"),
        (b'{"choices": ["Aye"]}', "did not return a chat completion"),
        (b'{"object": "error", "message": "no memory"}', "reports an error: no memory"),
        (b'{"detail": "no such model"}', "reports an error: no such model"),
        (DONE, "holds no choices"),
        (b'data: {"choices": [], "usage": {}}\n\n' + DONE, "holds no choices"),
        (FINISHED + BEGUN, "the stream ended before the reply"),
    ],
)
def test_an_answer_without_a_reply_is_a_failure(body: bytes, words: str) -> None:
    connection = ScriptedConnection(body)
    with pytest.raises(Unavailable, match=words):
        asyncio.run(stream(build_policy(connection)))
    assert connection.closed == 1


@pytest.mark.parametrize(
    "choices", [b"", b'{"message": "Aye."}', b'{"message": {"content": [{"refusal": "No."}]}}', b'{"index": 0}']
)
def test_a_whole_answer_without_a_message_is_a_failure(choices: bytes) -> None:
    with pytest.raises(Unavailable, match="did not return a chat completion"):
        asyncio.run(build_policy(ScriptedConnection(b'{"choices": [%s]}' % choices)).ask({"messages": []}))


@pytest.mark.parametrize(("size", "is_beside"), [(10, False), (100_000, True)])
def test_a_large_answer_is_read_beside_the_loop(size: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def note_thread(body: bytes) -> object:
        threads.append(threading.current_thread())
        return read_answer(body)

    monkeypatch.setattr(policies, "read_answer", note_thread)
    sent = json.dumps({"choices": [{"message": {"content": "a" * size}}]}).encode()
    asyncio.run(build_policy(ScriptedConnection(sent)).ask({"messages": []}))
    assert [one is not threading.main_thread() for one in threads] == [is_beside]


@pytest.mark.parametrize(
    ("asked", "sent"), [(10, 10), (1000, 64), (-1, 64), (0, 64), (True, 64), ("9", 64), (None, 64)]
)
def test_only_a_number_of_tokens_bounds_a_reply(asked: JsonValue, sent: int) -> None:
    connection = ScriptedConnection(FINISHED)
    asyncio.run(build_policy(connection).stream({"messages": [], "max_tokens": asked}))
    assert connection.sent[0]["max_tokens"] == sent


async def test_a_place_is_waited_for_until_the_deadline_alone() -> None:
    connection = ScriptedConnection(json.dumps({"choices": [{"message": {"content": "Aye."}}]}).encode())
    policy = build_policy(connection, seconds=0.01)
    held = await policy.stream({"messages": []})
    for wait in (policy.stream, policy.ask):
        with pytest.raises(Unavailable, match=r"does not answer within 0\.01 s"):
            await wait({"messages": []})
    await held.close()
    await held.close()
    await policy.ask({"messages": []})
    assert len(connection.sent) == 2
