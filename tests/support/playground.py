"""Small environments that do as they are told, and a gateway over them that a test can stop, age and renew."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import httpx
from fastapi import FastAPI
from pydantic import BaseModel, SecretStr
from starlette.testclient import TestClient

from app.domain.errors import EnvironmentUnavailable, InvalidRequest, RetrieverFailed, VerifierFailed
from app.domain.judging import Case, Judgement, JudgeRequest, Rubric, RubricCriterion
from app.domain.scores import Score
from app.domain.tasks import Completion, Context, ContextQuery, Message, Passage, Task, Turn
from app.domain.values import Frozen, Split, digest
from app.judges.chat_judge import Script, ScriptedJudge
from app.judges.panel import ConfiguredPanels
from app.main.application import create_app
from app.main.gateway import build_gateway
from app.main.store import Store
from app.ports.environment import Datasets, Drafted, Environment, NoWorkers, Tools
from app.ports.retrieval import Retriever
from app.service.gateway import Gateway
from app.service.requests import HandedOutTask
from app.settings import RagSettings, Settings
from app.telemetry.metrics import NullObserver

READ_SECONDS = 60.0
WAIT = 20.0
"""Seconds after which what should have happened has not."""


@dataclass
class World:
    """What a test can change while the gateway runs, and what it can count."""

    moment: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    going_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Until it is set, scoring in `slow` does not end."""
    scorings: Counter[str] = field(default_factory=Counter)
    """Calls of an environment's scorer, by its name."""
    attempts: Counter[str] = field(default_factory=Counter)
    """Scorings that `slow_arena` has begun, and tries of words that fail at first."""
    retrievals: int = 0
    retrievals_at_once: int = 0
    """None ends before so many have begun."""
    enough_retrievals: asyncio.Event = field(default_factory=asyncio.Event)
    version: str = "1"
    data: str = "first"
    judge: str = "critic"
    broken: bool = True
    retriever_is_down: bool = False

    def now(self) -> datetime:
        return self.moment

    async def retrieve(self, query: ContextQuery) -> Context:
        """Never the same twice."""
        if self.retriever_is_down:
            raise RetrieverFailed("the retriever is down")
        self.retrievals += 1
        number = self.retrievals
        if self.retrievals >= self.retrievals_at_once:
            self.enough_retrievals.set()
        await self.enough_retrievals.wait()
        return Context(passages=(Passage(id=f"news-{number}", text=f"News {number}.", source="t"),))


def number_in(text: str) -> float:
    """What a completion earns: the number that it says, if it is one from 0 to 1."""
    with contextlib.suppress(ValueError):
        return value if 0 <= (value := float(text)) <= 1 else 0.0
    return 0.0


class ToyParams(Frozen):
    tone: str = "plain"


class Toy(Environment):
    """Four tasks to train on and two to test with."""

    name: ClassVar[str] = "toy"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = ToyParams
    stats_label: ClassVar[str | None] = "level"
    world: ClassVar[World]

    @property
    def digests(self) -> Mapping[str, str]:
        return {"data": digest(self.world.data)}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return 4 if split == "train" else 2

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        tone = ToyParams.model_validate(params.model_dump()).tone
        return Task(
            messages=(Message(role="user", content=f"Say a number in a {tone} tone. ({split} {index})"),),
            metadata={"number": index, "level": "hard" if index % 2 else "easy"},
            reference=f"secret {index}",
        )

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        self.world.scorings[self.name] += 1
        return [self.score_of(completion) for completion in group]

    def score_of(self, completion: Completion) -> Score:
        reward = number_in(completion.answer)
        return Score(outcome="scored", reward=reward, gate=1.0, absolute=reward)

    def is_first(self, task: Task, text: str) -> bool:
        self.world.attempts[f"{task.reference} {text}"] += 1
        return self.world.attempts[f"{task.reference} {text}"] == 1


class Drill(Toy):
    """Endless."""

    name: ClassVar[str] = "drill"
    scores_at_once: ClassVar[bool] = True

    def size(self, split: Split, params: BaseModel) -> int | None:
        return None


class Slow(Toy):
    """Waits until the world goes on; what says `fail` fails at once at the first try."""

    name: ClassVar[str] = "slow"

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        self.world.scorings[self.name] += 1
        if any(completion.answer == "fail" for completion in group) and self.is_first(task, "fail"):
            raise VerifierFailed("the verifier is out")
        try:
            await self.world.going_on.wait()
        except asyncio.CancelledError:
            self.world.scorings["cancelled"] += 1
            raise
        return [self.score_of(completion) for completion in group]


class Nap(Toy):
    """Takes as many seconds as the first completion says."""

    name: ClassVar[str] = "nap"

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        self.world.scorings[self.name] += 1
        await asyncio.sleep(number_in(group[0].answer))
        return [self.score_of(completion) for completion in group]


