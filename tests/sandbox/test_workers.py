"""What every `Workers` does, and what only those that are processes can."""

import asyncio
import os
import select
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvloop
from pydantic import JsonValue

from app.domain.errors import WorkerFailed, WorkExceeded
from app.domain.tasks import Limits
from app.ports.environment import Workers
from app.sandbox.workers import CALLS_OF_A_WORKER, InProcessWorkers, ProcessWorkers, Worker, WorkersPart
from tests.support import untrusted
from tests.support.event_loop import closed_after

SHORT = Limits(seconds=0.5)
"""For what hangs."""
PLACES = 2
LOST_TWICE = "its worker was lost twice, the last time because"

Play = Callable[[ProcessWorkers], Awaitable[object]]
Attempts = list[tuple[str, str]]
Run = Callable[[Coroutine[object, object, object]], object]


def played(play: Play, places: int = PLACES, run: Run = asyncio.run) -> tuple[object, Attempts]:
    """What `play` gives, and what became of every attempt that was made meanwhile."""
    attempts: Attempts = []
    workers = ProcessWorkers(places, lambda function, outcome, _: attempts.append((function.split(":")[1], outcome)))

    async def all_of_it() -> object:
        async with closed_after(workers):
            return await play(workers)

    return run(all_of_it()), attempts


@pytest.fixture
async def workers() -> AsyncIterator[ProcessWorkers]:
    async with closed_after(ProcessWorkers(PLACES)) as workers:
        yield workers


async def fate(running: Awaitable[JsonValue]) -> tuple[str, JsonValue]:
    """`done` with the result; `failed`; or the limit that was exceeded."""
    try:
        return "done", await running
    except WorkExceeded as error:
        return error.limit, error.detail
    except WorkerFailed as error:
        return "failed", error.detail


@pytest.mark.parametrize("kind", ["processes", "in_process"])
@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (untrusted.echoed, ["é\n", None, {"a": [1, 1.5, True]}], ("done", ["é\n", None, {"a": [1, 1.5, True]}])),
        (untrusted.echoed, [], ("done", [])),
        (untrusted.broken, ["seven"], ("failed", "tests.support.untrusted:broken broke; see the log")),
        (untrusted.no_json, [], ("failed", "tests.support.untrusted:no_json broke; see the log")),
        (
            untrusted.too_deep,
            [],
            ("failed", f"tests.support.untrusted:too_deep: {LOST_TWICE} it answered what cannot be read"),
        ),
        (
            untrusted.much,
            [100_000],
            ("output_bytes", "tests.support.untrusted:much needs more than the 65536 bytes of result that it may use"),
        ),
    ],
)
def test_a_call(
    kind: str, function: Callable[..., JsonValue], arguments: list[JsonValue], expected: tuple[str, JsonValue]
) -> None:
    def play(workers: Workers) -> Awaitable[object]:
        return fate(workers.run(function, *arguments))

    assert (asyncio.run(played_here(play)) if kind == "in_process" else played(play)[0]) == expected


async def played_here(play: Callable[[Workers], Awaitable[object]]) -> object:
    return await play(InProcessWorkers())


@pytest.mark.parametrize("workers", [InProcessWorkers(), ProcessWorkers(1)])
@pytest.mark.parametrize(
    ("function", "argument"), [(lambda: None, 1), (InProcessWorkers().run, 1), (untrusted.echoed, float("nan"))]
)
def test_what_cannot_cross_is_refused(workers: Workers, function: Callable[..., JsonValue], argument: float) -> None:
    with pytest.raises(ValueError, match=r"not a module-level function|not JSON compliant"):
        asyncio.run(workers.run(function, argument))


FATES: list[tuple[Callable[..., JsonValue], list[JsonValue], Limits, str, str]] = [
    (untrusted.asleep, [600], SHORT, "seconds", "0.5 seconds"),
    (untrusted.busy, [], SHORT, "seconds", "0.5 seconds"),
    (untrusted.busy, [], Limits(seconds=60, cpu_seconds=0.5), "cpu_seconds", "0.5 seconds of processor time"),
    (untrusted.hoarding, [1000], Limits(memory_mb=64), "memory_mb", "64 MB of memory"),
    (untrusted.much, [100], Limits(output_bytes=64), "output_bytes", "64 bytes of result"),
]


