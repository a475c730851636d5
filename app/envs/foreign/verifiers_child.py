"""The program that runs verifiers' environments, in an interpreter that has the package `verifiers`. Standard library
and packages of that interpreter; nothing of the service is imported here.

It reads calls from stdin and answers on stdout, both lines of JSON: `{"id", "call", ...}` and `{"id", "result"}` or
`{"id", "error"}`. What packages print goes to stderr. It ends when stdin does.

An environment drives its model itself, and here the model is whoever calls. So its endpoint is a server on loopback
that parks each request until the next message of the model comes: `open` and `step` return when the next request is
parked, or when the episode is over. A task that is one prompt and rewards of the reply alone needs no episode: `score`.

A reward is what verifiers says of an episode that it calls sound, and anything else is a `failure` with the reason.
verifiers counts a missing reward as 0.0, in several places.
"""

import asyncio
import contextlib
import hashlib
import importlib
import importlib.metadata
import inspect
import itertools
import json
import logging
import math
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, Protocol

MOST_LINE: Final = 64 * 1024 * 1024
_MOST_REASON: Final = 500
_HARNESS: Final = "atropos_parked"
"""The name under which verifiers imports our harness."""
_SESSION_HEADER: Final = b"x-session-id"
_MODEL: Final = "policy"
_LONGEST_EPISODE: Final = 7 * 24 * 3600.0
"""Seconds. The time limits of tasks are for models that answer at once; here most of it is spent between messages."""

Json = dict[str, Any]


class Refused(Exception):
    """It cannot be served, with the reason."""


class Broken(Exception):
    """The episode has no reward, with the reason."""


def describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_MOST_REASON]


# The model's endpoint


class Parked:
    """A request for the model's next message."""

    def __init__(self, body: Json) -> None:
        self.messages = [_plain(message) for message in body.get("messages") or ()]
        self.tools: list[Json] = body.get("tools") or []
        self.answer: asyncio.Future[Json | None] = asyncio.get_running_loop().create_future()
        """A completion, or None: the episode ends before the model speaks again."""


def _plain(message: Json) -> Json:
    """As the service shows it: text, and calls of tools."""
    content = message.get("content")
    if isinstance(content, list):
        if any(part.get("type") != "text" for part in content):
            raise Broken("the environment shows something else than text, which is not served")
        content = "\n".join(part["text"] for part in content)
    plain = {"role": "system" if message["role"] == "developer" else message["role"], "content": content or ""}
    return {**plain, **{name: message[name] for name in ("tool_calls", "tool_call_id") if message.get(name)}}


class Endpoint:
    """OpenAI's chat completions on loopback, for clients of this process."""

    def __init__(self) -> None:
        self.url = ""
        self.sessions: dict[str, asyncio.Queue[Parked]] = {}
        """By the name that a request carries: in its header, or as the first part of its path."""

    async def open(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            while True:
                name, body = await _read_request(reader)
                completion = await self._answer(name, body)
                status = "200 OK" if completion is not None else "400 Bad Request"
                text = json.dumps(completion or {"error": {"message": "the episode has ended"}}).encode()
                head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
                writer.write(head.encode("ascii") + text)
                await writer.drain()
        writer.close()

    async def _answer(self, name: str, body: Json) -> Json | None:
        inbox = self.sessions.get(name)
        if inbox is None:
            return None
        parked = Parked(body)
        inbox.put_nowait(parked)
        return await parked.answer


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, Json]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    body = json.loads(await reader.readexactly(int(headers[b"content-length"])))
    name = headers.get(_SESSION_HEADER) or first.split(b" ")[1].split(b"/")[1]
    return name.decode("latin-1"), body


