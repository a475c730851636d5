"""An OpenEnv server by its URL. One session is one web socket; their HTTP routes make a fresh environment each time.

    task     a seed: `reset {seed}` brings the first observation, which is the prompt
    action   the model's text in the one field that the action has, or its call of the tool `act` where it has several;
             of a server with tools (MCP) the model's calls of those
    reward   the sum of the steps' rewards; none where every one is null

What the server refuses in an action (VALIDATION_ERROR) is the model's fault, and handed back to it. An exception of the
environment (EXECUTION_ERROR) ends the episode without a score. Frames have no ids, so after a timeout a socket is
closed and never read again.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import JsonValue, SecretStr

from app.domain.errors import HostFailed, HostFull, SessionLost
from app.domain.faults import explain_connection
from app.domain.hosting import HostedStep
from app.domain.tasks import FunctionSpec, Message, Opening, ToolCall, ToolSpec
from app.domain.values import MOST_REWARD, digest, replace_lone_surrogates
from app.envs.foreign.contract import MOST_TEXT, Description, ForeignOptions, Start, find_seed
from app.ports.hosts import HostedSession
from app.toolkit.thoughts import strip_thinking

Object = dict[str, Any]

_MOST_BYTES: Final = 4 * 1024 * 1024
"""Of one frame, or one answer over HTTP."""
_FULL: Final = "CAPACITY_REACHED"
_MODELS_FAULT: Final = "VALIDATION_ERROR"
_ITS_FAULT: Final = "EXECUTION_ERROR"
ACT: Final = "act"
"""The tool by which a model sends an action of several fields."""
_TEXT_FIELDS: Final = ("text", "message", "prompt", "content", "observation", "stdout", "question")
_BESIDE: Final = ("metadata", "done", "reward")
"""Of an observation, what is no part of what it shows."""
_SAYS_NOTHING: Final[tuple[JsonValue, ...]] = (None, "", [], {})
_PROBE: Final = "probe"
"""What is sent as an action when a server is looked at."""
_NOTHING: Final = "(The environment shows nothing.)"


@dataclass(frozen=True)
class OpenEnvOptions:
    """`action_field`: where the model's text goes; found in the schema when empty. `observation_field`: a dotted path
    to the text of an observation; found by the usual names when empty. `final_tool`: the tool of an MCP server that
    gets a reply without calls. `reset`: further arguments of every reset. `hands_back_errors`: what the environment
    raises at an action is the model's fault."""

    action_field: str = ""
    observation_field: str = ""
    final_tool: str = ""
    reset: Mapping[str, JsonValue] = field(default_factory=dict)
    instructions: str = ""
    hands_back_errors: bool = False


@dataclass(frozen=True)
class _Actions:
    """How a model acts. Neither a field nor a schema: the server has tools."""

    text_field: str = ""
    schema: JsonValue = None

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        if not isinstance(self.schema, dict):
            return ()
        words = "Your next action in the environment."
        return (ToolSpec(function=FunctionSpec(name=ACT, description=words, parameters=self.schema)),)


