"""A resources server of NeMo Gym by its URL, with the rows of a file. As release 0.7.0 has them.

    task     a row: its `responses_create_params` are the prompt and the tools; its other columns hold the answer, and
             are sent to the server alone
    native   `/seed_session` with the row; the route of a tool for each call; a reply without calls ends the episode,
             and `/verify` with all that was said gives its reward
    turns    where `/openapi.json` has `/reset` and `/step` in place of `/verify`: the observation of the reset ends the
             prompt, and the rewards of the steps add up

A cookie alone says to which session a request belongs. A server that does not know the session answers all the same,
`/verify` with 0, so a lost session is noticed here: by the session's id in the cookie, and by a connection that lasts
for as long as the server's process (`_Lifeline`). A server behind which several processes share the requests of a
session loses them unseen.

Whose fault: bad arguments (422) and unknown tools are handed back to the model. An exception (500), a masked sample, a
failure of the server's own and a reward that is no number leave the episode without a score. All else that is no answer
is HostFailed. No text of a server's failure is repeated, since it may hold the row's answer.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, JsonValue, SecretStr, ValidationError, model_validator
from pydantic_core import from_json, to_json

from app.domain.errors import EnvironmentUnavailable, HostFailed
from app.domain.faults import describe_os_error, explain_connection, explain_faults, make_printable
from app.domain.hosting import HostedStep
from app.domain.tasks import Message, Opening, ToolCall
from app.domain.values import MOST_REWARD, FiniteJson, Split, digest
from app.envs.foreign.contract import MOST_TEXT, Description, ForeignOptions, ForeignRow, Start
from app.inference.connection import Credentials, is_passing
from app.ports.hosts import HostedSession
from app.ports.tracing import build_trace_headers
from app.toolkit.responses import PromptParams, write_items

Shape = Literal["native", "turns"]
Object = dict[str, JsonValue]

_API: Final = "/openapi.json"
_LIVE: Final = "/livez"
"""Short. A server without it answers 404, which tells as much."""
_SEED: Final = "/seed_session"
_VERIFY: Final = "/verify"
_MODE: Final = "/reverify_mode"
_RESET: Final = "/reset"
_STEP: Final = "/step"
_CLOSE: Final = "/close"
_OWN_ROUTES: Final = frozenset(
    ("verify", "seed_session", "close_session", "aggregate_metrics", "reverify_mode", "mcp", "reset", "step", "close")
)
"""No tools: a model that could call them would seed its session anew, or read its reward."""

_MOST_BYTES: Final = 8 * 1024 * 1024
"""Of an answer. `/verify` repeats the row and the response."""
_MOST_COOKIES: Final = 16 * 1024
"""Characters of all cookies of a session."""
_MOST_CALLS: Final = 64
"""Of one message. Further ones are not carried out, and the model is told."""
_MOST_PARTS: Final = 64
_CONNECT_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 2.0
"""After so long a connection is not used again: shorter than servers keep one, which would break a request."""
_BEAT_SECONDS: Final = 2.0


# Rows


class _Row(BaseModel):
    """A line of a file. Its further columns are the server's."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, FiniteJson]

    responses_create_params: PromptParams

    @model_validator(mode="after")
    def _check_tools(self) -> Self:
        taken = sorted(_OWN_ROUTES & {tool.name for tool in self.responses_create_params.tools or ()})
        if taken:
            raise ValueError(f"no tool may be called {taken[0]}, which is a route of the server's own")
        return self


@dataclass(frozen=True)
class _Read:
    """A row with its place, for errors."""

    place: str
    columns: Object
    opening: Opening


def _read_rows(path: Path) -> tuple[list[_Read], str]:
    """With the digest of the file. EnvironmentUnavailable naming its first broken line."""
    hasher = hashlib.sha256()
    rows: list[_Read] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                hasher.update(line)
                if line.strip():
                    rows.append(_read_row(line, f"{path}:{number}"))
    except OSError as error:
        raise EnvironmentUnavailable(describe_os_error(error)) from None
    if not rows:
        raise EnvironmentUnavailable(f"{path} holds no rows")
    return rows, hasher.hexdigest()[:32]


