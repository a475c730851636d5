"""Environments of the package `verifiers`, in a child process with an interpreter of their own.

    verifiers 0.4     task sets, with the environment that they bring or without
    verifiers < 0.4   what `load_environment` returns

Tasks are rows, read once. A task that is one prompt, and whose rewards look at the reply alone, is scored without a
session. All others are episodes that the environment runs itself in the child, where the model's endpoint waits for our
messages (`verifiers_child`); they are lost with the child, and played again. Not served: what needs containers, agents
besides the model, harnesses of a package's own, images, and rewards that compare siblings.

The child runs in a jail (`app.ports.children`). That keeps the service's files, secrets and network from it, and not
its answers from being wrong: whoever configures a package trusts its rewards.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue, ValidationError

from app.domain.errors import HostFailed
from app.domain.hosting import HostedStep
from app.domain.tasks import FunctionSpec, Message, Opening, ToolSpec
from app.domain.values import Split, digest, digest_in_pieces
from app.envs.foreign.child import ChildKeeper, RunningChild
from app.envs.foreign.contract import MOST_TEXT, Description, ForeignOptions, ForeignRow, Start
from app.ports.children import ChildProgram, Children
from app.ports.hosts import HostedSession

CHILD: Final = Path(__file__).with_name("verifiers_child.py")
_PAGE: Final = 200
"""Rows of one answer."""
_LOAD_SECONDS: Final = 300.0
"""For loading a package, and for reading its tasks."""
_PROBE: Final = Message(role="assistant", content="A reply that tries whether an episode can be played again.")
_MOST_PARTS: Final = 64
_MOST_REASON: Final = 500
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


@dataclass(frozen=True)
class VerifiersOptions:
    args: Mapping[str, JsonValue] = field(default_factory=dict)
    """Fields of the task set's config; arguments of `load_environment` before verifiers 0.4."""
    folders: tuple[Path, ...] = ()
    """What the child may read besides. They are where its modules are looked for first."""
    variables: tuple[str, ...] = ()
    """Names of the service's variables that the child gets."""
    tasks: int = 10_000
    """Read so many at most."""
    test: int = 0
    """How many of the tasks, the last ones, are the test split."""
    trusted: bool = False
    memory_mb: int = 8192


@dataclass(frozen=True)
class _Read:
    """What was read of a package."""

    rows: Mapping[Split, Sequence[ForeignRow]]
    scores_alone: bool
    description: Description