class OpenEnvServer:
    """An OpenEnv server."""

    kind = "openenv"

    def __init__(
        self,
        name: str,
        url: str,
        options: ForeignOptions,
        own: OpenEnvOptions,
        api_key: SecretStr | None = None,
    ) -> None:
        self.name = name
        self.options = options
        self._own = own
        self._url = url.rstrip("/")
        parts = urlsplit(self._url)
        self._socket_url = urlunsplit(parts._replace(scheme="wss" if parts.scheme == "https" else "ws")) + "/ws"
        self._headers = {} if api_key is None else {"authorization": f"Bearer {api_key.get_secret_value()}"}
        self._client: Any = None
        self._actions: _Actions | None = None

    @property
    def settings_digest(self) -> str:
        own = self._own
        fields = own.action_field, own.observation_field, own.final_tool, own.instructions, own.hands_back_errors
        return digest([self.kind, *fields, dict(own.reset), self.options.max_turns])

    async def open(self) -> None:
        self._client = _create_client(self._headers)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def look(self) -> str:
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                metadata, schema = (
                    await self._fetch(self._client, "/metadata"),
                    await self._fetch(self._client, "/schema"),
                )
        except TimeoutError:
            raise HostFailed(f"{self._url} gave no answer within {self.options.deadline_seconds:g} seconds") from None
        return digest([metadata, schema])

    def describe_blocking(self) -> Description:
        return asyncio.run(self.describe())

    async def open_session(self, start: Start) -> HostedSession:
        if self._actions is None:
            raise HostFailed(f"{self.name} was not looked at yet")
        return await self._open_session(self._client, self._actions, start)

    # What it says of itself

    async def describe(self) -> Description:
        client = _create_client(self._headers)
        try:
            async with asyncio.timeout(self.options.deadline_seconds):
                metadata = await self._fetch(client, "/metadata")
                schema = await self._fetch(client, "/schema")
                actions = self._find_actions(schema)
                first, second = await self._probe(client, actions), await self._probe(client, actions)
        except TimeoutError:
            raise HostFailed(f"{self._url} gave no answer within {self.options.deadline_seconds:g} seconds") from None
        finally:
            await client.close()
        self._actions = actions
        version = metadata.get("version")
        replayable = first == second
        notes = [] if replayable else ["The same seed and actions brought other answers: it cannot be played again."]
        if actions.text_field and first[1].refused:
            # Else a wrong `action_field`, which is the operator's mistake, would look like models that cannot act.
            words = first[1].messages[0].content
            notes.append(f"It refused the word {_PROBE!r} as an action, as it may refuse what models say: {words}")
        said: list[JsonValue] = [metadata.get("name"), version, schema.get("action"), schema.get("observation")]
        return Description(
            # What the probe brought is part of it: a server that names no version may change all the same.
            digest=digest([*said, [one.model_dump(mode="json") for one in first] if replayable else None]),
            version=version if isinstance(version, str) else None,
            finishes=False,
            replayable=replayable,
            notes=tuple(notes),
        )

    async def _probe(self, client: Any, actions: _Actions) -> tuple[Opening, HostedStep]:
        """What a seed and one action bring."""
        session = await self._open_session(client, actions, Start("train", 0, find_seed("train", 0)))
        try:
            return session.opening, await session.step(Message(role="assistant", content=_PROBE))
        finally:
            await session.close()

    def _find_actions(self, schema: Object) -> _Actions:
        action = schema.get("action")
        if not isinstance(action, dict):
            raise HostFailed(f"{self._url}/schema names no action")
        if action.get("title") in ("CallToolAction", "ListToolsAction"):
            return _Actions()
        if self._own.action_field:
            return _Actions(text_field=self._own.action_field)
        properties = {name: one for name, one in (action.get("properties") or {}).items() if name != "metadata"}
        required = [name for name in action.get("required") or () if name in properties]
        if len(required) == 1 and _is_text(properties[required[0]]):
            return _Actions(text_field=required[0])
        chosen = {name: properties[name] for name in required or properties}
        return _Actions(schema={**action, "properties": chosen, "required": list(required)})

    async def _fetch(self, client: Any, path: str) -> Object:
        with _translate_errors(self._url):
            async with client.get(self._url + path, allow_redirects=False) as response:
                if response.status != 200:
                    raise HostFailed(f"{self._url}{path} answered {response.status}")
                body = await _read_body(response)
        return _read_object(body, f"{self._url}{path}")

    # Sessions

    async def _open_session(self, client: Any, actions: _Actions, start: Start) -> "OpenEnvSession":
        session = OpenEnvSession(self.name, self._own, actions)
        try:
            with _translate_errors(self._url):
                session.socket = await client.ws_connect(self._socket_url, max_msg_size=_MOST_BYTES)
            given = start.hidden if isinstance(start.hidden, dict) else {"seed": start.seed}
            await session.reset({**self._own.reset, **given})
        except BaseException:
            await session.close()
            raise
        return session