def _read_row(line: bytes, place: str) -> _Read:
    try:
        columns = from_json(line)
    except ValueError:
        raise EnvironmentUnavailable(f"{place}: not JSON") from None
    try:
        row = _Row.model_validate(columns)
    except ValidationError as error:
        fault = explain_faults(error, _Row, quotes=False)[0]
        raise EnvironmentUnavailable(f"{place}: {fault.sentence}") from None
    return _Read(place, columns, row.responses_create_params.opening)


# What a server says of itself


@dataclass(frozen=True)
class _Api:
    """Its `/openapi.json`."""

    shape: Shape
    paths: frozenset[str]
    needs: Mapping[str, frozenset[str]]
    """The columns that a row must have, by the route that asks for them."""
    digest: str
    version: str | None

    @classmethod
    def read(cls, body: bytes) -> "_Api":
        """HostFailed for what describes no resources server."""
        told = _read_object(body, _API)
        listed = told.get("paths")
        paths = frozenset(listed) if isinstance(listed, dict) else frozenset()
        if _VERIFY not in paths and not {_RESET, _STEP} <= paths:
            raise HostFailed("it is no resources server: it has no /verify, and not both /reset and /step")
        shape: Shape = "native" if _VERIFY in paths else "turns"
        asked = (_SEED, _VERIFY) if shape == "native" else (_RESET, _STEP)
        needs = {path: _list_required(told, path) - {"response"} for path in asked}
        title, version = _dig(told, "info", "title"), _dig(told, "info", "version")
        # A server that sets neither has FastAPI's, which say nothing of it.
        is_named = isinstance(version, str) and title != "FastAPI"
        return cls(shape, paths, needs, digest(told), str(version) if is_named else None)

    def has_route(self, tool: str) -> bool:
        return f"/{tool}" in self.paths or any(path.startswith("/{") and path.count("/") == 1 for path in self.paths)

    def require_columns(self, row: _Read) -> None:
        """EnvironmentUnavailable naming the first column that the row lacks."""
        for path, names in self.needs.items():
            if lacking := sorted(names - row.columns.keys()):
                raise EnvironmentUnavailable(
                    f"{row.place}: the column `{make_printable(lacking[0])}` is missing, which {path} asks for"
                )


def _list_required(api: Object, path: str) -> frozenset[str]:
    """Of the body that a route takes; none where it takes one of several."""
    schema = _dig(api, "paths", path, "post", "requestBody", "content", "application/json", "schema")
    name = _dig(schema, "$ref")
    if isinstance(name, str):
        schema = _dig(api, "components", "schemas", name.rpartition("/")[2])
    required = _dig(schema, "required")
    return frozenset(one for one in required if isinstance(one, str)) if isinstance(required, list) else frozenset()


def _dig(value: JsonValue, *names: str) -> JsonValue:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


# Requests


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes
    cookies: Mapping[str, str]
    """Those that it sets, as they are written."""
    ends_connection: bool


class _Fault(Exception):
    """The server failed in a way that asking again would repeat."""