class Flaky(Toy):
    """What says `once` cannot be scored at the first try and earns 1 then; `break` breaks the scorer, `fail` fails it
    for the whole group, in the same way."""

    name: ClassVar[str] = "flaky"
    scores_at_once: ClassVar[bool] = True

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        self.world.scorings[self.name] += 1
        texts = [completion.answer for completion in group]
        if "break" in texts and self.is_first(task, "break"):
            raise ZeroDivisionError("a fault of the environment")
        if "fail" in texts and self.is_first(task, "fail"):
            raise VerifierFailed("the verifier is out")
        if "short" in texts:
            return []
        if "refuse" in texts:
            raise InvalidRequest("nobody who scores may say so")
        if "judge" in texts:
            case = Case(
                key="",
                rubric=Rubric(name="flaky", version="1", instructions="", criteria=()),
                document={},
                candidates=(),
            )
            return list((await tools.panel.judge(case)).scores)
        return [
            Score.unscored("verifier_killed", "took too long")
            if completion.answer == "once" and self.is_first(task, "once")
            else self.score_of(completion)
            for completion in group
        ]

    def score_of(self, completion: Completion) -> Score:
        return Score.exact(True) if completion.answer in {"once", "fail", "break"} else super().score_of(completion)


class ArenaDraft(Frozen):
    question: str


class Arena(Toy):
    """Judged. Whoever drafts a question can try it."""

    name: ClassVar[str] = "arena"
    Draft: ClassVar[type[BaseModel] | None] = ArenaDraft
    rubric: ClassVar[Rubric | None] = Rubric(
        name="arena",
        version="1",
        instructions="",
        criteria=(RubricCriterion(name="quality", weight=1.0, description="how good it is", anchors={}),),
    )

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        self.world.scorings[self.name] += 1
        (case,) = await self.build_cases(task, group)
        scores = (await tools.panel.judge(case)).scores
        if "break" in case.candidates:
            raise ZeroDivisionError("a fault of the environment")
        return list(scores)

    async def build_cases(self, task: Task, group: Sequence[Completion]) -> list[Case]:
        assert self.rubric is not None
        candidates = tuple(completion.answer for completion in group)
        return [Case(key=str(task.reference), rubric=self.rubric, document={}, candidates=candidates)]

    def draft(self, draft: BaseModel) -> Drafted:
        question = ArenaDraft.model_validate(draft.model_dump()).question
        if question == "break":
            raise ZeroDivisionError("a fault of the environment")
        return Drafted(self, Task(messages=(Message(role="user", content=question),), reference=question))


class SlowArena(Arena):
    name: ClassVar[str] = "slow_arena"

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        self.world.attempts[self.name] += 1
        await self.world.going_on.wait()
        return await super().score(task, group, tools)


class Ladder(Toy):
    """Three turns: the model says a number, the environment the next one; at 5 it is done."""

    name: ClassVar[str] = "ladder"
    multi_turn: ClassVar[bool] = True

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return super().task(split, index, params).model_copy(update={"max_turns": 3})

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        for place, message in enumerate(messages):
            expected = ("assistant", None) if place % 2 == 0 else ("user", self._next(messages[place - 1]))
            if (message.role, None if place % 2 == 0 else message.content) != expected:
                raise InvalidRequest("this is not what was observed", field=f"messages[{place}]")
        following = self._next(messages[-1])
        return Turn(messages=(Message(role="user", content=following),), done=following == "6")

    def turn_rewards(self, task: Task, messages: Sequence[Message]) -> Sequence[float | None]:
        """A quarter for each number but 2, of which nobody knows what it is worth."""
        said = [message.content for message in messages if message.role == "assistant"]
        return [None if number == "2" else 0.25 for number in said]

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [self._score_of(task, completion) for completion in group]

    def _score_of(self, task: Task, completion: Completion) -> Score:
        try:
            turn = self.step(task, completion.messages or ())
        except (InvalidRequest, IndexError):
            return Score.gated("forged_observation")
        return Score.exact(turn.done)

    def _next(self, said: Message) -> str:
        return str(int(said.content or "0") + 1)


class Tavern(Toy):
    """News is retrieved into its prompts."""

    name: ClassVar[str] = "tavern"

    def query(self, task: Task) -> ContextQuery | None:
        return ContextQuery(text=task.messages[-1].content or "", character="hob", world="valley")

    def place(self, task: Task, context: Context) -> Task:
        told = " ".join(passage.text for passage in context.passages)
        return task.model_copy(update={"messages": (Message(role="system", content=told), *task.messages)})


class Broken(Toy):
    """Its data cannot be read while the world says so."""

    name: ClassVar[str] = "broken"

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        if cls.world.broken:
            raise EnvironmentUnavailable("the folder is empty")
        return cls()


KINDS: tuple[type[Toy], ...] = (Toy, Drill, Slow, Nap, Flaky, Arena, SlowArena, Ladder, Tavern, Broken)