def build_completion(message: Json, number: int) -> Json:
    """The model's message as an answer of the API. `number` counts the messages of an episode."""
    calls = [
        {"type": "function", "id": call.get("id") or f"call_{number}_{place}", "function": _write_arguments(call)}
        for place, call in enumerate(message.get("tool_calls") or ())
    ]
    said = {"role": "assistant", "content": message.get("content"), **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    about = {"id": f"message-{number}", "object": "chat.completion", "created": 0, "model": _MODEL}
    return {**about, "choices": [choice], "usage": usage}


def _write_arguments(call: Json) -> Json:
    arguments = call["function"]["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"name": call["function"]["name"], "arguments": text}


class Episode:
    """One run of an environment, whose model is whoever steps it."""

    def __init__(self, run: Awaitable[Json], inbox: "asyncio.Queue[Parked]", leave: Callable[[], None]) -> None:
        """`run` ends with the reward. `leave` tells the environment that the model speaks no more."""
        self._run = asyncio.ensure_future(run)
        self._inbox = inbox
        self._leave = leave
        self._parked: Parked | None = None
        self.trouble = ""
        """Why what comes next cannot be shown."""
        self._known = 0
        """Messages of the conversation so far, the model's last one included."""
        self._replies = 0

    async def open(self) -> Json:
        shown = await self._advance()
        if "done" in shown:
            raise Broken(shown.get("failure") or "the episode ended before the model was asked anything")
        return {**shown, "tools": self._parked.tools if self._parked else []}

    async def step(self, message: Json) -> Json:
        self._replies += 1
        return await self._reply(build_completion(message, self._replies))

    async def finish(self) -> Json:
        self._leave()
        shown = await self._reply(None)
        while "done" not in shown:  # it asks again, although it was told
            shown = await self._reply(None)
        return shown

    async def close(self) -> None:
        self._run.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._run

    async def _reply(self, completion: Json | None) -> Json:
        if self._parked is None:
            raise Broken("the episode is over")
        self._parked.answer.set_result(completion)
        try:
            return await self._advance(ended=completion is None)
        except Broken as broken:
            await self.close()
            return {"messages": [], "done": True, "failure": str(broken)}

    async def _advance(self, *, ended: bool = False) -> Json:
        request = asyncio.ensure_future(self._inbox.get())
        try:
            await asyncio.wait({request, self._run}, return_when=asyncio.FIRST_COMPLETED)
            if request.done():
                return {"messages": self._show(request.result(), ended=ended)}
        finally:
            request.cancel()
        self._parked = None
        return {"messages": [], "done": True, **_conclude(self._run)}

    def _show(self, parked: Parked, *, ended: bool) -> list[Json]:
        """What is new. The conversation only grows: a rewritten one is not what the model was shown."""
        before, self._parked = self._parked, parked
        if ended:
            return []
        if self.trouble:
            raise Broken(self.trouble)
        if before is not None:
            if parked.messages[: self._known - 1] != before.messages or parked.tools != before.tools:
                raise Broken("the environment rewrote the conversation, which is not served")
            if [message["role"] for message in parked.messages[self._known - 1 : self._known]] != ["assistant"]:
                raise Broken("the environment left out what the model said, which is not served")
        new = parked.messages[self._known :]
        if before is not None and any(message["role"] == "assistant" for message in new):
            raise Broken("the environment spoke for the model, which is not served")
        self._known = len(parked.messages) + 1
        return new


def _conclude(run: "asyncio.Future[Json]") -> Json:
    if run.cancelled():
        return {"failure": "the episode was cancelled"}
    error = run.exception()
    if error is None:
        return run.result()
    return {"failure": str(error) if isinstance(error, Broken) else describe_error(error)}


def total_rewards(values: Mapping[str, float], total: float, parts: Mapping[str, Any]) -> Json:
    """Broken where there is none, or one that is no number."""
    if not values:
        raise Broken("the environment gave no reward")
    if not all(map(math.isfinite, (*values.values(), total))):
        raise Broken("the environment gave a reward that is no finite number")
    return {"reward": total, "parts": {name: value for name, value in parts.items() if _is_number(value)}}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# verifiers 0.4: task sets


class Package(Protocol):
    """What is served of a package, in either version of verifiers."""

    notes: list[str]

    @property
    def scores_alone(self) -> bool:
        """Whether a reply is scored without an episode."""

    def read_rows(self, most: int) -> Iterator[Json]:
        """Rows with what is hidden, and the prompt where it is known before an episode."""

    async def enter(self) -> None: ...

    async def score(self, hidden: Json, message: Json) -> Json: ...

    def start(self, name: str, hidden: Json) -> Episode: ...


def name_module(package: str) -> str:
    return package.rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_").lower()


class TasksetPackage:
    """A task set, with the environment that it brings or without. Its agent gets a harness that only talks: verifiers'
    own ones are programs that are installed when they run."""

    def __init__(self, package: str, args: Json, max_turns: int, endpoint: Endpoint) -> None:
        self._loaders = importlib.import_module("verifiers.v1.utils.loaders")
        self._vf = importlib.import_module("verifiers.v1")
        self._trace = importlib.import_module("verifiers.v1.trace")
        self._state = importlib.import_module("verifiers.v1.state")
        self._endpoint = endpoint
        self.notes: list[str] = []
        _register_harness(self._vf)
        if self._loaders.default_harness_id(package) != "bash":
            raise Refused(f"{package} brings a harness of its own, which is a program that drives the model itself")
        self._env = self._loaders.load_environment(self._configure(package, args, max_turns))
        self._task_type = type(self._env.taskset).task_type()
        if self._task_type.NEEDS_CONTAINER:
            raise Refused(f"the tasks of {package} need a container")
        self._scores_alone: bool | None = None

    def _configure(self, package: str, args: Json, max_turns: int) -> Any:
        agents = importlib.import_module("verifiers.v1.configs.agent").agent_config_fields
        config_type = self._loaders.env_config_type(package)
        taskset = {"id": package, **args}
        names = list(agents(self._loaders.resolve_env_config({"taskset": taskset})))
        if len(names) != 1:
            raise Refused(f"{package} is played by {len(names)} agents ({', '.join(names)}), and the service is one")
        agent = {
            "harness": {"id": _HARNESS},
            "runtime": {"type": "subprocess"},
            "max_turns": max_turns,
            "retries": {"max_retries": 0},
            "timeout": {"rollout": _LONGEST_EPISODE},
        }
        return config_type.model_validate({"taskset": taskset, names[0]: agent, "retries": {"max_retries": 0}})

    async def enter(self) -> None:
        self._serving = self._env.serving()  # kept: what is collected is closed
        await self._serving.__aenter__()

    @property
    def scores_alone(self) -> bool:
        return bool(self._scores_alone)

    def read_rows(self, most: int) -> Iterator[Json]:
        for place, task in enumerate(self._env.taskset.take(most)):
            hidden = task.data.model_dump(mode="json", exclude_none=True)
            self._require_servable(task, hidden, place)
            if self._scores_alone is None:
                self._scores_alone = self._can_score_alone(task)
            shows = self._scores_alone and task.data.prompt is not None
            yield {"hidden": hidden, "messages": self._list_prompt(task) if shows else []}
            if self._scores_alone and not shows:
                raise Refused(f"task {place} has no prompt, while others have")

    def _require_servable(self, task: Any, hidden: Json, place: int) -> None:
        data = task.data
        if data.image is not None or data.agent_user is not None:
            raise Refused(f"task {place} needs a container")
        if "*" not in data.network_allow or data.network_block:
            raise Refused(f"task {place} wants a network of its own, which needs a container")
        if self._rebuild(hidden).hash != task.hash:
            raise Refused(f"task {place} cannot be made again from its data")

    def _rebuild(self, hidden: Json) -> Any:
        data = self._task_type.data_type().model_validate(hidden)
        return self._task_type(data, self._env.taskset.config.task)

    def _can_score_alone(self, task: Any) -> bool:
        """Whether an episode is a prompt, a reply, and rewards that need nothing else. Every signal is looked at:
        verifiers leaves out those that want a runtime, and adds up the rest."""
        base, own = self._vf.Task, type(task)
        plain = (
            type(self._env) is self._vf.SingleAgentEnv
            and own.setup is base.setup
            and own.finalize is base.finalize
            and own.score is base.score
            and task.data.prompt is not None
            and not task.hooks("stop")
            and not importlib.import_module("verifiers.v1.utils.decorators").discover_decorated(task, "intercept")
            and not task.toolsets(task.config)
            and not self._env.taskset.toolsets(self._env.taskset.config)
        )
        signals = [*task.hooks("reward"), *task.hooks("metric"), *(judge.score for judge in task.plugged_judges())]
        return plain and not any("runtime" in _list_parameters(signal) for signal in signals)

    def _list_prompt(self, task: Any) -> list[Json]:
        wire = importlib.import_module("verifiers.v1.dialects.chat").message_to_wire
        return [_plain(wire(message)) for message in self._list_typed_prompt(task.data)]

    def _list_typed_prompt(self, data: Any) -> list[Any]:
        """As the harness sends it."""
        system = [] if data.system_prompt is None else [self._vf.SystemMessage(content=data.system_prompt)]
        prompt = [self._vf.UserMessage(content=data.prompt)] if isinstance(data.prompt, str) else list(data.prompt)
        return [*system, *prompt]

    async def score(self, hidden: Json, message: Json) -> Json:
        task = self._rebuild(hidden)
        trace = self._trace.Trace(
            task=self._trace.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            state=self._state.state_cls(type(task))(),
            agent=self._trace.AgentInfo(config=self._vf.AgentConfig(runtime={"type": "subprocess"})),
        )
        said = self._vf.AssistantMessage(content=message.get("content"))
        node = importlib.import_module("verifiers.v1.graph").MessageNode
        for one in (*self._list_typed_prompt(task.data), said):
            parent = len(trace.nodes) - 1 if trace.nodes else None
            trace.nodes.append(node(parent=parent, message=one, sampled=one is said))
        trace.stop("agent_completed")
        await task.score(trace)
        return _read_trace(trace)

    def start(self, name: str, hidden: Json) -> Episode:
        inbox: asyncio.Queue[Parked] = asyncio.Queue()
        traces: list[Any] = []

        def notice(trace: Any) -> None:
            if traces:
                episode.trouble = "the environment began a second conversation, which is not served"
            traces.append(trace)
            self._endpoint.sessions[trace.id] = inbox

        def leave() -> None:
            for trace in traces:
                trace.stop("max_turns")

        async def run() -> Json:
            client = self._vf.EvalClientConfig(base_url=f"{self._endpoint.url}/v1", api_key_var="NO_KEY")
            context = self._vf.ModelContext(model=_MODEL, client=client)
            try:
                slot = self._env.slots(self._rebuild(hidden))[0]
                return _read_episode(await self._env.run_slot(slot, context, on_trace=notice))
            finally:
                for trace in traces:
                    self._endpoint.sessions.pop(trace.id, None)

        episode = Episode(run(), inbox, leave)
        return episode


def _list_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _read_episode(episode: Any) -> Json:
    """Broken for all but an episode that is sound in every part."""
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok or not all(trace.ok for trace in episode.traces):
        raise Broken(f"{errors[-1].type}: {errors[-1].message}"[:_MOST_REASON] if errors else "the episode failed")
    if len(episode.traces) != 1:
        raise Broken(f"the episode has {len(episode.traces)} conversations, and the service plays one")
    trace = episode.traces[0]
    if trace.is_timeout:
        raise Broken(f"verifiers ended the episode by a time limit ({trace.stop_condition})")
    return _read_trace(trace)


def _read_trace(trace: Any) -> Json:
    missing = [name for name, reward in trace.rewards.items() if reward is None]
    if missing:
        raise Broken(f"the environment gave no reward for {', '.join(missing)}"[:_MOST_REASON])
    values = {name: reward.value for name, reward in trace.rewards.items()}
    scores = {name: reward.score for name, reward in trace.rewards.items()}
    return total_rewards(values, trace.reward, {**trace.metrics, **scores})


def _register_harness(vf: Any) -> None:
    """Makes a module that verifiers finds under `_HARNESS`, with a harness that only talks and calls tools."""
    module = ModuleType(_HARNESS)
    module.__dict__.update({"ParkedHarness": _build_harness(vf), "__all__": ["ParkedHarness"]})
    sys.modules[_HARNESS] = module


class Talk:
    """One run of the harness, which is verifiers' `null` in this process."""

    def __init__(self, endpoint: str, secret: str, gate: str | None) -> None:
        self._mcp = importlib.import_module("verifiers.v1.harnesses.utils.mcp")
        self._core = importlib.import_module("verifiers.v1.harnesses.utils.core")
        self._bound = importlib.import_module("verifiers.v1.harnesses.utils.compaction").bound_tool_message
        self._http = importlib.import_module("httpx")
        self._endpoint = endpoint
        self._secret = secret
        self._gate = gate
        """Where each call of a tool is asked about first."""

    async def run(self, model: str, messages: list[Json], servers: Mapping[str, str]) -> str:
        """Until the model calls no more tools; what went wrong, or nothing."""
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(self._http.AsyncClient(timeout=None))
            urls = {name: {"url": url} for name, url in servers.items()}
            tools, dispatch, open_servers = await self._mcp.connect_mcp({"mcpServers": urls}, stack)
            while True:
                body = {"model": model, "messages": messages, **({"tools": tools} if tools else {})}
                headers = {"Authorization": f"Bearer {self._secret}"}
                reply = await client.post(f"{self._endpoint}/chat/completions", json=body, headers=headers)
                if reply.status_code != self._http.codes.OK:
                    return reply.text or "the model gave no answer"
                said = reply.json()["choices"][0]["message"]
                messages.append({name: value for name, value in said.items() if value is not None})
                if not said.get("tool_calls"):
                    return ""
                for call in said["tool_calls"]:
                    messages.append(await self._call(client, call, dispatch, open_servers))

    async def _call(self, client: Any, call: Json, dispatch: Any, servers: Any) -> Json:
        function = call["function"]
        if self._gate is not None:
            asked = SimpleNamespace(id=call["id"], function=SimpleNamespace(**function))
            decision = await self._core.gate_tool_call(client, self._gate, self._secret, asked)
            if decision["action"] == "deny":
                denied: Json = self._bound(decision["message"])
                return denied
        content = await self._use(function["name"], function.get("arguments") or "{}", dispatch, servers)
        about = {"role": "tool", "tool_call_id": call["id"], "name": function["name"]}
        told: Json = self._bound({**about, "content": content})
        return told

    async def _use(self, name: str, text: str, dispatch: Any, servers: Any) -> Any:
        try:
            arguments = json.loads(text)
        except json.JSONDecodeError as error:
            return f"error: invalid JSON in tool arguments ({error}); resend the call with valid JSON"
        if not isinstance(arguments, dict):
            return f"error: tool arguments must be a JSON object, got {type(arguments).__name__}"
        if name not in dispatch:
            return f"error: unknown tool {name!r}"
        return await self._mcp.call_mcp(servers, dispatch, name, arguments)


def _build_harness(vf: Any) -> type:
    wire = importlib.import_module("verifiers.v1.dialects.chat").message_to_wire
    result = importlib.import_module("verifiers.v1.runtimes").ProgramResult

    class ParkedHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
        APPENDS_SYSTEM_PROMPT = True
        SUPPORTS_MCP = True
        SUPPORTS_RESUME = True
        SUPPORTS_TOOL_INTERCEPTION = True
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        async def launch(
            self,
            ctx: Any,
            trace: Any,
            runtime: Any,
            endpoint: str,
            secret: str,
            mcp_urls: dict[str, str],
            data: Any,
            tool_interception_url: str | None = None,
        ) -> Any:
            system, prompt = self.resolve_prompt(data)
            messages: list[Json] = [] if system is None else [{"role": "system", "content": system}]
            if isinstance(prompt, str):
                messages.append({"role": "user", "content": prompt})
            else:
                messages.extend(wire(message) for message in prompt or ())
            wrong = await Talk(endpoint, secret, tool_interception_url).run(ctx.model, messages, mcp_urls)
            return result(exit_code=1 if wrong else 0, stdout="", stderr=wrong)

    return ParkedHarness


# verifiers below 0.4: `load_environment`


class LegacyPackage:
    """An environment that `load_environment` returns, with a rubric. Its episodes run as they are."""

    scores_alone = False

    def __init__(self, package: str, args: Json, max_turns: int, endpoint: Endpoint) -> None:
        self._vf = importlib.import_module("verifiers")
        self._openai = importlib.import_module("openai")
        self._endpoint = endpoint
        self._env = self._vf.load_environment(package, **args)
        self.notes: list[str] = []
        self._errors: ContextVar[list[str]] = ContextVar("errors")
        """Of the episode in whose context a reward function runs."""
        for rubric in _list_rubrics(self._env.rubric):
            if any(rubric._is_group_func(function) for function in rubric.funcs):
                raise Refused(f"{package} scores a reply by its siblings, which is not served")
            rubric.logger = _Listener(self._note)
        self._max_turns = max_turns

    def _note(self, words: str) -> None:
        self._errors.get().append(words)

    async def enter(self) -> None:
        return

    def read_rows(self, most: int) -> Iterator[Json]:
        dataset = self._env.get_dataset()
        for row in itertools.islice(dataset, most):
            yield {"hidden": json.loads(json.dumps(row)), "messages": []}

    async def score(self, hidden: Json, message: Json) -> Json:
        raise Broken("it is scored in an episode")

    def start(self, name: str, hidden: Json) -> Episode:
        inbox: asyncio.Queue[Parked] = asyncio.Queue()
        self._endpoint.sessions[name] = inbox
        left = asyncio.Event()

        async def run() -> Json:
            url = f"{self._endpoint.url}/{name}/v1"
            sdk = self._openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=None)
            client = self._vf.OpenAIChatCompletionsClient(sdk)
            errors: list[str] = []
            self._errors.set(errors)
            try:
                output = await self._env.run_rollout(hidden, client, _MODEL, {})
                if left.is_set():
                    raise Broken("the episode ended early, and verifiers before 0.4 scores no such episode")
                return _read_output(output, errors)
            finally:
                self._endpoint.sessions.pop(name, None)
                await sdk.close()

        return Episode(run(), inbox, left.set)


class _Listener(logging.LoggerAdapter):  # type: ignore[type-arg]
    """In the place of a rubric's logger: that is where the error of a reward function goes, which counts as 0.0."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.getLogger("rubric"), {})
        self._note = note

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        self._note(str(msg))
        super().error(msg, *args, **kwargs)


def _list_rubrics(rubric: Any) -> Iterator[Any]:
    yield rubric
    for inner in getattr(rubric, "rubrics", ()):
        yield from _list_rubrics(inner)


def _read_output(output: Mapping[str, Any], reported: list[str]) -> Json:
    """The error before the reward: beside an error there is a number all the same."""
    if error := output.get("error"):
        words = error.get("error_chain_str") if isinstance(error, dict) else None
        raise Broken(str(words or error)[:_MOST_REASON])
    if reported:
        raise Broken(reported[-1][:_MOST_REASON])
    reward = output.get("reward")
    if not isinstance(reward, int | float) or isinstance(reward, bool):
        raise Broken("the environment gave no reward")
    return total_rewards({"reward": float(reward)}, float(reward), output.get("metrics") or {})


# Calls


def load_package(package: str, args: Json, max_turns: int, endpoint: Endpoint) -> Package:
    version = importlib.metadata.version("verifiers")
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    kind = LegacyPackage if parts < (0, 4) else TasksetPackage
    return kind(package, args, max_turns, endpoint)


def identify(package: str) -> Json:
    """Its version, and a digest of its sources: a folder has no version."""
    module = sys.modules.get(name_module(package))
    names = importlib.metadata.packages_distributions().get(name_module(package), [])
    file = getattr(module, "__file__", None)
    sources = hashlib.sha256()
    if file is not None:
        root = Path(file).parent if Path(file).name == "__init__.py" else None
        for path in sorted(root.rglob("*.py")) if root else [Path(file)]:
            sources.update(path.read_bytes() + b"\0")
    return {
        "version": importlib.metadata.version(names[0]) if names else None,
        "sources": sources.hexdigest(),
        "verifiers": importlib.metadata.version("verifiers"),
    }


class Calls:
    """What the service may call."""

    def __init__(self) -> None:
        self._endpoint = Endpoint()
        self._package: Package | None = None
        self._rows: list[Json] = []
        self._episodes: dict[str, Episode] = {}
        self._names = itertools.count()

    @property
    def _loaded(self) -> Package:
        if self._package is None:
            raise Refused("nothing was loaded")
        return self._package

    async def ping(self) -> Json:
        return {}

    async def load(self, package: str, args: Json, max_turns: int) -> Json:
        await self._endpoint.open()
        self._package = load_package(package, args, max_turns, self._endpoint)
        await self._package.enter()
        return identify(package)

    async def read(self, most: int) -> Json:
        self._rows = list(self._loaded.read_rows(most))
        return {"count": len(self._rows), "scores_alone": self._loaded.scores_alone, "notes": self._loaded.notes}

    async def rows(self, start: int, count: int) -> list[Json]:
        return self._rows[start : start + count]

    async def score(self, hidden: Json, message: Json) -> Json:
        try:
            return {"messages": [], "done": True, **await self._loaded.score(hidden, message)}
        except Broken as broken:
            return {"messages": [], "done": True, "failure": str(broken)}
        except Exception as error:
            return {"messages": [], "done": True, "failure": describe_error(error)}

    async def open(self, hidden: Json) -> Json:
        name = f"session-{next(self._names)}"
        episode = self._loaded.start(name, hidden)
        try:
            shown = await episode.open()
        except BaseException:
            await episode.close()
            raise
        self._episodes[name] = episode
        return {"session": name, **shown}

    async def step(self, session: str, message: Json) -> Json:
        return await self._find(session).step(message)

    async def finish(self, session: str) -> Json:
        return await self._find(session).finish()

    async def close(self, session: str) -> Json:
        episode = self._episodes.pop(session, None)
        if episode is not None:
            await episode.close()
        return {}

    def _find(self, session: str) -> Episode:
        if session not in self._episodes:
            raise Refused("there is no such session")
        return self._episodes[session]


CALLS: Final = ("ping", "load", "read", "rows", "score", "open", "step", "finish", "close")


async def answer(calls: Calls, request: Json) -> Json:
    number, name = request.pop("id"), request.pop("call")
    if name not in CALLS:
        return {"id": number, "error": f"there is no call {name}"}
    try:
        return {"id": number, "result": await getattr(calls, name)(**request)}
    except (Refused, Broken) as error:
        return {"id": number, "error": str(error)}
    except (Exception, SystemExit) as error:  # whatever a package raises
        logging.getLogger(__name__).exception("a call failed: %s", name)
        return {"id": number, "error": describe_error(error)}


async def read_lines(file: Any) -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(limit=MOST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    while line := await reader.readline():
        yield line


async def serve(calls: Any, orders: int, answers: int) -> None:
    """Answers until the orders end, many at once. `calls` has a method for each of CALLS."""
    running: set[asyncio.Task[None]] = set()

    async def respond(request: Json) -> None:
        told = await answer(calls, request)
        write_line(answers, told)

    async for line in read_lines(os.fdopen(orders, "rb", buffering=0)):
        task = asyncio.create_task(respond(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


def write_line(answers: int, told: Json) -> None:
    try:
        text = json.dumps(told, allow_nan=False)
    except (TypeError, ValueError) as error:
        text = json.dumps({"id": told["id"], "error": f"the answer is no JSON: {error}"[:_MOST_REASON]})
    left = memoryview(text.encode() + b"\n")
    while left:
        left = left[os.write(answers, left) :]


def take_streams() -> tuple[int, int]:
    """Copies of stdin and stdout that no process started from here gets. What packages print goes to stderr."""
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return orders, answers


def run() -> None:
    orders, answers = take_streams()
    asyncio.run(serve(Calls(), orders, answers))
    os._exit(0)  # threads and exit handlers of packages need not agree


if __name__ == "__main__":
    run()