class _Wire:
    """Requests to one server. `seconds` is for each of them."""

    def __init__(
        self, url: str, credentials: Credentials, seconds: float | None, on_connection: Callable[[], None] | None = None
    ) -> None:
        self._url = url
        self._credentials = credentials
        self._seconds = seconds
        self._client = _create_client(seconds, on_connection)

    async def close(self) -> None:
        await self._client.close()

    async def fetch(self, path: str) -> bytes:
        answer = await self.send("GET", path, {})
        if answer.status != 200:
            raise HostFailed(f"{self._url}{path} answered {answer.status}")
        return answer.body

    async def send(self, method: str, path: str, cookies: Mapping[str, str], body: JsonValue = None) -> _Answer:
        """HostFailed when no answer came, or too large a one."""
        import yarl

        headers = {"accept": "application/json", "accept-encoding": "identity"}
        headers |= {"content-type": "application/json"} if body is not None else {}
        headers |= {"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}
        headers |= self._credentials.build_headers() | dict(build_trace_headers())
        url, data = yarl.URL(self._url + path, encoded=True), None if body is None else to_json(body)
        try:
            async with self._client.request(method, url, data=data, headers=headers, allow_redirects=False) as response:
                return await self._read(response, path)
        except HostFailed:
            raise
        except TimeoutError:
            raise HostFailed(f"{self._url}{path} gave no answer within {self._seconds:g} seconds") from None
        except Exception as error:  # whatever a server sends, the caller gets HostFailed
            raise HostFailed(f"{self._url}{path} could not be asked: {explain_connection(error)}") from None

    async def _read(self, response: Any, path: str) -> _Answer:
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise HostFailed(f"{self._url}{path} answered compressed, although only identity was accepted")
        parts: list[bytes] = []
        size = 0
        async for part in response.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                response.close()
                raise HostFailed(f"{self._url}{path} answered more than {_MOST_BYTES} bytes")
        cookies = {name: morsel.coded_value for name, morsel in response.cookies.items()}
        ends = response.headers.get("connection", "").lower() == "close"
        return _Answer(response.status, b"".join(parts), cookies, ends)

    def read_text(self, answer: _Answer, what: str) -> str:
        """What a model is shown. _Fault for what is no text, or too long a one."""
        try:
            text = answer.body.decode()
        except UnicodeDecodeError:
            raise _Fault(f"{what} answered what is no text") from None
        return self.clean(text, what)

    def clean(self, text: str, what: str) -> str:
        if len(text) > MOST_TEXT:
            raise _Fault(f"{what} answered more than {MOST_TEXT} characters")
        return self._credentials.redact(text)


def _create_client(seconds: float | None, on_connection: Callable[[], None] | None) -> Any:
    import aiohttp  # takes long to import, and most starts need none of it

    async def note(*_: object) -> None:
        if on_connection is not None:
            on_connection()

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(note)
    return aiohttp.ClientSession(
        # Of a lifeline the server alone ends the connection.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS if on_connection is None else 3600.0),
        timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trace_configs=[tracing],
        trust_env=False,
    )


def _read_object(body: bytes, what: str) -> Object:
    try:
        told = from_json(body)
    except ValueError:
        raise HostFailed(f"{what} answered no JSON") from None
    if not isinstance(told, dict):
        raise HostFailed(f"{what} answered no JSON object")
    return told


def _require_success(answer: _Answer, path: str) -> Object:
    """_Fault where the server would answer the same again, HostFailed where it may not."""
    if answer.status == 200:
        return _read_object(answer.body, path)
    if answer.status == 422:
        raise _Fault(f"{path} refused the row: {_list_refused(answer.body)}")
    if answer.status == 500:
        raise _Fault(f"{path} broke: it answered 500")
    raise HostFailed(f"{path} answered {answer.status}")


def _list_refused(body: bytes) -> str:
    """The fields that a 422 names. Its words may hold what stands in them."""
    try:
        details = _dig(from_json(body), "detail")
    except ValueError:
        details = None
    places = [_dig(one, "loc") for one in details[:8]] if isinstance(details, list) else []
    named = [".".join(map(str, place)) for place in places if isinstance(place, list)]
    return make_printable(", ".join(named)) or "it does not say why"


# Whether a session is still known


class _Lifeline:
    """Tells whether the server's process is the one that it was. One connection is kept busy while there are sessions.
    When it ended, or the server could not be reached over it, the process may be another, and the sessions are lost. A
    server that says that it ends the connection with its answer does so every time, and tells nothing by it."""

    def __init__(self, url: str, credentials: Credentials, seconds: float) -> None:
        self._seconds = seconds
        # Without a time limit: a request that is broken off ends its connection.
        self._wire = _Wire(url, credentials, None, self._note_connection)
        self._ends_connection = False
        self._life = 0
        self._holders = 0
        self._beating: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def hold(self) -> int:
        """The life of the process, for a session that is opened now and then given back with `release`."""
        self._holders += 1
        try:
            await self._beat()
        except BaseException:
            self.release()
            raise
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        return self._life

    def release(self) -> None:
        self._holders -= 1
        if not self._holders and self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None

    async def require(self, life: int) -> None:
        """HostFailed when the session is lost."""
        await self._beat()
        if self._life != life:
            raise HostFailed("the session was lost: the server was restarted, or could not be reached for a while")

    async def close(self) -> None:
        tasks = [one for one in (self._keeping, self._beating) if one is not None]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._wire.close()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            with contextlib.suppress(HostFailed):  # a slow server is asked again; it is no other one
                await self._beat()

    async def _beat(self) -> None:
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._send())
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(self._beating)
        except TimeoutError:
            raise HostFailed(f"the server gave no answer within {self._seconds:g} seconds") from None

    async def _send(self) -> None:
        try:
            answer = await self._wire.send("GET", _LIVE, {})
        except HostFailed:
            self._life += 1
            return
        self._ends_connection = answer.ends_connection
        if answer.status >= 500:  # a proxy, which does not reach the server
            self._life += 1

    def _note_connection(self) -> None:
        if not self._ends_connection:
            self._life += 1


