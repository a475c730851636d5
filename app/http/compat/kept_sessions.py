"""Episodes in the store: their clients send one call or one reply at a time, to any replica."""

from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from app.domain.errors import Conflict, NotFound, Unavailable
from app.domain.tasks import FunctionCall, KeptEpisode, Message, ToolCall, is_truncated
from app.ports.store import EpisodeStore
from app.service.request_models import StepRequest
from app.service.stepping import EpisodeStepper
from app.service.task_cache import TaskCache

_TRIES: Final = 20
OVER: Final = "The episode is over: nothing more is carried out."
NOTED: Final = "Noted. This task is answered by the calls themselves: nothing is carried out."


@dataclass(frozen=True)
class PlayedStep:
    """An episode after a message of the model."""

    before: KeptEpisode
    after: KeptEpisode
    observed: tuple[Message, ...]
    done: bool


@dataclass(frozen=True)
class KeptSessions:
    store: EpisodeStore
    stepper: EpisodeStepper
    cache: TaskCache

    async def begin(self, session: str, task_id: str) -> None:
        """Conflict for one that was closed or plays another task."""
        known = await self.store.begin(session, KeptEpisode(task_id=task_id))
        if known.closed or known.task_id != task_id:
            raise Conflict("this session was closed, or plays another task", field="resources_session_id")

    async def close(self, session: str) -> None:
        """Also one that is unknown: it cannot begin afterwards."""
        known = await self.store.begin(session, KeptEpisode(task_id="", closed=True))
        while not known.closed and not await self.store.change(session, known, known.change(closed=True)):
            known = await self.find(session)

    async def call(self, environment: str, session: str, tool: str, arguments: JsonValue) -> PlayedStep:
        """Carries out one call."""
        for _ in range(_TRIES):
            before = await self.find(session)
            place = sum(one.role == "assistant" for one in before.messages)
            call = ToolCall(id=f"call_{place}", function=FunctionCall(name=tool, arguments=arguments))
            said = Message(role="assistant", tool_calls=(call,))
            played = await self._play(environment, before, said, "")
            if await self.store.change(session, before, played.after):
                return played
        raise Unavailable("too many calls of this session at once")

    async def take_back(self, session: str, played: PlayedStep) -> None:
        """A call whose result was not taken, which will come again."""
        await self.store.change(session, played.after, played.after.change(messages=played.before.messages))

    async def step(
        self, environment: str, session: str, said: Message, finish_reason: str, fingerprint: str
    ) -> PlayedStep:
        """Plays one message. One that comes again, since its answer was lost, is answered as it was."""
        before = await self.find(session)
        if before.last == fingerprint:
            last = max(place for place, one in enumerate(before.messages) if one.role == "assistant")
            earlier = before.model_copy(update={"messages": before.messages[:last]})
            return await self._advance(environment, earlier, before.messages[last], finish_reason, fingerprint)
        if before.closed:
            raise Conflict(OVER)
        played = await self._advance(environment, before, said, finish_reason, fingerprint)
        if not await self.store.change(session, before, played.after):
            raise Conflict("another message of this session is being played")
        return played

    async def end(self, session: str, said: Message, fingerprint: str) -> PlayedStep:
        """Takes a message as the last one. One that comes again is answered as it was."""
        before = await self.find(session)
        if before.last == fingerprint:
            return PlayedStep(before, before, (), done=True)
        return await self._append(session, before, said, fingerprint, closed=True)

    async def note(self, session: str, said: Message, fingerprint: str) -> PlayedStep:
        """Takes a message that is carried out by nobody."""
        before = await self.find(session)
        if before.last == fingerprint:
            return PlayedStep(before, before, (), done=False)
        return await self._append(session, before, said, fingerprint, closed=False)

    async def _append(
        self, session: str, before: KeptEpisode, said: Message, fingerprint: str, *, closed: bool
    ) -> PlayedStep:
        if before.closed:
            raise Conflict(OVER)
        after = before.change(messages=(*before.messages, said), last=fingerprint, closed=closed)
        if not await self.store.change(session, before, after):
            raise Conflict("another message of this session is being played")
        return PlayedStep(before, after, (), done=closed)

    async def find(self, session: str) -> KeptEpisode:
        """NotFound."""
        found = await self.store.find(session)
        if found is None:
            raise NotFound("there is no such session: begin one first")
        return found

    async def _advance(
        self, environment: str, before: KeptEpisode, said: Message, finish_reason: str, fingerprint: str
    ) -> PlayedStep:
        """The episode ends when the environment ends it, after the last turn, or after a truncated message."""
        record = (await self.cache.get([before.task_id]))[before.task_id]
        turns = 1 + sum(one.role == "assistant" for one in before.messages)
        if turns >= record.prompt.max_turns or is_truncated(finish_reason):
            after = before.change(messages=(*before.messages, said), last=fingerprint, closed=True)
            return PlayedStep(before, after, (), done=True)
        return await self._play(environment, before, said, fingerprint)

    async def _play(self, environment: str, before: KeptEpisode, said: Message, fingerprint: str) -> PlayedStep:
        messages = (*before.messages, said)
        turn = await self.stepper.step(environment, StepRequest(task_id=before.task_id, messages=messages))
        after = before.change(
            messages=(*messages, *turn.messages),
            last=fingerprint,
            closed=before.closed or (turn.done and fingerprint != ""),
        )
        return PlayedStep(before, after, turn.messages, turn.done)