@pytest.mark.parametrize(("function", "arguments", "limits", "limit", "allowed"), FATES)
def test_what_exceeds_a_limit_is_tried_twice(
    function: Callable[..., JsonValue], arguments: list[JsonValue], limits: Limits, limit: str, allowed: str
) -> None:
    name = function.__name__
    words = f"tests.support.untrusted:{name} needs more than the {allowed} that it may use"
    seen = played(lambda workers: fate(workers.run(function, *arguments, limits=limits)))
    assert seen == ((limit, words), [(name, limit)] * 2)


def test_what_exceeds_a_limit_of_one_try_is_tried_once() -> None:
    limits = SHORT.model_copy(update={"tries": 1})
    seen = played(lambda workers: fate(workers.run(untrusted.asleep, 600, limits=limits)))
    words = "tests.support.untrusted:asleep needs more than the 0.5 seconds that it may use"
    assert seen == (("seconds", words), [("asleep", "seconds")])


async def test_texts_within_lists_are_encoded_in_their_turn_too(workers: ProcessWorkers) -> None:
    nested: JsonValue = {"texts": ["ж" * 600_000, ["x" * 600_000]]}
    assert await workers.run(untrusted.echoed, nested, limits=Limits(output_bytes=8_000_000)) == [nested]


async def test_a_part_of_the_workers_leaves_the_others_free(workers: ProcessWorkers) -> None:
    part = WorkersPart(workers, 1)
    slow = [asyncio.create_task(fate(part.run(untrusted.asleep, 600))) for _ in range(3)]
    await asyncio.sleep(0)
    others = await fate(workers.run(untrusted.echoed, "done beside them"))
    part.end()
    told = [*await asyncio.gather(*slow), await fate(part.run(untrusted.echoed))]
    assert (others, told) == (("done", ["done beside them"]), [("failed", "the service is stopping")] * 4)