def _find_session_id(cookies: Mapping[str, str]) -> str | None:
    """As Starlette's signed cookies hold it."""
    for value in cookies.values():
        with contextlib.suppress(ValueError):
            session_id = _dig(from_json(base64.b64decode(value.strip('"').partition(".")[0])), "session_id")
            if isinstance(session_id, str):
                return session_id
    return None


@dataclass
class _Link:
    """The requests of one session. Each carries its cookies, and keeps those of the answer."""

    wire: _Wire
    lifeline: _Lifeline | None
    """None where the server says that it keeps nothing."""
    life: int = 0
    cookies: dict[str, str] = field(default_factory=dict)

    async def begin(self, path: str | None, row: JsonValue) -> Object:
        """Opens the session; without a path the first request does. HostFailed when the server gives none that could be
        told from another."""
        self.life = 0 if self.lifeline is None else await self.lifeline.hold()
        if path is None:
            return {}
        try:
            answer = await self.wire.send("POST", path, {}, row)
            told = _require_success(answer, path)
            self._keep_cookies(answer)
            if self.lifeline is not None and not self.cookies:
                raise HostFailed(f"{path} set no cookie: the server could not tell one session from another")
        except _Fault as fault:
            self.end()
            raise HostFailed(str(fault)) from None
        except BaseException:
            self.end()
            raise
        return told

    async def post(self, path: str, body: JsonValue) -> _Answer:
        if self.lifeline is not None:
            await self.lifeline.require(self.life)
        answer = await self.wire.send("POST", path, self.cookies, body)
        before = _find_session_id(self.cookies)
        self._keep_cookies(answer)
        if before is not None and _find_session_id(self.cookies) != before:
            raise HostFailed("the session was lost: the server began another one")
        return answer

    def end(self) -> None:
        if self.lifeline is not None:
            self.lifeline.release()
            self.lifeline = None

    def _keep_cookies(self, answer: _Answer) -> None:
        self.cookies.update(answer.cookies)
        if sum(len(name) + len(value) for name, value in self.cookies.items()) > _MOST_COOKIES:
            raise HostFailed("the server sets cookies without end")


# Rewards


def _read_reward(told: Object) -> float:
    """_Fault for what is no reward: it is never made up."""
    reward = told.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise _Fault("the server gave no reward" if reward is None else "the server gave a reward that is no number")
    if not abs(reward) <= MOST_REWARD:  # so that it is true of NaN too
        raise _Fault("the server gave a reward that is no finite number, or beyond all bounds")
    return float(reward)


def _require_measured(told: Object) -> None:
    """_Fault where the server says that the reward measures nothing. Kinds with a colon are a server's own, and those
    of `agent_` are what the model did: `mask_sample` alone says of them whether the reward counts."""
    kind = told.get("failure_kind")
    named = make_printable(kind, 100) if isinstance(kind, str) else ""
    if told.get("mask_sample") is True:
        raise _Fault(f"the server says that its reward measures nothing: {named or 'it names no kind of failure'}")
    if named and ":" not in named and not named.startswith("agent_"):
        raise _Fault(f"the server failed: {named}")


def _read_parts(told: Object) -> dict[str, float]:
    parts = told.get("reward_components")
    named = parts.items() if isinstance(parts, dict) else ()
    numbers = [(name, one) for name, one in named if isinstance(one, int | float) and abs(one) <= MOST_REWARD]
    return {make_printable(name, 100): float(value) for name, value in numbers[:_MOST_PARTS]}


# Sessions