class VerifiersServer:
    """Tasks of a package for the library verifiers."""

    kind = "verifiers"

    def __init__(
        self,
        name: str,
        package: str,
        python: Path,
        options: ForeignOptions,
        own: VerifiersOptions,
        children: Children,
        program: Path = CHILD,
    ) -> None:
        """`package` is the module that exports the task set, or that has `load_environment`; `python` the interpreter
        of a virtual environment with it and verifiers."""
        self.name = name
        self.options = options
        self._package = package
        self._own = own
        child = ChildProgram(
            interpreter=python,
            file=program,
            folders=own.folders,
            settings=_OFFLINE,
            variables=own.variables,
            memory_mb=own.memory_mb,
            trusted=own.trusted,
        )
        self._keeper = ChildKeeper(name, children, child, self._load)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._identity: JsonValue = None
        """Of the package, as the child that runs now has it."""
        self._read: _Read | None = None

    @property
    def settings_digest(self) -> str:
        own = self._own
        return digest([self.kind, self._package, dict(own.args), own.tasks, own.test, self.options.max_turns])

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._keeper.open()

    async def close(self) -> None:
        await self._keeper.close()

    async def look(self) -> str:
        await self._keeper.find(self.options.deadline_seconds)
        return digest(self._identity)

    def describe_blocking(self) -> Description:
        if self._loop is None:
            raise HostFailed(f"{self.name} is not open")
        return asyncio.run_coroutine_threadsafe(self._describe(), self._loop).result()

    async def open_session(self, start: Start) -> HostedSession:
        if self._read is None:
            raise HostFailed(f"{self.name} was not read yet")
        return await self._open_session(self._read.scores_alone, self._read.rows[start.split][start.index])

    async def _load(self, running: RunningChild) -> None:
        """In each new child."""
        arguments: dict[str, JsonValue] = {"package": self._package, "args": dict(self._own.args)}
        told = await running.call("load", _LOAD_SECONDS, max_turns=self.options.max_turns, **arguments)
        self._identity = told

    # Tasks

    async def _describe(self) -> Description:
        running = await self._keeper.find(_LOAD_SECONDS)
        told = _require_object(await self._keeper.call("read", _LOAD_SECONDS, of=running, most=self._own.tasks))
        count, alone = told.get("count"), told.get("scores_alone")
        if not isinstance(count, int) or not isinstance(alone, bool):
            raise HostFailed(f"{self.name} did not say how many tasks it has")
        rows: list[ForeignRow] = []
        while len(rows) < count:
            page = await self._keeper.call("rows", _LOAD_SECONDS, of=running, start=len(rows), count=_PAGE)
            if not isinstance(page, list) or not page:
                raise HostFailed(f"{self.name} gave {len(rows)} of its {count} tasks")
            rows += [_read_row(one) for one in page]
        if not rows:
            raise HostFailed(f"{self.name} has no tasks")
        first = len(rows) - min(self._own.test, len(rows))
        split: dict[Split, Sequence[ForeignRow]] = {"train": rows[:first], "test": rows[first:]}
        description = await self._build_description(rows, split, alone)
        self._read = _Read(split, alone, description)
        return description

    async def _build_description(
        self, rows: Sequence[ForeignRow], split: Mapping[Split, Sequence[ForeignRow]], alone: bool
    ) -> Description:
        contents: JsonValue = [
            [[message.model_dump(mode="json") for message in row.messages], row.hidden] for row in rows
        ]
        content = await asyncio.to_thread(digest_in_pieces, [self._identity, contents])
        replayable, notes = await self._try_replay(alone, rows[0], content)
        identity = _require_object(self._identity)
        version = identity.get("version")
        return Description(
            digest=content,
            version=version if isinstance(version, str) else None,
            rows=split,
            replayable=replayable,
            opens_prompt=not alone,
            notes=notes,
        )

    async def _try_replay(self, alone: bool, row: ForeignRow, content: str) -> tuple[bool, tuple[str, ...]]:
        """Plays one task twice with one reply, unless these tasks were tried before."""
        if self._read is not None and self._read.description.digest == content:
            return self._read.description.replayable, self._read.description.notes
        if self.options.replay is not None:
            return self.options.replay, ()
        one, other = await asyncio.gather(self._probe(alone, row), self._probe(alone, row))
        notes = []
        if one != other:
            notes.append("The same task and reply brought other answers: its episodes cannot be played again.")
        if one[1].failure:
            notes.append(f"A first reply was not scored: {one[1].failure}")
        return one == other, tuple(notes)

    async def _probe(self, alone: bool, row: ForeignRow) -> tuple[Opening, HostedStep]:
        session = await self._open_session(alone, row)
        try:
            return session.opening, await session.step(_PROBE)
        finally:
            await session.close()

    # Sessions

    async def _open_session(self, alone: bool, row: ForeignRow) -> "_ReplySession | _EpisodeSession":
        running = await self._keeper.find(self.options.deadline_seconds)
        caller = _Caller(self._keeper, running, self.options.deadline_seconds)
        if alone:
            return _ReplySession(caller, row)
        told = _require_object(await caller.call("open", hidden=row.hidden))
        session, tools = told.get("session"), told.get("tools")
        if not isinstance(session, str) or not isinstance(tools, list):
            raise HostFailed(f"{self.name} opened no session")
        opening = Opening(messages=_read_messages(told), tools=tuple(map(_read_tool, tools)))
        return _EpisodeSession(caller, session, opening)