async def test_a_worker_whose_start_is_given_up_leaves_nothing_open() -> None:
    before = list_sockets()
    for turns in (1, 4, 16, 64):  # of the event loop: before its process is there, and while Python starts
        starting = asyncio.create_task(Worker.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        assert isinstance((await asyncio.gather(starting, return_exceptions=True))[0], asyncio.CancelledError)
    await asyncio.sleep(0)  # the transport closes its socket in the next turn of the loop
    assert list_sockets() == before


def list_sockets() -> set[str]:
    """This process's sockets."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(str(descriptor.readlink()))
    return {name for name in found if name.startswith("socket:")}


DEATHS: list[tuple[Callable[..., JsonValue], list[JsonValue], str]] = [
    (untrusted.gone, [3], "it ended with status 3"),
    (untrusted.killed, [int(signal.SIGSEGV)], "it died of signal 11"),
    (untrusted.silent, [], "it died of signal 9"),
    (untrusted.forged, ["\0\0\0\2" + "0" * 16 + "{}"], "it answered something else"),
    (untrusted.flooding, [], "it answered something else"),
]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize(("function", "arguments", "because"), DEATHS)
def test_a_worker_that_dies_without_exceeding_anything_is_our_fault(
    function: Callable[..., JsonValue],
    arguments: list[JsonValue],
    because: str,
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = function.__name__
    words = f"tests.support.untrusted:{name}: {LOST_TWICE} {because}"
    seen = played(lambda workers: fate(workers.run(function, *arguments)), run=run)
    assert (*seen, caplog.messages) == (
        ("failed", words),
        [(name, "died")] * 2,
        [f"tests.support.untrusted:{name}: a worker was lost (died: {because})"],
    )


def test_sys_exit_is_a_fault_like_any_other() -> None:
    seen = played(lambda workers: fate(workers.run(untrusted.out_of_the_house, 0)))
    assert seen == (
        ("failed", "tests.support.untrusted:out_of_the_house broke; see the log"),
        [("out_of_the_house", "broke")],
    )


async def test_a_fault_is_logged_on_one_line_and_not_told(
    workers: ProcessWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    await fate(workers.run(untrusted.broken, "a\x1b[31m\nb"))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "tests.support.untrusted:broken broke in a worker: ValueError: no number: a [31m b at worker.py:"
    ), line


async def test_what_it_prints_and_reads_is_not_the_stream_of_answers(workers: ProcessWorkers) -> None:
    assert await workers.run(untrusted.printed, "hello") == ["", "said"]


async def test_a_worker_inherits_no_variables_and_has_little_room(workers: ProcessWorkers, tmp_path: Path) -> None:
    assert await workers.run(untrusted.surroundings, str(tmp_path / "file")) == {
        "environment": ["LC_ALL", "PYTHONHASHSEED"],
        "working_directory": "/",
        "leads_its_session": True,
        "core": [0, 0],
        "file_size": [0, 0],
        "processes": [0, 0],
        "open_files": 32,
        "written": "File too large",
        "descriptors": "Too many open files",
        **dict.fromkeys(["socket", "forked", "started", "signalled", "traced"], "Operation not permitted"),
    }


async def test_a_worker_stays_warm_and_is_replaced_in_the_end(workers: ProcessWorkers) -> None:
    seen = [await workers.run(untrusted.process_id) for _ in range(CALLS_OF_A_WORKER + 1)]
    assert [seen.count(one) for one in dict.fromkeys(seen)] == [CALLS_OF_A_WORKER, 1]


async def test_limits_are_of_each_call_and_not_of_a_worker(workers: ProcessWorkers) -> None:
    done = ("done", 40 * 1024 * 1024)
    first = await fate(workers.run(untrusted.hoarding, 40, limits=Limits(memory_mb=64, cpu_seconds=1)))
    later = [await fate(workers.run(untrusted.hoarding, 40, limits=Limits(memory_mb=64))) for _ in range(20)]
    assert (first, later) == (done, [done] * 20)


def test_one_that_is_killed_from_outside_is_tried_again(tmp_path: Path) -> None:
    again = str(tmp_path / "trace")
    seen = played(lambda workers: fate(workers.run(untrusted.gone_the_first_time, again)))
    assert seen == (("done", "second time"), [("gone_the_first_time", "died"), ("gone_the_first_time", "done")])


async def test_an_idle_worker_that_was_killed_costs_nobody_anything(workers: ProcessWorkers) -> None:
    first = await workers.run(untrusted.process_id)
    assert isinstance(first, int)
    with ended(first):
        os.kill(first, signal.SIGKILL)
    assert await fate(workers.run(untrusted.echoed, "still here")) == ("done", ["still here"])


async def test_some_that_hang_do_not_stop_the_others(workers: ProcessWorkers) -> None:
    calls = [
        fate(workers.run(untrusted.asleep, 600 if place % 10 == 3 else 0, limits=Limits(seconds=0.5)))
        for place in range(50)
    ]
    assert [what for what, _ in await asyncio.gather(*calls)] == [
        "seconds" if place % 10 == 3 else "done" for place in range(50)
    ]


def test_a_call_that_is_given_up_ends_with_its_worker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    async def play(workers: ProcessWorkers) -> object:
        call = asyncio.create_task(workers.run(untrusted.asleep_after_telling, str(tmp_path / "pipe")))
        process = int(await asyncio.to_thread((tmp_path / "pipe").read_text))
        with ended(process):
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        return call.cancelled(), await fate(workers.run(untrusted.echoed, 1))

    seen = played(play, places=1)
    assert seen == ((True, ("done", [1])), [("asleep_after_telling", "cancelled"), ("echoed", "done")])


async def test_after_closing_nothing_runs(workers: ProcessWorkers, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    closed = ("failed", "the workers are closed")
    call = asyncio.create_task(fate(workers.run(untrusted.asleep_after_telling, str(tmp_path / "pipe"))))
    process = int(await asyncio.to_thread((tmp_path / "pipe").read_text))
    with ended(process):
        await workers.close()
    assert (await call, await fate(workers.run(untrusted.echoed, 1)), workers.ids) == (closed, closed, ())


@contextmanager
def ended(pid: int) -> Iterator[None]:
    """Left when the process, which is killed within, has ended."""
    watched = os.pidfd_open(pid)
    try:
        yield
        assert select.select([watched], [], [], 30)[0], "the process is still there"
    finally:
        os.close(watched)