def _build_response(output: Sequence[JsonValue]) -> Object:
    return {
        "id": f"resp_{uuid4().hex}",
        "created_at": int(time.time()),
        "model": "policy",
        "object": "response",
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": list(output),
    }


class _Session:
    """What both shapes share: a message of the model becomes items of a response."""

    def __init__(self, link: _Link, row: Object, opening: Opening) -> None:
        self.opening = opening
        self._link = link
        self._row = row
        self._texts = 0
        self._made_ids: set[str] = set()

    async def step(self, message: Message) -> HostedStep:
        try:
            return await self._step(message)
        except _Fault as fault:
            return HostedStep(failure=str(fault))

    async def _step(self, message: Message) -> HostedStep:
        raise NotImplementedError

    async def close(self) -> None:
        self._link.end()

    def _write(self, message: Message) -> tuple[list[JsonValue], list[str]]:
        """The items, and the ids of the calls: a call without one gets one, which the model never sees."""
        self._texts += 1
        made = [f"msg_{self._texts}_call_{number}" for number in range(len(message.tool_calls))]
        self._made_ids.update(made)
        call_ids = [call.id or name for call, name in zip(message.tool_calls, made, strict=True)]
        return write_items(message, f"msg_{self._texts}", call_ids), call_ids


class NativeSession(_Session):
    """Tools, and a reward at the end."""

    def __init__(self, link: _Link, row: Object, opening: Opening) -> None:
        super().__init__(link, row, opening)
        self._output: list[JsonValue] = []
        self._tools = frozenset(tool.function.name for tool in opening.tools)

    async def finish(self) -> HostedStep:
        try:
            return await self._verify()
        except _Fault as fault:
            return HostedStep(failure=str(fault))

    async def _step(self, message: Message) -> HostedStep:
        items, call_ids = self._write(message)
        self._output += items
        if not message.tool_calls:
            return await self._verify()
        texts = [await self._call(call, number) for number, call in enumerate(message.tool_calls)]
        for call_id, text in zip(call_ids, texts, strict=True):
            self._output.append({"type": "function_call_output", "call_id": call_id, "output": text})
        answers = zip(message.tool_calls, texts, strict=True)
        return HostedStep(
            messages=tuple(Message(role="tool", content=text, tool_call_id=call.id) for call, text in answers)
        )

    async def _call(self, call: ToolCall, number: int) -> str:
        """What the model is told."""
        name = call.function.name
        if number >= _MOST_CALLS:
            return _write_error(f"Not carried out: a message may hold {_MOST_CALLS} calls.")
        if name not in self._tools:
            return _write_error(f"There is no tool {make_printable(name, 100)}.")
        arguments = _read_arguments(call)
        if arguments is None:
            return _write_error("The arguments are no JSON object.")
        path = f"/{quote(name, safe='')}"
        answer = await self._link.post(path, arguments)
        if answer.status == 500:
            raise _Fault(f"the tool {make_printable(name, 100)} broke: it answered 500")
        if answer.status >= 300 and (is_passing(answer.status) or answer.status in (401, 403)):
            raise HostFailed(f"{path} answered {answer.status}")
        return self._link.wire.read_text(answer, f"the tool {make_printable(name, 100)}")

    async def _verify(self) -> HostedStep:
        row: Object = {**self._row, "response": _build_response(self._output)}
        told = _require_success(await self._link.post(_VERIFY, row), _VERIFY)
        _require_measured(told)
        return HostedStep(done=True, reward=_read_reward(told), parts=_read_parts(told))


