"""Episodes that run on others' servers: open sessions, the answers that were stored, and scores made of them.

An answer is stored before anybody sees it, under the digest of its task and of all that the model said up to there. So
a repeated request, another replica, a re-score and the check of a transcript all see the answer that was given, and the
server is asked once. A session is found by the same digest. Where it was lost (a restart of either side, another
replica, a second completion with the same beginning) the messages are played again in a new one, and each answer is
compared with the stored one: where they differ the episode is `unscored: replay_diverged`, and never goes on as if
nothing had happened. A server that gives no answer is asked again by whoever steps again; it is never a 0.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import JsonValue

from app.domain.errors import HostFailed, HostFull, InvalidRequest, SessionLost
from app.domain.hosting import HostedStep, StoredSteps
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Context, Message, Opening, Turn
from app.domain.values import MOST_REWARD, digest
from app.ports.hosts import EpisodeHost, HostedSession, HostedStepStore, RewardRange, WatchedServer
from app.service.catalogue import Catalogue
from app.service.requests import SingleFlight
from app.toolkit.replay import score_forgery

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")

SWEEP_SECONDS: Final = 10.0
"""How often sessions that nobody steps any more are looked for."""
LOOK_SECONDS: Final = 15.0
"""How often servers are asked what they are."""
_END: Final = "end"
"""In the place of a message, in the key of what an episode adds that ends before it is done."""
_FAILURES_BEFORE_REST: Final = 5
_FULL_PAUSE_SECONDS: Final = 0.2
_REST_SECONDS: Final = 15.0
"""A server that failed so often in a row is asked nothing for so long: every request would wait for its deadline."""
_MOST_CRITERIA: Final = 32
_MOST_DIFFERENT: Final = 0.1
"""Where more of the episodes that were played again came out otherwise, no further one is played again."""


# Transcripts


@dataclass(frozen=True)
class HostedTranscript:
    """What the model said, what it claims to have seen after each, and the key of each answer."""

    task_id: str
    said: tuple[Message, ...]
    seen: tuple[tuple[Message, ...], ...]
    """Shorter by one than `said` where the last message awaits its answer, or is not followed by anything."""
    keys: tuple[str, ...]

    @classmethod
    def read(cls, task_id: str, host: EpisodeHost, messages: Sequence[Message]) -> "HostedTranscript":
        """InvalidRequest naming `messages[i]` for the first that is out of turn."""
        said: list[Message] = []
        seen: list[list[Message]] = []
        keys: list[str] = []
        key = task_id
        for index, message in enumerate(messages):
            if message.role == "assistant":
                if len(said) == host.max_turns:
                    raise InvalidRequest("the episode was over before", field=f"messages[{index}]")
                key = digest([key, _identify(message)])
                said.append(message)
                seen.append([])
                keys.append(key)
            elif not said:
                raise InvalidRequest("here the model speaks: an assistant message", field=f"messages[{index}]")
            else:
                seen[-1].append(message)
        return cls(task_id, tuple(said), tuple(map(tuple, seen)), tuple(keys))

    @property
    def end_key(self) -> str:
        return digest([self.keys[-1], _END])

    def lacks_answers(self, stored: StoredSteps) -> bool:
        """Whether one is not stored that the model went on after, or claims to have seen."""
        answered = self.keys if self.seen[-1] else self.keys[:-1]
        return any(key not in stored for key in answered)

    def require_stored(self, stored: StoredSteps) -> None:
        """InvalidRequest naming the first message that the environment did not send. The last one of the model need not
        be answered yet."""
        index = 0
        for number, key in enumerate(self.keys):
            index += 1
            last = number == len(self.keys) - 1
            step, seen = stored.get(key), self.seen[number]
            if step is None and not (last and not seen):
                raise InvalidRequest("the environment was not sent this message", field=f"messages[{index - 1}]")
            if step is None or (last and not seen):
                return
            if seen != step.messages:
                place = index + _count_equal(seen, step.messages)
                raise InvalidRequest("this is not what the environment sent here", field=f"messages[{place}]")
            if step.is_over and not last:
                raise InvalidRequest("the episode was over before", field=f"messages[{index + len(seen)}]")
            index += len(seen)


def _count_equal(some: Sequence[Message], others: Sequence[Message]) -> int:
    """At the beginning."""
    unequal = (place for place, (one, other) in enumerate(zip(some, others, strict=False)) if one != other)
    return next(unequal, min(len(some), len(others)))


def _identify(message: Message) -> JsonValue:
    """Without thoughts, which no environment sees."""
    return message.model_dump(mode="json", exclude={"reasoning_content"})


# Sessions


@dataclass(frozen=True)
class _Held:
    session: HostedSession
    since: float
    fresh: bool
    """Nothing was sent to it yet, so that another one does as well."""


@dataclass
class _Server:
    """The sessions of one server. Those in use and those held are never more than it allows."""

    name: str
    most: int
    places: asyncio.Semaphore
    idle_seconds: float
    held: OrderedDict[str, list[_Held]] = field(default_factory=OrderedDict)
    """By the key of the last message that each was sent, or by its start; the longest unused first."""
    in_use: int = 0
    failures: int = 0
    failed_at: float = 0.0
    rests_until: float = 0.0
    replays: bool = False
    """Whether a lost session can be had again by playing its messages again."""
    replayed: int = 0
    differed: int = 0
    """How many of those came out otherwise. Where many do, equal answers prove nothing: what was never shown may differ
    too."""

    @property
    def idle(self) -> int:
        return sum(map(len, self.held.values()))

    def note_failure(self, began: float) -> None:
        """Of a call that began then. Calls that were under way together when the server broke are one failure."""
        if began < self.failed_at:
            return
        self.failures, self.failed_at = self.failures + 1, time.monotonic()
        if self.failures >= _FAILURES_BEFORE_REST:
            self.rests_until = self.failed_at + _REST_SECONDS

    def note_difference(self, words: str) -> None:
        self.differed += 1
        if self.replays and self.differs_often:
            log.warning("%s is not played again any more: %s", self.name, words)
            self.replays = False

    @property
    def differs_often(self) -> bool:
        return self.differed > _MOST_DIFFERENT * self.replayed

    def take(self, key: str) -> HostedSession | None:
        held = self.held.pop(key, [])
        if not held:
            return None
        if held[1:]:
            self.held[key] = held[1:]
            self.held.move_to_end(key, last=False)
        return held[0].session

    def hold(self, key: str, session: HostedSession, *, fresh: bool) -> None:
        self.held.setdefault(key, []).append(_Held(session, time.monotonic(), fresh))
        self.held.move_to_end(key)

    def _pop_disposable(self) -> HostedSession | None:
        """The one that was not used for longest."""
        key = next((key for key, held in self.held.items() if held[0].fresh or self.replays), None)
        return None if key is None else self.take(key)

    async def give_up_one(self) -> bool:
        """Closes a session that can be had again; False where there is none."""
        if (session := self._pop_disposable()) is None:
            return False
        await session.close()
        return True

    def pop_unused(self, seconds: float) -> list[HostedSession]:
        """Those that nobody has used for so many seconds."""
        before = time.monotonic() - seconds
        keys = [key for key, held in self.held.items() for one in held if one.since <= before]
        return [session for key in keys if (session := self.take(key)) is not None]


@dataclass(frozen=True)
class _Move:
    """What is asked of a session next: the answer to the last message, or to the end of the episode."""

    host: EpisodeHost
    transcript: HostedTranscript
    ends: bool

    @property
    def before(self) -> int:
        """How many messages the session was sent before."""
        return len(self.transcript.said) - (not self.ends)

    @property
    def key(self) -> str:
        return self.transcript.end_key if self.ends else self.transcript.keys[-1]

    @property
    def held_key(self) -> str:
        """Under which a session waits for it."""
        return self.transcript.keys[self.before - 1] if self.before else self.host.start

    def ask(self, session: HostedSession) -> Awaitable[HostedStep]:
        return session.finish() if self.ends else session.step(self.transcript.said[-1])


class HostedEpisodes:
    """Steps and scores episodes, and keeps their sessions."""

    def __init__(self, steps: HostedStepStore) -> None:
        self._steps = steps
        self._servers: dict[str, _Server] = {}
        self._flights = SingleFlight[HostedStep]("an episode of a foreign environment could not be stepped")

    @property
    def open_sessions(self) -> int:
        return sum(server.in_use + server.idle for server in self._servers.values())

    async def open_all(self, hosts: Sequence[EpisodeHost]) -> list[Context]:
        """What the episodes begin with, in order. The sessions are held for whoever steps first. HostFailed."""
        return await asyncio.gather(*(self._open_for_prompt(host) for host in hosts))

    async def _open_for_prompt(self, host: EpisodeHost) -> Context:
        async with self._enter(host) as server:
            session = await self._open(server, host)
            server.hold(host.start, session, fresh=True)
        return Context(opening=session.opening)

    async def step(self, task_id: str, host: EpisodeHost, messages: Sequence[Message]) -> Turn:
        """What the environment answers to the last message. InvalidRequest for answers that it did not give; HostFailed
        where it gives none now."""
        transcript = HostedTranscript.read(task_id, host, messages)
        if not messages or messages[-1].role != "assistant":
            field_name = f"messages[{len(messages) - 1}]" if messages else "messages"
            raise InvalidRequest("the last message must be the model's", field=field_name)
        stored = await self._steps.find_steps(transcript.keys)
        transcript.require_stored(stored)
        step = stored.get(transcript.keys[-1]) or await self._play_once(host, transcript, stored)
        over = step.is_over or len(transcript.said) == host.max_turns
        return Turn(messages=() if over else step.messages, done=over)

    async def score(self, task_id: str, host: EpisodeHost, completions: Sequence[Completion]) -> list[Score]:
        """One for each, in order. Messages that were not stepped are sent now, and an episode that is not done ends
        here: it is scored as it stands. Never raises for what the server does."""
        ended: list[str] = []
        scores = await asyncio.gather(*(self._score_one(task_id, host, one, ended) for one in completions))
        await self._release(host, ended)
        return scores

    async def _score_one(self, task_id: str, host: EpisodeHost, completion: Completion, ended: list[str]) -> Score:
        messages = completion.messages or (Message(role="assistant", content=completion.answer),)
        try:
            transcript = HostedTranscript.read(task_id, host, messages)
            if not transcript.said:
                raise InvalidRequest("the model said nothing", field="messages")
            stored = dict(await self._steps.find_steps([*transcript.keys, transcript.end_key]))
            if transcript.lacks_answers(stored):
                # Pruned, or lost with the store's last moments. A model forges nothing: observations are the trainer's.
                return Score.unscored("replay_diverged", "an answer of the environment is not stored any more")
            transcript.require_stored(stored)
        except InvalidRequest as error:
            return score_forgery(error)
        try:
            await self._complete(host, transcript, stored)
        except HostFailed as error:
            return Score.unscored("environment_failed", error.detail)
        ended.append(transcript.keys[-1])
        steps = [stored[key] for key in (*transcript.keys, transcript.end_key) if key in stored]
        return score_steps(steps, host.reward_range)

    async def _complete(self, host: EpisodeHost, transcript: HostedTranscript, stored: dict[str, HostedStep]) -> None:
        last = transcript.keys[-1]
        if last not in stored:
            stored[last] = await self._play_once(host, transcript, stored)
        if host.finishes and not stored[last].is_over and transcript.end_key not in stored:
            stored[transcript.end_key] = await self._play_once(host, transcript, stored, ends=True)

    async def _release(self, host: EpisodeHost, ended: Sequence[str]) -> None:
        """Nobody steps an episode that was scored: what it held is free for others."""
        server = self._servers.get(host.server)
        held = [] if server is None else map(server.take, ended)
        await asyncio.gather(*(session.close() for session in held if session is not None))

    # One answer

    async def _play_once(
        self, host: EpisodeHost, transcript: HostedTranscript, stored: StoredSteps, *, ends: bool = False
    ) -> HostedStep:
        """Shielded: a step that was begun is finished and stored, also where whoever asked has left."""
        move = _Move(host, transcript, ends)
        flight = self._flights.find([move.key]).get(move.key)
        return await asyncio.shield(flight or self._flights.start([move.key], self._play(move, stored)))

    async def _play(self, move: _Move, stored: StoredSteps) -> HostedStep:
        async with self._enter(move.host) as server:
            began = time.monotonic()
            session = server.take(move.held_key)
            if session is not None:
                with suppress(SessionLost):  # while nobody used it or before it answered: it is played again
                    return await self._play_in(server, session, move)
            try:
                found = await self._reopen(server, move, stored)
                if isinstance(found, HostedStep):
                    return await self._steps.put(move.key, move.transcript.task_id, found)
                return await self._play_in(server, found, move)
            except SessionLost:
                server.note_failure(began)
                raise

    async def _play_in(self, server: _Server, session: HostedSession, move: _Move) -> HostedStep:
        try:
            step = _require_sound(await self._call(server, move.host, move.ask(session)))
            server.failures = 0  # a server may open sessions and answer no step
            kept = await self._steps.put(move.key, move.transcript.task_id, step)
        except BaseException:
            await session.close()
            raise
        if kept.is_over or move.ends or kept != step:  # another replica's session is where that answer came from
            await session.close()
        else:
            server.hold(move.key, session, fresh=False)
        return kept

    async def _reopen(self, server: _Server, move: _Move, stored: StoredSteps) -> HostedSession | HostedStep:
        """A session in which all that came before was played again; or why there is none."""
        host, transcript = move.host, move.transcript
        if move.before and not server.replays:
            words = "the session was lost, and this environment cannot be played again"
            return HostedStep(failure=words, diverged=True)
        session = await self._open(server, host)
        try:
            server.replayed += bool(move.before)
            if host.opening is not None and not _is_same_opening(session.opening, host.opening):
                await session.close()
                return _diverge(server, "another session of the same task began otherwise")
            for number in range(move.before):
                again = await self._call(server, host, session.step(transcript.said[number]))
                if not _is_same_answer(again, stored[transcript.keys[number]]):
                    await session.close()
                    words = f"message {number + 1} brought another answer when it was played again"
                    return _diverge(server, words)
        except BaseException:
            await session.close()
            raise
        return session

    async def _open(self, server: _Server, host: EpisodeHost) -> HostedSession:
        """Where there is no place, a held session gives way that can be had again. A server may have fewer places than
        the settings say, so it is asked until the deadline."""
        while server.in_use + server.idle > server.most:
            if not await server.give_up_one():
                raise HostFailed(f"all {server.most} sessions of {host.server} are in use")
        return await self._call(server, host, self._open_when_free(server, host))

    async def _open_when_free(self, server: _Server, host: EpisodeHost) -> HostedSession:
        while True:
            try:
                return await host.open()
            except SessionLost as error:  # it never was one
                raise HostFailed(error.detail) from error
            except HostFull:
                await server.give_up_one()
                await asyncio.sleep(_FULL_PAUSE_SECONDS)  # it takes a moment to notice that a session was closed

    async def _call(self, server: _Server, host: EpisodeHost, asked: Awaitable[AnswerT]) -> AnswerT:
        """With the deadline. HostFailed for whatever goes wrong."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(host.limits.deadline_seconds):
                answer = await asked
        except TimeoutError:
            server.note_failure(began)
            raise HostFailed(f"{host.server} gave no answer within {host.limits.deadline_seconds:g} seconds") from None
        except SessionLost:
            raise
        except HostFailed:
            server.note_failure(began)
            raise
        except Exception as error:  # a kind of environment must not let anything out but HostFailed
            log.exception("a foreign environment broke: %s", host.server)
            server.note_failure(began)
            raise HostFailed(f"{host.server} broke: {type(error).__name__}") from error
        return answer

    # Places

    @asynccontextmanager
    async def _enter(self, host: EpisodeHost) -> AsyncIterator[_Server]:
        """A place at the server: waits until there is one, for as long as a step may take."""
        server = self._find_server(host)
        if (rest := server.rests_until - time.monotonic()) > 0:
            times = f"{_FAILURES_BEFORE_REST} times in a row"
            raise HostFailed(f"{host.server} failed {times}; it is asked again in {rest:.0f} seconds")
        try:
            async with asyncio.timeout(host.limits.deadline_seconds):
                await server.places.acquire()
        except TimeoutError:
            raise HostFailed(f"all {server.most} sessions of {host.server} are in use") from None
        server.in_use += 1
        try:
            yield server
        finally:
            server.in_use -= 1
            server.places.release()

    def _find_server(self, host: EpisodeHost) -> _Server:
        limits = host.limits
        if host.server not in self._servers:
            places = asyncio.Semaphore(limits.sessions)
            self._servers[host.server] = _Server(host.server, limits.sessions, places, limits.idle_seconds)
        server = self._servers[host.server]
        server.replays = host.replayable and not server.differs_often
        return server

    def forget_difference(self, name: str) -> None:
        """The server was tried anew, so that one that came out otherwise before may be played again."""
        if name in self._servers:
            self._servers[name].differed = 0

    async def sweep_for_ever(self) -> None:
        """Closes sessions that nobody has stepped for long."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for server in tuple(self._servers.values()):  # others may come while a session is closed
                for session in server.pop_unused(server.idle_seconds):
                    await session.close()

    async def close(self) -> None:
        await self._flights.close()
        held = [session for server in self._servers.values() for session in server.pop_unused(0.0)]
        await asyncio.gather(*(session.close() for session in held))


def _diverge(server: _Server, words: str) -> HostedStep:
    server.note_difference(words)
    return HostedStep(failure=words, diverged=True)


def _is_same_answer(one: HostedStep, other: HostedStep) -> bool:
    """What the reward is made of may hold times and the like."""
    return (one.messages, one.done, one.reward) == (other.messages, other.done, other.reward)


def _is_same_opening(one: Opening, other: Opening) -> bool:
    return (one.messages, one.tools) == (other.messages, other.tools)


def _require_sound(step: HostedStep) -> HostedStep:
    """HostFailed for a reward that is no number, whatever went around validation."""
    if step.reward is not None and not _is_bounded(step.reward):
        raise HostFailed("the environment gave a reward that is no finite number")
    return step


def _is_bounded(reward: float) -> bool:
    return abs(reward) <= MOST_REWARD  # False for NaN too


# Servers that go and come


class ServerWatch:
    """Asks servers what they are, again and again. One that is down makes its environment unavailable, and one that was
    replaced is described anew: it may follow another rule."""

    def __init__(
        self, catalogue: Catalogue, servers: Sequence[WatchedServer], episodes: HostedEpisodes, seconds: float
    ) -> None:
        self._catalogue = catalogue
        self._episodes = episodes
        self._servers = servers
        self._seconds = seconds
        self._seen: dict[str, str] = {}

    async def run(self) -> None:
        """Each by itself: one that hangs keeps nobody from noticing that another is down."""
        await asyncio.gather(*map(self._watch, self._servers))

    async def _watch(self, server: WatchedServer) -> None:
        while True:
            await self._look(server)
            await asyncio.sleep(self._seconds)

    async def _look(self, server: WatchedServer) -> None:
        name = server.name
        try:
            brief = await server.look()
        except HostFailed as error:
            if self._catalogue.explain_unavailability(name) is None:
                log.warning("the server of %s is down: %s", name, error.detail)
            self._catalogue.note_down(name, error.detail)
            return
        except Exception:
            log.exception("the server of %s could not be looked at", name)
            return
        if self._seen.setdefault(name, brief) != brief or self._catalogue.explain_unavailability(name) is not None:
            await asyncio.to_thread(self._catalogue.look_again, name)
            self._episodes.forget_difference(name)
            self._seen[name] = brief


# Scores


def score_steps(steps: Sequence[HostedStep], within: RewardRange) -> Score:
    """The sum of the rewards that the server gave, unchanged. Unscored where it gave none or failed."""
    failed = next((step for step in steps if step.failure), None)
    if failed is not None:
        return Score.unscored("replay_diverged" if failed.diverged else "reward_missing", failed.failure)
    rewards = [step.reward for step in steps if step.reward is not None]
    if not rewards and all(step.refused for step in steps):
        words = "the environment was sent no action that it takes, so this is the least that `reward_range` names"
        return Score(outcome="scored", reward=within.least, gate=1.0, absolute=0.0, rationale=words)
    if not rewards:
        return Score.unscored("reward_missing", "the environment gave no reward for this episode")
    total = sum(rewards)
    if not _is_bounded(total):
        return Score.unscored("reward_missing", "the rewards of this episode add up to no finite number")
    return Score(
        outcome="scored",
        reward=total,
        gate=1.0,
        absolute=_place(total, within),
        criteria=_list_criteria(steps),
        rationale=_explain(steps, rewards),
    )


def _place(total: float, within: RewardRange) -> float | None:
    """Between 0 and 1; None outside of the stated range."""
    if not within.least <= total <= within.most:
        return None
    return (total - within.least) / (within.most - within.least)


def _list_criteria(steps: Sequence[HostedStep]) -> tuple[Criterion, ...]:
    """What the server's last word on its reward says it is made of, where that lies between 0 and 1."""
    parts = next((step.parts for step in reversed(steps) if step.parts), {})
    within = [(name, value) for name, value in parts.items() if 0.0 <= value <= 1.0]
    return tuple([Criterion(name=name, value=value, weight=0.0) for name, value in within[:_MOST_CRITERIA]])


def _explain(steps: Sequence[HostedStep], rewards: Sequence[float]) -> str:
    return f"the environment's own rewards, added up: {len(rewards)} of {len(steps)} answers had one"
