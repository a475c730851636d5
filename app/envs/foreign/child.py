"""Calls of a program that runs beside the service, as lines of JSON: started with the service, and again when it ends.

Whatever comes from it is a stranger's: a line that cannot be read ends it, as does a call that makes it deaf. A call
that gets no answer, and every session of a child that ended, is HostFailed.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.errors import HostFailed
from app.ports.children import Child, ChildProgram, Children

log = logging.getLogger(__name__)

Answer = Mapping[str, JsonValue]
Prepare = Callable[["RunningChild"], Awaitable[None]]

_LEAST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
"""Seconds before a child is started again; doubled while none stays up for as long."""
_HEARING_SECONDS: Final = 10.0
"""After a call without an answer the child has so long to answer another one, or it is killed."""
_MOST_REASON: Final = 500
_LOG_PIECE: Final = 2000
_LOG_PIECES: Final = 50
"""Of its prints in a minute; the rest is dropped."""

_ANSWER: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


@dataclass
class RunningChild:
    """One process, until it ends."""

    name: str
    child: Child
    waiting: dict[int, "asyncio.Future[JsonValue]"] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    ended: str = ""
    """How, once it has."""

    async def call(self, name: str, seconds: float, **arguments: JsonValue) -> JsonValue:
        """HostFailed where it answers with an error, not at all, or not in time."""
        if self.ended:
            raise HostFailed(f"{self.name}: its process was lost: {self.ended}")
        number = next(self.numbers)
        answer: asyncio.Future[JsonValue] = asyncio.get_running_loop().create_future()
        self.waiting[number] = answer
        try:
            self._write({"id": number, "call": name, **arguments})
            with suppress(ConnectionError):  # it ended: whoever reads its answers finds out how
                await self.child.writer.drain()
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise HostFailed(f"{self.name} gave no answer to `{name}` within {seconds:g} seconds") from None
        finally:
            self.waiting.pop(number, None)
            if not answer.done() or answer.cancelled():
                self._write({"abandon": number})

    def _write(self, line: Mapping[str, JsonValue]) -> None:
        self.child.writer.write(json.dumps(line).encode() + b"\n")

    async def read_answers(self) -> str:
        """Until it ends, or prints what is no answer. Returns why."""
        try:
            while line := await self.child.reader.readline():
                if not self._take(line):
                    return f"it printed something else than an answer: {line[:80]!r}"
        except (ValueError, ConnectionError):  # a line beyond all bounds
            return "it printed a line that is too long"
        return ""

    def _take(self, line: bytes) -> bool:
        try:
            told = _ANSWER.validate_json(line)
            number = told["id"]
        except (ValidationError, KeyError):
            return False
        answer = self.waiting.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():  # nobody waits for it any more
            return isinstance(number, int)
        if "error" in told:
            answer.set_exception(HostFailed(f"{self.name}: {str(told['error'])[:_MOST_REASON]}"))
        elif "result" in told:
            answer.set_result(told["result"])
        return "error" in told or "result" in told

    def lose(self, reason: str) -> None:
        self.ended = reason
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(HostFailed(f"{self.name}: its process was lost: {reason}"))


class ChildKeeper:
    """Keeps one child running. `prepare` is called with each new one before others may call it."""

    def __init__(
        self,
        name: str,
        children: Children,
        program: ChildProgram,
        prepare: Prepare,
        hearing_seconds: float = _HEARING_SECONDS,
    ) -> None:
        self._name = name
        self._hearing_seconds = hearing_seconds
        self._children = children
        self._program = program
        self._prepare = prepare
        self._current: asyncio.Future[RunningChild] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Starts it, and waits for nothing."""
        self._current = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep())

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
        await asyncio.gather(*self._tasks)

    async def call(
        self, name: str, seconds: float, *, of: RunningChild | None = None, **arguments: JsonValue
    ) -> JsonValue:
        """Of a child that has sessions already, or of the one that runs now. HostFailed."""
        running = of or await self.find(seconds)
        try:
            return await running.call(name, seconds, **arguments)
        except (HostFailed, asyncio.CancelledError):
            self._check(running)
            raise

    async def find(self, seconds: float) -> RunningChild:
        """The one that runs now; waits until it is prepared. HostFailed with its trouble where the last one had any."""
        if self._current is None:
            raise HostFailed(f"{self._name} is not open")
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._current)
        except TimeoutError:
            raise HostFailed(f"{self._name} was not ready within {seconds:g} seconds") from None

    def _check(self, running: RunningChild) -> None:
        """Kills a child that hears nothing any more: one environment that never returns holds up all others."""
        if not running.ended:
            self._start_task(self._require_hearing(running))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """`close` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _require_hearing(self, running: RunningChild) -> None:
        try:
            await running.call("ping", self._hearing_seconds)
        except HostFailed:
            if not running.ended:
                log.warning("%s hears nothing any more, and is started again", self._name)
                self._lose(running, "it heard nothing any more")
                running.child.kill()

    async def _keep(self) -> None:
        wait = _LEAST_WAIT
        while True:
            began = asyncio.get_running_loop().time()
            try:
                log.warning("%s", await self._run_once())
            except HostFailed as error:
                self._tell(error)
            stayed = asyncio.get_running_loop().time() - began
            wait = _LEAST_WAIT if stayed > _LONGEST_WAIT else wait
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)
            if self._current is None or self._current.done():
                self._current = asyncio.get_running_loop().create_future()

    def _tell(self, error: HostFailed) -> None:
        """Whoever waits, and whoever asks until the next one is started, which may not be ready either."""
        log.warning("%s", error.detail)
        if self._current is not None and not self._current.done():
            self._current.set_exception(error)
            self._current.exception()  # nobody need ask

    def _lose(self, running: RunningChild, reason: str) -> None:
        """Whoever asks now waits for the next one."""
        running.lose(reason)
        if self._current is not None and self._current.done():
            self._current = asyncio.get_running_loop().create_future()

    async def _run_once(self) -> str:
        """Until it ends: why. HostFailed where it was never ready."""
        running = RunningChild(self._name, await self._children.start(self._program))
        reading = asyncio.create_task(running.read_answers())
        logging_ = asyncio.create_task(self._copy_log(running.child))
        preparing = asyncio.ensure_future(self._offer(running))
        try:
            reason = await reading
            self._lose(running, running.ended or reason or await running.child.wait())
            await preparing
            return f"{self._name}: its process was lost: {running.ended}"
        finally:
            running.lose(running.ended or "the service closes it")
            for task in (reading, logging_, preparing):
                task.cancel()
            self._start_task(running.child.end())

    async def _offer(self, running: RunningChild) -> None:
        """To those who wait, once it is prepared. What is said against it ends it."""
        try:
            await self._prepare(running)
        except HostFailed as error:
            running.lose(running.ended or error.detail)
            running.child.kill()
            raise
        if self._current is not None and not self._current.done():
            self._current.set_result(running)

    async def _copy_log(self, child: Child) -> None:
        minute, pieces = 0.0, 0
        while text := await child.log.read(_LOG_PIECE):
            now = asyncio.get_running_loop().time()
            if now - minute > 60:
                minute, pieces = now, 0
            pieces += 1
            if pieces <= _LOG_PIECES:
                log.info("%s printed: %s", self._name, text.decode(errors="replace").rstrip())