class OpenEnvSession:
    """One socket."""

    def __init__(self, server: str, own: OpenEnvOptions, actions: _Actions) -> None:
        self.socket: Any = None
        self.opening = Opening(messages=())
        self._server = server
        self._own = own
        self._actions = actions
        self._shown = ""
        """The history at the last answer."""

    async def reset(self, arguments: Mapping[str, JsonValue]) -> None:
        answer = await self._ask({"type": "reset", "data": dict(arguments)})
        data = self._require_observation(answer)
        if data.get("done") is True:
            raise HostFailed(f"{self._server}: the episode was done before it began")
        tools = self._actions.tools
        if not self._actions.text_field and not tools:
            tools = await self._list_tools()
        system = (Message(role="system", content=self._own.instructions),) if self._own.instructions else ()
        shown = Message(role="user", content=self._show(data.get("observation")) or _NOTHING)
        self.opening = Opening(messages=(*system, shown), tools=tools)

    async def step(self, message: Message) -> HostedStep:
        if self._actions.text_field or self._actions.tools:
            return await self._act(message)
        if message.tool_calls:
            return await self._call_tools(message.tool_calls)
        if not self._own.final_tool:
            return HostedStep(done=True)
        return await self._call_final_tool(message.content or "")

    async def finish(self) -> HostedStep:
        return HostedStep(done=True)

    async def close(self) -> None:
        if self.socket is None:
            return
        with contextlib.suppress(Exception):  # it may be broken in any way
            await asyncio.wait_for(self.socket.close(), timeout=1.0)

    # Generic actions

    async def _act(self, message: Message) -> HostedStep:
        call = message.tool_calls[0] if message.tool_calls else None
        data = {self._actions.text_field: message.content or ""} if self._actions.text_field else _read_action(message)
        if data is None:
            words = f"Call the tool `{ACT}`, or answer with its arguments as one JSON object."
            return HostedStep(messages=(_answer(call, words),), refused=True)
        answer = await self._ask({"type": "step", "data": data})
        if self._is_models_fault(answer):
            return HostedStep(messages=(_answer(call, _describe_refusal(answer)),), refused=True)
        if _find_code(answer) == _ITS_FAULT:
            return HostedStep(failure=f"the environment broke: {_describe_refusal(answer)}")
        data = self._require_observation(answer)
        return _build_step(data, (_answer(call, self._show(data.get("observation")) or _NOTHING),))

    # Tools

    async def _list_tools(self) -> tuple[ToolSpec, ...]:
        data = self._require_observation(await self._ask({"type": "step", "data": {"type": "list_tools"}}))
        observation = data.get("observation")
        listed = observation.get("tools") if isinstance(observation, dict) else None
        try:
            return tuple(
                ToolSpec(
                    function=FunctionSpec(
                        name=one["name"],
                        description=one.get("description") or "",
                        parameters=one.get("input_schema") or {},
                    )
                )
                for one in listed or ()
            )
        except (TypeError, KeyError, AttributeError, ValueError):
            raise HostFailed(f"{self._server} lists tools that cannot be read") from None

    async def _call_tools(self, calls: Sequence[ToolCall]) -> HostedStep:
        messages: list[Message] = []
        rewards: list[float] = []
        refused = True
        for call in calls:
            step = await self._call_tool(call.function.name, _read_arguments(call), call)
            refused = refused and step.refused
            messages += step.messages
            rewards += [] if step.reward is None else [step.reward]
            if step.is_over:
                return step.model_copy(update={"messages": tuple(messages), "reward": _add(rewards)})
        return HostedStep(messages=tuple(messages), reward=_add(rewards), refused=refused)

    async def _call_final_tool(self, words: str) -> HostedStep:
        tool = next((one for one in self.opening.tools if one.function.name == self._own.final_tool), None)
        properties = None if tool is None else tool.function.parameters.get("properties")
        first = list(properties)[:1] if isinstance(properties, dict) else []
        step = await self._call_tool(self._own.final_tool, dict.fromkeys(first, words), None)
        return step.model_copy(update={"done": True, "messages": ()})

    async def _call_tool(self, name: str, arguments: JsonValue, call: ToolCall | None) -> HostedStep:
        if not isinstance(arguments, dict):
            return HostedStep(messages=(_answer(call, "The arguments are no JSON object."),), refused=True)
        asked = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        answer = await self._ask({"type": "step", "data": asked})
        if self._is_models_fault(answer):
            return HostedStep(messages=(_answer(call, _describe_refusal(answer)),), refused=True)
        if _find_code(answer) == _ITS_FAULT:
            return HostedStep(failure=f"the tool {name} broke: {_describe_refusal(answer)}")
        data = self._require_observation(answer)
        return _build_step(data, (_answer(call, _show_result(data.get("observation"))),))

    # The wire

    async def _ask(self, frame: Object) -> Object:
        """The server's answer. HostFailed when there is none."""
        with _translate_errors(self._server):
            with contextlib.suppress(ConnectionError, RuntimeError):  # why it was closed may stand in what it sent last
                await self.socket.send_str(json.dumps(frame, allow_nan=False))
            received = await self.socket.receive()
            if received.data is None or isinstance(received.data, int | Exception):  # of a frame that ends the socket
                raise SessionLost(f"{self._server} closed the session")
            if not isinstance(received.data, str):
                raise HostFailed(f"{self._server} answered no text")
            answer = _read_object(received.data, self._server)
        if answer.get("type") == "error" and _find_code(answer) not in (_MODELS_FAULT, _ITS_FAULT):
            if _find_code(answer) == _FULL:
                raise HostFull(f"{self._server} has no free place")
            raise HostFailed(f"{self._server}: {_describe_refusal(answer)}")
        return answer

    def _is_models_fault(self, answer: Object) -> bool:
        code = _find_code(answer)
        return code == _MODELS_FAULT or (self._own.hands_back_errors and code == _ITS_FAULT)

    def _require_observation(self, answer: Object) -> Object:
        data = answer.get("data")
        if answer.get("type") != "observation" or not isinstance(data, dict):
            raise HostFailed(f"{self._server} gave no observation: {_describe_refusal(answer)}")
        return data

    def _show(self, observation: JsonValue) -> str:
        if self._own.observation_field:
            return _write_text(_follow(observation, self._own.observation_field))
        if not isinstance(observation, dict):
            return _write_text(observation)
        history = observation.get("messages")
        if isinstance(history, list) and history and all(isinstance(one, dict) and "content" in one for one in history):
            return self._show_new(_write_text(observation.get("prompt")), history)
        return _show_fields(observation)

    def _show_new(self, prompt: str, history: Sequence[Any]) -> str:
        """Some repeat all that was shown before, with more messages or in one that grows: only what is new is shown."""
        whole = "\n\n".join(_write_text(one["content"]) for one in history).strip()
        before, self._shown = self._shown, whole
        if not before:
            return whole if prompt.strip() in whole else f"{prompt}\n\n{whole}"
        new = whole.removeprefix(before)
        return new.strip() if new[:1].isspace() else whole