class TurnSession(_Session):
    """Steps with rewards."""

    def __init__(self, link: _Link, row: Object, opening: Opening, *, closes: bool) -> None:
        super().__init__(link, row, opening)
        self._closes = closes
        """Whether the server wants to be told of the end."""

    async def finish(self) -> HostedStep:
        return HostedStep(done=True)

    async def close(self) -> None:
        if self._closes:
            with contextlib.suppress(HostFailed):
                await self._link.post(_CLOSE, {})
        await super().close()

    async def _step(self, message: Message) -> HostedStep:
        items, _ = self._write(message)
        row: Object = {**self._row, "response": _build_response(items)}
        told = _require_success(await self._link.post(_STEP, row), _STEP)
        _require_measured(told)
        done = told.get("terminated") is True or told.get("truncated") is True
        messages = () if done else (*self._read_outputs(told), *_read_observation(told, self._link.wire))
        return HostedStep(messages=messages, done=done, reward=_read_reward(told))

    def _read_outputs(self, told: Object) -> tuple[Message, ...]:
        """The results of the model's calls, which such a server carries out itself."""
        listed = _dig(told, "info", "tool_outputs")
        messages: list[Message] = []
        for one in listed if isinstance(listed, list) else ():
            call_id, text = _dig(one, "call_id"), _dig(one, "output")
            if not isinstance(call_id, str) or not isinstance(text, str):
                raise _Fault(f"{_STEP} gave outputs of tools that cannot be read")
            named = None if call_id in self._made_ids else call_id
            messages.append(Message(role="tool", content=self._link.wire.clean(text, _STEP), tool_call_id=named))
        return tuple(messages)


def _read_observation(told: Object, wire: _Wire) -> tuple[Message, ...]:
    observation = told.get("observation")
    if observation is not None and not isinstance(observation, str):
        raise _Fault("the server gave an observation that is no text")
    return (Message(role="user", content=wire.clean(observation, "the server")),) if observation else ()


def _read_arguments(call: ToolCall) -> Object | None:
    arguments = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments, allow_inf_nan=False)
        except ValueError:
            return None
    return arguments if isinstance(arguments, dict) else None


def _write_error(words: str) -> str:
    return json.dumps({"error": words})


# The server


@dataclass(frozen=True)
class NemoGymOptions:
    """`rows` is a file of JSON lines, one row each; `test_rows` is that of the split `test`, which is empty without."""

    rows: Path
    test_rows: Path | None = None


@dataclass(frozen=True)
class _Known:
    """What sessions need of the description."""

    shape: Shape
    seeds: bool
    keeps_sessions: bool


class NemoGymServer:
    """A resources server of NeMo Gym."""

    kind = "nemo_gym"

    def __init__(
        self, name: str, url: str, options: ForeignOptions, own: NemoGymOptions, api_key: SecretStr | None = None
    ) -> None:
        self.name = name
        self.options = options
        self._own = own
        self._url = url.rstrip("/")
        self._credentials = Credentials(api_key)
        self._wire: _Wire | None = None
        self._lifeline: _Lifeline | None = None
        self._known: _Known | None = None

    @property
    def settings_digest(self) -> str:
        return digest([self.kind, self.options.max_turns])

    async def open(self) -> None:
        self._wire, self._lifeline = self._create_wire(), self._create_lifeline()

    async def close(self) -> None:
        if self._lifeline is not None:
            await self._lifeline.close()
        if self._wire is not None:
            await self._wire.close()

    async def look(self) -> str:
        if self._wire is None:
            raise HostFailed(f"{self.name} is not open yet")
        return hashlib.sha256(await self._wire.fetch(_API)).hexdigest()

    def describe_blocking(self) -> Description:
        files: dict[Split, Path] = {"train": self._own.rows}
        if self._own.test_rows is not None:
            files["test"] = self._own.test_rows
        read = {split: _read_rows(path) for split, path in files.items()}
        rows = {split: rows for split, (rows, _) in read.items()}
        return asyncio.run(self._describe(rows, {split: of_file for split, (_, of_file) in read.items()}))

    async def open_session(self, start: Start) -> HostedSession:
        if self._wire is None or self._lifeline is None or self._known is None:
            raise HostFailed(f"{self.name} was not looked at yet")
        row = start.hidden if isinstance(start.hidden, dict) else {}
        return await _open_session(self._wire, self._lifeline, self._known, row)

    async def _describe(self, rows: Mapping[Split, Sequence[_Read]], files: Mapping[Split, str]) -> Description:
        async with self._borrow() as (wire, lifeline):
            api = _Api.read(await wire.fetch(_API))
            for row in (row for split in rows.values() for row in split):
                if api.shape == "native" and not row.opening.messages:
                    raise EnvironmentUnavailable(f"{row.place}: `responses_create_params.input`: it is empty")
                api.require_columns(row)
            mode = await _ask_mode(wire, api)
            # What `/verify` needs no session for, tools may.
            calls = any(row.opening.tools for split in rows.values() for row in split)
            known = _Known(api.shape, _SEED in api.paths, api.shape == "turns" or calls or mode != "stateless")
            first = rows["train"][0].columns
            if api.shape == "turns":
                replayable, notes = await _play_twice(wire, lifeline, known, first)
            else:
                await (await _open_session(wire, lifeline, known, first)).close()
                replayable = mode == "stateless"
                notes = _list_notes(api, rows, replayable=replayable)
        self._known = known
        return Description(
            digest=digest([api.digest, {str(split): of_file for split, of_file in files.items()}]),
            version=api.version,
            rows={split: [_build_row(row, api.shape) for row in listed] for split, listed in rows.items()},
            opens_prompt=api.shape == "turns",
            finishes=api.shape == "native",
            replayable=replayable,
            notes=tuple(notes),
        )

    @contextlib.asynccontextmanager
    async def _borrow(self) -> AsyncIterator[tuple[_Wire, _Lifeline]]:
        """A client for a while, in whatever event loop this is."""
        wire, lifeline = self._create_wire(), self._create_lifeline()
        try:
            yield wire, lifeline
        finally:
            await lifeline.close()
            await wire.close()

    def _create_wire(self) -> _Wire:
        return _Wire(self._url, self._credentials, self.options.deadline_seconds)

    def _create_lifeline(self) -> _Lifeline:
        return _Lifeline(self._url, self._credentials, self.options.deadline_seconds)


