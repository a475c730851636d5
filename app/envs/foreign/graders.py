"""Graders that are not ours, as `app.evaluation.graders` asks them: a function in a child process, the servers and
packages that are served as environments too, and a URL that answers as OpenRLHF's trainers expect.

None of them is trusted: answers are bounded, each has a deadline, and whatever comes in place of a number stands in
the report. A server that does not answer any more ends the check.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from app.domain.errors import HostFailed, UserError
from app.domain.faults import explain_connection, make_printable
from app.domain.tasks import Message
from app.domain.values import FiniteNumber, replace_lone_surrogates
from app.envs.foreign.child import RunningChild
from app.envs.foreign.contract import Description, ForeignServer, Start
from app.evaluation.grader_rows import GraderRow, RawRow, Reading
from app.evaluation.graders import Graded, GraderFailed, Trouble
from app.ports.children import ChildProgram, Children

CHILD: Final = Path(__file__).with_name("function_child.py")
_LOAD_SECONDS: Final = 300.0
"""For importing a function with its packages."""
_MEMORY_MB: Final = 64 * 1024
_FILE_MB: Final = 64 * 1024
_MOST_WORDS: Final = 500
_MOST_BYTES: Final = 1024 * 1024
"""Of an answer over HTTP."""
_MOST_FAILURES: Final = 5
_AT_ONCE: Final = 8


# Functions


class _ChildAnswer(BaseModel):
    model_config = ConfigDict(frozen=True)

    reward: FiniteNumber | None = None
    trouble: Trouble = ""
    words: str = ""
    seconds: FiniteNumber = 0.0


_ANSWERS: Final[TypeAdapter[list[_ChildAnswer]]] = TypeAdapter(list[_ChildAnswer])


class FunctionGrader:
    """A Python function, in a process that is started again when it hangs or ends."""

    at_once = 1
    takes_reference = True

    def __init__(self, target: str, python: Path, folders: Sequence[Path], children: Children, seconds: float) -> None:
        """`folders` are where modules are looked for first. `seconds`: for each call."""
        self.name = target
        self.shape = ""
        self.reference = ""
        """The parameter that gets the right answer."""
        self._folders: list[JsonValue] = [str(folder.absolute()) for folder in folders]
        self._children = children
        self._seconds = seconds
        # As in a training, where it has the user's caches, keys and network, too.
        self._program = ChildProgram(
            interpreter=python, file=CHILD, memory_mb=_MEMORY_MB, file_mb=_FILE_MB, trusted=True, inherits=True
        )
        self._columns: Sequence[str] = ()
        self._answer_column = ""
        self._running: _Running | None = None

    @property
    def ways(self) -> Sequence[str]:
        return ("messages", "text") if self.shape == "batch" else ("text",)

    async def open(self, columns: Sequence[str], answer_column: str) -> None:
        """UserError where the function cannot be found, imported or called with these columns."""
        self._columns, self._answer_column = columns, answer_column
        try:
            await self._start()
        except GraderFailed as error:
            raise UserError(str(error)) from None

    async def close(self) -> None:
        if self._running is not None:
            await self._running.end()
            self._running = None

    async def grade(self, row: GraderRow, texts: Sequence[str], reading: Reading) -> list[Graded]:
        running = self._running or await self._start()
        began = time.monotonic()
        try:
            told = await running.child.call(
                "grade",
                self._seconds,
                texts=list(texts),
                prompt=row.prompt_text,
                messages=row.prompt_messages,
                reference=reading.build_reference(row),
                columns=_write_columns(row.columns),
                answer_column=self._answer_column,
                way=reading.way,
            )
            answers = _ANSWERS.validate_python(told)
        except ValidationError:
            return await self._give_up("raised", "its process gave an answer that cannot be read", texts, began)
        except HostFailed as error:
            late = not running.child.ended and time.monotonic() - began >= self._seconds
            return await self._give_up("late" if late else "raised", error.detail, texts, began)
        if len(answers) != len(texts):
            return await self._give_up("raised", "its process gave another number of answers", texts, began)
        return [Graded(one.reward, one.trouble, make_printable(one.words, _MOST_WORDS), one.seconds) for one in answers]

    async def _give_up(self, trouble: Trouble, words: str, texts: Sequence[str], began: float) -> list[Graded]:
        """The process may still be busy with the text, so the next one is asked of another process."""
        await self.close()
        seconds = (time.monotonic() - began) / len(texts)
        return [Graded(None, trouble, make_printable(words, _MOST_WORDS), seconds)] * len(texts)

    async def _start(self) -> "_Running":
        """GraderFailed."""
        try:
            running = _Running(self.name, RunningChild(self.name, await self._children.start(self._program)))
        except HostFailed as error:
            raise GraderFailed(error.detail) from None
        self._running = running
        try:
            told = await running.child.call(
                "load",
                _LOAD_SECONDS,
                target=self.name,
                here=str(Path.cwd()),
                folders=self._folders,
                columns=list(self._columns),
                answer_column=self._answer_column,
            )
        except HostFailed as error:
            await self.close()
            raise GraderFailed(error.detail + running.word_log()) from None
        if isinstance(told, dict):
            self.shape, self.reference = str(told.get("shape")), str(told.get("reference"))
        return running


class _Running:
    """A child with what reads from it."""

    def __init__(self, name: str, child: RunningChild) -> None:
        self.child = child
        self._printed = b""
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_log())]

    def word_log(self) -> str:
        """The last line that it printed, behind an error."""
        lines = self._printed.decode(errors="replace").strip().splitlines()
        return f"; it printed last: {make_printable(lines[-1], _MOST_WORDS)}" if lines else ""

    async def end(self) -> None:
        await self.child.child.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self) -> None:
        reason = await self.child.read_answers()
        if reason:
            self.child.child.kill()
        self.child.lose(reason or await self.child.child.wait())

    async def _read_log(self) -> None:
        with suppress(ConnectionError):
            while piece := await self.child.child.log.read(_MOST_WORDS):
                self._printed = (self._printed + piece)[-_MOST_WORDS:]


def _write_columns(columns: Mapping[str, JsonValue]) -> JsonValue:
    """Dates and the like become text."""
    written: JsonValue = json.loads(json.dumps(dict(columns), default=str))
    return written


# Servers and packages that are served as environments too


_RECOVERY_TRIES: Final = 3
"""Deadlines that a server gets to answer anything again after it gave no answer in time."""


class ServerGrader:
    """One reply is one session: it is opened with the row, stepped once, and finished where it goes on."""

    takes_reference = False
    ways = ("text",)
    at_once = 1
    """Else a text at which a server hangs would be blamed on its neighbours."""

    def __init__(self, server: ForeignServer, name: str) -> None:
        self.name = name
        self._server = server

    async def open(self) -> Description:
        """UserError where it cannot be asked what it is."""
        await self._server.open()
        try:
            return await asyncio.to_thread(self._server.describe_blocking)
        except HostFailed as error:
            raise UserError(error.detail) from None

    async def close(self) -> None:
        await self._server.close()

    async def grade(self, row: GraderRow, texts: Sequence[str], reading: Reading) -> list[Graded]:
        return [await self._grade(row, text) for text in texts]

    async def _grade(self, row: GraderRow, text: str) -> Graded:
        began = time.monotonic()
        seconds = self._server.options.deadline_seconds
        try:
            async with asyncio.timeout(seconds):
                graded = await self._play(row, text)
        except (TimeoutError, HostFailed) as error:
            took = time.monotonic() - began
            words = error.detail if isinstance(error, HostFailed) else f"no answer within {seconds:g} seconds"
            await self._require_answer(words)
            return Graded(None, "late" if took >= seconds else "raised", make_printable(words, _MOST_WORDS), took)
        return Graded(graded.reward, graded.trouble, graded.words, time.monotonic() - began)

    async def _require_answer(self, words: str) -> None:
        """GraderFailed where the server says nothing any more: the next texts must not be blamed for it."""
        for _ in range(_RECOVERY_TRIES):
            with suppress(HostFailed):
                await self._server.look()
                return
        raise GraderFailed(f"the server does not answer any more: {words}")

    async def _play(self, row: GraderRow, text: str) -> Graded:
        session = await self._server.open_session(Start("train", row.index, 0, row.hidden))
        try:
            # JSON between servers has no lone surrogates.
            step = await session.step(Message(role="assistant", content=replace_lone_surrogates(text)))
            reward, failure = step.reward, step.failure
            if not step.is_over and not failure:
                end = await session.finish()
                reward, failure = end.reward if reward is None else reward, end.failure
        finally:
            await session.close()
        if failure or reward is None:
            return Graded(None, "no number", make_printable(failure or "it gave no reward", _MOST_WORDS))
        return Graded(reward)


def list_rows(description: Description, name: str) -> list[RawRow]:
    """Those that a server or package brings."""
    rows = (description.rows or {}).get("train", ())
    return [
        RawRow(
            place=f"{name}, row {number}",
            columns=row.hidden if isinstance(row.hidden, dict) else {},
            prompt=[message.model_dump(mode="json") for message in row.messages] or None,
            index=number,
            hidden=row.hidden,
        )
        for number, row in enumerate(rows)
    ]


# A URL that answers as OpenRLHF's trainers expect


class _Rewards(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    rewards: list[float | None] | float | None


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes


class RewardUrlGrader:
    """Texts are sent behind their prompts, with the row's `label`, or else its right answer, as the label."""

    takes_reference = True
    ways = ("text",)
    at_once = _AT_ONCE

    def __init__(self, url: str, name: str, seconds: float) -> None:
        self.name = name
        self._url = url
        self._seconds = seconds
        self._failures = 0
        """In a row."""
        self._client = httpx.AsyncClient(timeout=seconds, trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def grade(self, row: GraderRow, texts: Sequence[str], reading: Reading) -> list[Graded]:
        prompt = row.prompt_text
        label = row.columns.get("label") or reading.build_reference(row)
        body = {
            "query": [prompt + text for text in texts],
            "prompts": [prompt] * len(texts),
            "labels": [label] * len(texts),
        }
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._post(json.dumps(body).encode())
        except (TimeoutError, httpx.TimeoutException):
            return self._fail("late", f"no answer within {self._seconds:g} seconds", texts, began)
        except httpx.ConnectError as error:
            return self._fail("raised", explain_connection(error), texts, began)
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # it is there, and broke at this text
            return [Graded(None, "raised", make_printable(explain_connection(error), _MOST_WORDS))] * len(texts)
        self._failures = 0
        seconds = (time.monotonic() - began) / len(texts)
        return [Graded(one.reward, one.trouble, one.words, seconds) for one in _read_rewards(answer, len(texts))]

    async def _post(self, body: bytes) -> _Answer:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        parts: list[bytes] = []
        async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            async for part in response.aiter_bytes():
                parts.append(part)
                if sum(map(len, parts)) > _MOST_BYTES:
                    raise httpx.DecodingError(f"it answered more than {_MOST_BYTES} bytes")
            return _Answer(response.status_code, b"".join(parts))

    def _fail(self, trouble: Trouble, words: str, texts: Sequence[str], began: float) -> list[Graded]:
        """GraderFailed at so many in a row that the server must be down."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            raise GraderFailed(f"the server gave no answer {_MOST_FAILURES} times in a row: {words}")
        seconds = (time.monotonic() - began) / len(texts)
        return [Graded(None, trouble, words, seconds)] * len(texts)


def _read_rewards(answer: _Answer, count: int) -> list[Graded]:
    if answer.status != httpx.codes.OK:
        said = make_printable(answer.body.decode(errors="replace"), _MOST_WORDS)
        return [Graded(None, "raised", f"it answered {answer.status}: {said}")] * count
    try:
        rewards = _Rewards.model_validate_json(answer.body).rewards
    except ValidationError:
        said = make_printable(answer.body.decode(errors="replace"), 100)
        return [Graded(None, "no number", f"it answered no rewards: {said}")] * count
    listed: Sequence[Any] = rewards if isinstance(rewards, list) else [rewards]
    if len(listed) != count:
        return [Graded(None, "no number", f"{len(listed)} rewards for {count} texts")] * count
    return [_read_number(one) for one in listed]


def _read_number(reward: float | None) -> Graded:
    finite = reward is not None and abs(reward) < float("inf")
    return Graded(reward) if finite else Graded(None, "no number", repr(reward))
