"""What a kind of foreign environment implements, and the environment that is made of it.

A kind is one file with one class, a `ForeignServer`: it says what the server is (`describe`) and opens sessions. A
session takes the model's messages and returns what the server answers. All else is here or in the service: tasks and
their digests, leases, the store, replays of lost sessions, calls in texts, scores. An environment with rows has its
tasks before a session is open. One without has seeds: its prompt is what a session begins with, and is frozen when the
task is handed out.

    openenv     a URL; sessions over its web socket
    nemo_gym    the URL of a resources server, and rows
    verifiers   a package in a child process with an interpreter of its own
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, Self

from pydantic import BaseModel, JsonValue

from app.domain.errors import EnvironmentUnavailable, HostFailed
from app.domain.hosting import HostedStep, ServerFacts
from app.domain.scores import Score
from app.domain.tasks import Completion, Context, FunctionCall, Message, Opening, Task, ToolCall, ToolSpec
from app.domain.values import NoParams, Split, digest
from app.ports.environment import Datasets, Environment, Tools
from app.ports.hosts import EpisodeHost, HostedSession, HostLimits, RewardRange
from app.toolkit.tool_calls.replies import read_text_calls

RULE_VERSION: Final = "1"
"""Of what this package does with a server's answers. A change in what is rewarded raises it."""
MOST_TEXT: Final = 256 * 1024
"""Characters of one message of a server; a longer one is a fault of the server."""