@dataclass(frozen=True)
class _Caller:
    """Calls of the child that has the session."""

    keeper: ChildKeeper
    running: RunningChild
    seconds: float

    async def call(self, name: str, **arguments: JsonValue) -> JsonValue:
        return await self.keeper.call(name, self.seconds, of=self.running, **arguments)


@dataclass(frozen=True)
class _ReplySession:
    """A task that is done with one reply. The child keeps nothing."""

    caller: _Caller
    row: ForeignRow

    @property
    def opening(self) -> Opening:
        return Opening(messages=self.row.messages, tools=self.row.tools)

    async def step(self, message: Message) -> HostedStep:
        return _read_step(await self.caller.call("score", hidden=self.row.hidden, message=_write_message(message)))

    async def finish(self) -> HostedStep:
        return HostedStep(done=True, failure="the model said nothing")

    async def close(self) -> None:
        return


@dataclass(frozen=True)
class _EpisodeSession:
    """An episode that waits in the child."""

    caller: _Caller
    session: str
    opening: Opening

    async def step(self, message: Message) -> HostedStep:
        return _read_step(await self.caller.call("step", session=self.session, message=_write_message(message)))

    async def finish(self) -> HostedStep:
        return _read_step(await self.caller.call("finish", session=self.session))

    async def close(self) -> None:
        try:
            await self.caller.call("close", session=self.session)
        except HostFailed:
            return  # it went with its child


# What the child sends, which is a stranger's


def _require_object(told: JsonValue) -> Mapping[str, Any]:
    if not isinstance(told, dict):
        raise HostFailed("the child gave an answer that cannot be read")
    return told


def _read_row(told: JsonValue) -> ForeignRow:
    row = _require_object(told)
    return ForeignRow(messages=_read_messages(row), hidden=row.get("hidden"))


def _read_messages(told: Mapping[str, Any]) -> tuple[Message, ...]:
    messages = told.get("messages")
    if not isinstance(messages, list):
        raise HostFailed("the child sent no messages")
    try:
        read = tuple(Message.model_validate(message) for message in messages)
    except ValidationError as error:
        raise HostFailed(f"the child sent a message that cannot be read: {error.errors()[0]['msg']}") from None
    if sum(len(message.model_dump_json()) for message in read) > MOST_TEXT:
        raise HostFailed(f"the environment sent messages of more than {MOST_TEXT} characters")
    return read


def _read_tool(told: JsonValue) -> ToolSpec:
    function = _require_object(_require_object(told).get("function"))
    fields = {name: function[name] for name in FunctionSpec.model_fields if function.get(name) is not None}
    if len(str(fields)) > MOST_TEXT:
        raise HostFailed(f"the environment offered a tool of more than {MOST_TEXT} characters")
    try:
        return ToolSpec(function=FunctionSpec.model_validate(fields))
    except ValidationError as error:
        raise HostFailed(f"the child offered a tool that cannot be read: {error.errors()[0]['msg']}") from None


def _read_step(told: JsonValue) -> HostedStep:
    step = _require_object(told)
    if not isinstance(step.get("reward"), int | float | None):
        raise HostFailed("the environment gave a reward that is no number")
    fields = {name: step[name] for name in ("done", "reward") if name in step}
    parts = dict(islice(_require_object(step.get("parts", {})).items(), _MOST_PARTS))
    failure = str(step.get("failure", ""))[:_MOST_REASON]
    try:
        return HostedStep.model_validate(
            {**fields, "parts": parts, "failure": failure, "messages": _read_messages(step)}
        )
    except ValidationError as error:
        raise HostFailed(f"the environment gave an answer that cannot be read: {error.errors()[0]['msg']}") from None


def _write_message(message: Message) -> JsonValue:
    """Without thoughts, which no environment sees."""
    written: JsonValue = message.model_dump(mode="json", exclude={"reasoning_content"})
    return written