@contextlib.contextmanager
def _translate_errors(server: str) -> Iterator[None]:
    try:
        yield
    except HostFailed:
        raise
    except TimeoutError:
        raise
    except OSError as error:
        raise HostFailed(f"{server} could not be reached: {explain_connection(error)}") from error
    except (ValueError, RuntimeError) as error:
        raise HostFailed(f"{server} could not be reached: {type(error).__name__}") from error
    except Exception as error:
        import aiohttp

        if isinstance(error, aiohttp.ClientError):
            raise HostFailed(f"{server} could not be reached: {type(error).__name__}") from error
        raise


def _create_client(headers: Mapping[str, str]) -> Any:
    import aiohttp  # takes long to import, and most starts need none of it

    return aiohttp.ClientSession(
        headers=dict(headers),
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )


async def _read_body(response: Any) -> bytes:
    """No more than one byte beyond the bound, which `_read_object` then refuses: a stream is read in pieces."""
    body = b""
    while len(body) <= _MOST_BYTES and (piece := await response.content.read(_MOST_BYTES + 1 - len(body))):
        body += piece
    return body


def _read_object(text: str | bytes, where: str) -> Object:
    if len(text) > _MOST_BYTES:
        raise HostFailed(f"{where} answered more than {_MOST_BYTES} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise HostFailed(f"{where} answered no JSON") from None
    if not isinstance(value, dict):
        raise HostFailed(f"{where} answered no JSON object")
    return value


def _find_code(answer: Object) -> str:
    data = answer.get("data")
    code = data.get("code") if answer.get("type") == "error" and isinstance(data, dict) else ""
    return code if isinstance(code, str) else ""


_MOST_WORDS: Final = 2000


def _describe_refusal(answer: Object) -> str:
    data = answer.get("data")
    words = data.get("message") if isinstance(data, dict) else None
    details = data.get("errors") if isinstance(data, dict) else None
    said = f"{_write_text(words)}: {_write_text(details)}" if details else _write_text(words)
    return said[:_MOST_WORDS] or "it said nothing of the reason"


def _build_step(data: Object, messages: tuple[Message, ...]) -> HostedStep:
    reward = data.get("reward")
    if reward is not None and not _is_reward(reward):
        return HostedStep(failure="the environment's reward is no finite number")
    if any(len(message.content or "") > MOST_TEXT for message in messages):
        return HostedStep(failure=f"the environment showed more than {MOST_TEXT} characters")
    done = data.get("done") is True
    return HostedStep(messages=messages, done=done, reward=None if reward is None else float(reward))


def _is_reward(value: object) -> bool:
    # False for NaN too. `isfinite` would raise for a whole number of hundreds of digits.
    return isinstance(value, int | float) and abs(value) <= MOST_REWARD


def _add(rewards: Sequence[float]) -> float | None:
    return sum(rewards) if rewards else None


def _is_text(schema: JsonValue) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _read_action(message: Message) -> Object | None:
    """Of a call of `act`, or of a text that is one JSON object."""
    call = next((one for one in message.tool_calls if one.function.name == ACT), None)
    arguments = _parse(strip_thinking(message.content or "").text) if call is None else _read_arguments(call)
    return arguments if isinstance(arguments, dict) else None


def _read_arguments(call: ToolCall) -> JsonValue:
    arguments = call.function.arguments
    return _parse(arguments) if isinstance(arguments, str) else arguments


def _parse(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return value


def _answer(call: ToolCall | None, words: str) -> Message:
    if call is None:
        return Message(role="user", content=words)
    return Message(role="tool", content=words, tool_call_id=call.id)


def _show_result(observation: JsonValue) -> str:
    if not isinstance(observation, dict):
        return _write_text(observation) or _NOTHING
    error = observation.get("error")
    if error:
        return _write_text(error.get("message") if isinstance(error, dict) and error.get("message") else error)
    result = observation.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        texts = [_write_text(one.get("text")) for one in content if isinstance(one, dict) and "text" in one]
        return "\n".join(texts) or _NOTHING
    return _write_text(result) or _NOTHING


def _show_fields(observation: Mapping[str, JsonValue]) -> str:
    """The text that has a usual name, and below it all else that says something."""
    said = {name: value for name, value in observation.items() if name not in _BESIDE and value not in _SAYS_NOTHING}
    named = next((name for name in _TEXT_FIELDS if isinstance(said.get(name), str)), None)
    text = "" if named is None else _write_text(said.pop(named))
    return "\n\n".join(part for part in (text, _write_text(said) if said else "") if part)


def _follow(value: JsonValue, path: str) -> JsonValue:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _write_text(value: JsonValue) -> str:
    """Without lone surrogates, which nobody could store."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return replace_lone_surrogates(text)