@dataclass(frozen=True)
class ForeignRow:
    """A task of a server that has a list of them. `hidden` is what the server needs to open and score it, answers
    included; nobody else sees it."""

    messages: tuple[Message, ...]
    hidden: JsonValue
    tools: tuple[ToolSpec, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Description:
    """What a server says of itself, when it was asked. Two equal digests mean the same tasks and the same rule, as far
    as the server tells."""

    digest: str
    version: str | None
    """None where the server names none, so that its rule may change unseen."""
    rows: Mapping[Split, Sequence[ForeignRow]] | None = None
    """None: the tasks are seeds, and endless. Those of a split are in a fixed order."""
    opens_prompt: bool = True
    """Whether the prompt is what a session begins with, so that one is opened when a task is handed out. False: a row
    has it all."""
    finishes: bool = True
    """Whether the end of an episode that is not done adds to its reward."""
    replayable: bool = False
    """Whether the same seed or row and the same messages brought the same answers twice, when it was tried."""
    notes: tuple[str, ...] = ()
    """What an operator should know, a sentence each."""


@dataclass(frozen=True)
class Start:
    """What a session is opened with. `seed` is the same for a task always; `hidden` is that of the row, and an object
    of a server without rows is sent to it in place of the seed."""

    split: Split
    index: int
    seed: int
    hidden: JsonValue = None


@dataclass(frozen=True)
class ForeignOptions:
    """What every kind has in the settings."""

    max_turns: int = 16
    sessions: int = 8
    deadline_seconds: float = 60.0
    idle_seconds: float = 600.0
    reward_range: tuple[float, float] = (0.0, 1.0)
    replay: bool | None = None
    """What the operator says of it; None for what was tried. False: its tools cost money or write elsewhere."""

    def can_replay(self, tried: bool) -> bool:
        """`tried`: whether two tries came out alike."""
        return tried if self.replay is None else self.replay


class ForeignServer(Protocol):
    """One configured environment. `open` and `close` are called by the service, in its event loop."""

    name: str
    kind: str
    options: ForeignOptions

    @property
    def settings_digest(self) -> str:
        """Of the settings that change tasks or rewards."""

    async def open(self) -> None:
        """Before first use. It waits for nothing: a server that is down is told by `describe`."""

    async def close(self) -> None: ...

    async def look(self) -> str:
        """What it says of itself, in brief: another text means that it was replaced, and is to be described anew. It is
        asked every few seconds. HostFailed where it is down."""

    def describe_blocking(self) -> Description:
        """Called in a thread, while the event loop of `open` runs. HostFailed where the server gives no answer."""

    async def open_session(self, start: Start) -> HostedSession:
        """HostFull where the server has no place; HostFailed where it gives no answer, or refuses."""


_TEST_SEEDS: Final = 2**30
"""Seeds of the test split begin here, beyond all that a training asks for. They fit 31 bits, as some servers want."""


def find_seed(split: Split, index: int) -> int:
    return index % _TEST_SEEDS + (_TEST_SEEDS if split == "test" else 0)


class ForeignEnvironment(Environment):
    """A configured environment. A class is made for each, since the service knows environments by class."""

    version: ClassVar[str] = RULE_VERSION
    multi_turn: ClassVar[bool] = True
    runs_elsewhere: ClassVar[bool] = True
    Params: ClassVar[type[BaseModel]] = NoParams
    server: ClassVar[ForeignServer]

    def __init__(self, description: Description) -> None:
        self.description = description

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        try:
            return cls(cls.server.describe_blocking())
        except HostFailed as error:
            raise EnvironmentUnavailable(error.detail) from error

    @property
    def origin(self) -> str:
        return self.server.kind

    @property
    def server_facts(self) -> ServerFacts:
        about, options = self.description, self.server.options
        return ServerFacts(
            kind=self.server.kind,
            server_version=about.version,
            rule="unverified" if about.version is None else "versioned",
            replayable=options.can_replay(about.replayable),
            notes=about.notes,
        )

    @property
    def digests(self) -> Mapping[str, str]:
        return {"server": self.description.digest, "settings": self.server.settings_digest}

    def size(self, split: Split, params: BaseModel) -> int | None:
        rows = self.description.rows
        return None if rows is None else len(rows.get(split, ()))

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        row = None if self.description.rows is None else self.description.rows[split][index]
        about: dict[str, JsonValue] = {"source": self.origin, "split": split, "index": index}
        return Task(
            messages=() if row is None or self.description.opens_prompt else row.messages,
            tools=() if row is None or self.description.opens_prompt else row.tools,
            max_turns=self.server.options.max_turns,
            metadata={**({} if row is None else row.metadata), **about},
            reference={"split": split, "index": index},
        )

    def place(self, task: Task, context: Context) -> Task:
        opening = context.opening
        if opening is None:
            return task
        metadata = {**opening.metadata, **task.metadata}
        return task.model_copy(update={"messages": opening.messages, "tools": opening.tools, "metadata": metadata})

    def find_host(self, task: Task) -> EpisodeHost:
        split: Split = "test" if task.metadata["split"] == "test" else "train"
        index = int(str(task.metadata["index"]))
        rows = self.description.rows
        start = Start(split, index, find_seed(split, index), None if rows is None else rows[split][index].hidden)
        opening = Opening(messages=task.messages, tools=task.tools) if task.messages else None
        return _Host(self.server, self.description, start, opening)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        raise HostFailed(f"{self.name} is scored where its episodes run")


@dataclass(frozen=True)
class _Host:
    """The host of one task."""

    foreign: ForeignServer
    description: Description
    begins: Start
    opening: Opening | None

    @property
    def server(self) -> str:
        return self.foreign.name

    @property
    def start(self) -> str:
        return digest([self.foreign.name, self.description.digest, self.begins.split, self.begins.index])

    @property
    def replayable(self) -> bool:
        return self.foreign.options.can_replay(self.description.replayable)

    @property
    def finishes(self) -> bool:
        return self.description.finishes

    @property
    def max_turns(self) -> int:
        return self.foreign.options.max_turns

    @property
    def limits(self) -> HostLimits:
        options = self.foreign.options
        return HostLimits(options.sessions, options.deadline_seconds, options.idle_seconds)

    @property
    def reward_range(self) -> RewardRange:
        return RewardRange(*self.foreign.options.reward_range)

    async def open(self) -> HostedSession:
        return _CallReader(await self.foreign.open_session(self.begins))


@dataclass(frozen=True)
class _CallReader:
    """A session that gets the calls in a message's text as calls of its own: many trainers send text alone."""

    session: HostedSession

    @property
    def opening(self) -> Opening:
        return self.session.opening

    async def step(self, message: Message) -> HostedStep:
        tools = self.opening.tools
        if not tools or message.tool_calls:
            return await self.session.step(message)
        reading = read_text_calls(message.content or "", tools)
        if reading.fault:
            words = f"The call cannot be read: {reading.fault}."
            return HostedStep(messages=(Message(role="user", content=words),), refused=True)
        if not reading.calls:
            return await self.session.step(message)
        calls = [FunctionCall(name=one.name, arguments=one.arguments) for one in reading.calls]
        update = {"content": reading.said, "tool_calls": tuple(ToolCall(function=one) for one in calls)}
        return await self.session.step(message.model_copy(update=update))

    async def finish(self) -> HostedStep:
        return await self.session.finish()

    async def close(self) -> None:
        await self.session.close()


def build_environment(server: ForeignServer) -> type[ForeignEnvironment]:
    """The class that the service serves under the server's name."""
    body: dict[str, Any] = {"name": server.name, "server": server, "__module__": type(server).__module__}
    return type(f"Foreign_{server.name}", (ForeignEnvironment,), body)