def _build_row(row: _Read, shape: Shape) -> ForeignRow:
    # Where the session opens the prompt, it tells the tools too.
    opening = row.opening if shape == "native" else Opening(messages=())
    return ForeignRow(messages=opening.messages, hidden=row.columns, tools=opening.tools)


async def _open_session(wire: _Wire, lifeline: _Lifeline, known: _Known, row: Object) -> NativeSession | TurnSession:
    opening = PromptParams.model_validate(row.get("responses_create_params")).opening
    link = _Link(wire, lifeline if known.keeps_sessions else None)
    if known.shape == "native":
        await link.begin(_SEED if known.seeds else None, row)
        return NativeSession(link, row, opening)
    told = await link.begin(_RESET, row)
    try:
        messages = (*opening.messages, *_read_observation(told, wire))
        if not messages:
            raise _Fault(f"neither the row nor {_RESET} gives a prompt")
    except _Fault as fault:
        link.end()
        raise HostFailed(str(fault)) from None
    closes = _dig(told, "info", "supports_explicit_close") is True
    return TurnSession(link, row, opening.model_copy(update={"messages": messages}), closes=closes)


async def _ask_mode(wire: _Wire, api: _Api) -> str:
    """`stateless` where `/verify` needs no session. Most servers do not say."""
    return (await wire.fetch(_MODE)).decode(errors="replace").strip().strip('"') if _MODE in api.paths else "unknown"


async def _play_twice(wire: _Wire, lifeline: _Lifeline, known: _Known, row: Object) -> tuple[bool, list[str]]:
    """Whether two episodes of a row begin alike, and answer alike to an empty reply; and what follows if not."""
    openings: list[Opening] = []
    steps: list[HostedStep] = []
    for _ in range(2):
        session = await _open_session(wire, lifeline, known, row)
        try:
            openings.append(session.opening)
            steps.append(await session.step(Message(role="assistant", content="")))
        finally:
            await session.close()
    if openings[0] != openings[1]:
        return False, [
            "Two episodes of one row begin differently: a task has one episode, which is never played again."
        ]
    if steps[0] != steps[1] or steps[0].failure:
        return False, ["The same row and reply brought other answers, or none: a lost episode is not played again."]
    return True, []


def _list_notes(api: _Api, rows: Mapping[Split, Sequence[_Read]], *, replayable: bool) -> list[str]:
    tools = {tool.function.name for listed in rows.values() for row in listed for tool in row.opening.tools}
    without = make_printable(", ".join(sorted(name for name in tools if not api.has_route(name))))
    notes = []
    if tools and not replayable:
        notes.append("The server does not say that it keeps no state: a lost episode with tools is not played again.")
    if without:
        notes.append(f"The server has no route for these tools of the rows: {without}.")
    return notes