def environments(world: World) -> dict[str, type[Environment]]:
    """Bound to the world; its version and data are those of `toy`, `arena` and `broken` alike."""
    return {
        kind.name: cast("type[Environment]", type(kind.__name__, (kind,), {"world": world, "version": world.version}))
        for kind in KINDS
    }


def by_number(request: JudgeRequest, count: int) -> Mapping[str, float]:
    """The quality of a candidate is the number that it says."""
    return {candidate.id: number_in(candidate.text) for candidate in request.candidates}


class PaidJudge(ScriptedJudge):
    """A call costs `price`, and `most` at most. Without a price nobody can say what it may come to."""

    def __init__(
        self, script: Script, name: str, price: float | None, most: float | None, tokens: tuple[int, int] = (10, 5)
    ) -> None:
        super().__init__(script, name)
        self._price, self._most, self._tokens = price, most, tokens

    def compute_most(self, input_tokens: int) -> float | None:
        return self._most

    @property
    def longest_answer(self) -> int:
        return 0

    async def judge(self, request: JudgeRequest) -> Judgement:
        """Takes a moment, in which others may ask as well."""
        await asyncio.sleep(0.01)
        made = await super().judge(request)
        taken, given = self._tokens
        return made.model_copy(
            update={"calls": 1, "cost_usd": self._price, "input_tokens": taken, "output_tokens": given}
        )


def critic(request: JudgeRequest, count: int) -> Mapping[str, float] | str:
    """Fails before silence."""
    if any(candidate.text == "silence" for candidate in request.candidates):
        return "the judge fell asleep"
    return by_number(request, count)


def contrary(request: JudgeRequest, count: int) -> Mapping[str, float] | str:
    """Finds worst what others find best; fails before silence at first."""
    if count < 2 and any(candidate.text == "silence" for candidate in request.candidates):
        return "the judge fell asleep"
    return {name: 1 - quality for name, quality in by_number(request, count).items()}


def handed_out(number: int = 0, **known: object) -> HandedOutTask:
    """Without a lease, unless that is `known`."""
    given: dict[str, object] = {
        "lease_id": None,
        "environment": "toy",
        "messages": (),
        "tools": (),
        "max_turns": 1,
        "metadata": {},
    }
    made = {"task_id": f"task_{number:032x}", **given, "lease_expires_at": None, **known}
    return HandedOutTask.model_validate(made)


def panels(judge: str) -> ConfiguredPanels:
    script = critic if judge == "critic" else by_number
    judges = {judge: ScriptedJudge(script, judge), "contrarian": ScriptedJudge(contrary, "contrarian")}
    return ConfiguredPanels(judges, {}, fallback=(judge,))


def services(world: World, store: Store, judging: ConfiguredPanels | None = None) -> Gateway:
    """The gateway without its server, over the environments of `world`."""
    return build_gateway(
        classes=environments(world),
        store=store,
        panels=judging or panels(world.judge),
        workers=NoWorkers(),
        retriever=world,
        observer=NullObserver(),
        clock=world.now,
    )


def await_ready(client: TestClient, seconds: float = READ_SECONDS) -> None:
    """Of a gateway in this process. TimeoutError with what it says of itself."""
    until = time.monotonic() + seconds
    while (told := client.get("/readyz")).status_code != 200:
        if time.monotonic() > until:
            raise TimeoutError(f"the gateway did not get ready: {told.text}")
        time.sleep(0.005)


@contextlib.contextmanager
def serve_here(settings: Settings, *kinds: type[Environment], **parts: Any) -> Iterator[TestClient]:
    """A client of a gateway in this process with these environments, once it is ready."""
    app = create_app(settings, environments={kind.name: kind for kind in kinds}, **parts)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        await_ready(client)
        yield client


@contextlib.asynccontextmanager
async def started(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application in this process, once it is ready."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=READ_SECONDS) as client,
    ):
        async with asyncio.timeout(WAIT):
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110  # HTTP wakes nobody
                await asyncio.sleep(0.005)
        yield client


@contextlib.asynccontextmanager
async def gateway(
    world: World,
    database: Path | str,
    judging: ConfiguredPanels | None = None,
    *,
    rag: RagSettings | None = None,
    retriever: Retriever | None = None,
    api_key: str | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway over that file or URL, once it is ready. The world is its retriever, unless `rag` or
    `retriever` says otherwise. With an `api_key` the service needs keys, and the client sends that one."""
    url = database if isinstance(database, str) else f"sqlite:///{database}"
    app = create_app(
        Settings(database_url=url, rag=rag or RagSettings(), api_key=None if api_key is None else SecretStr(api_key)),
        environments=environments(world),
        panels=judging or panels(world.judge),
        retriever=retriever or (world if rag is None or rag.retriever == "worlds" else None),
        clock=world.now,
    )
    async with started(app) as client:
        if api_key is not None:
            client.headers["Authorization"] = f"Bearer {api_key}"
        yield client


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not true():  # noqa: ASYNC110  # what is waited for happens in the service, which tells nobody
            await asyncio.sleep(0.005)
