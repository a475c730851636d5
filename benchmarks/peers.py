"""This service beside others' servers, as they come from the package index: the same content to both, in turns.

`python -m benchmarks.peers [--record]`; `make bench-peers` installs them first. What is not installed is left out, and
said.
"""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from benchmarks.load import post, send_all
from benchmarks.results import BenchmarkFigure, count_rounds, run
from benchmarks.scoring import build_batches
from benchmarks.servers import ECHO_PATH, send_measured, serving_command, serving_echo, serving_gateway
from tests.support.nemo_gym import build_response, build_row, say
from tests.support.serving import ROOT, free_port

ROUNDS = 5
ITEMS_A_ROUND = 64
CONNECTIONS = 32
SERVERS: Final = ("ours, durable", "theirs, in memory", "echo")
PROGRAMS: Final = Path(__file__).with_name("peer_programs")


@dataclass(frozen=True)
class Server:
    url: str
    pid: int


Exchange = tuple[bytes, bytes]
"""The same item for our server and for theirs."""
Turn = tuple[float, float]
"""Items a second, and milliseconds of processor time of an item, of all processes of the server."""


@dataclass(frozen=True)
class Peer:
    name: str
    """And what of it is asked."""
    route: str
    """Ours."""
    environment: str
    """The folder of its virtual environment under `.cache`."""
    program: str
    path: str
    """That answers when it is ready."""
    build: Callable[[str, int, int], list[Exchange]]
    """Gets our URL, the number of the first item, and how many."""

    @property
    def python(self) -> Path:
        return ROOT / ".cache" / self.environment / "bin" / "python"


def measure() -> list[BenchmarkFigure]:
    found: list[BenchmarkFigure] = []
    for peer in PEERS:
        if not (peer.python.parents[1] / ".installed").exists():
            print(f"{peer.name}: not compared, since it is not installed (`make bench-peers` does it)")
            continue
        found += _compare(peer)
    return found


def _compare(peer: Peer) -> Iterator[BenchmarkFigure]:
    with (
        tempfile.TemporaryDirectory() as theirs,
        serving_gateway() as gateway,
        _serve(peer, Path(theirs)) as server,
        serving_echo() as echo,
    ):
        mine, bare = Server(gateway.url, gateway.process.pid), Server(*echo)
        rounds = [_take_turns(peer, mine, server, bare, number) for number in count_rounds(peer.name, ROUNDS + 1)]
    yield from _list_figures(peer, rounds[1:])  # the first one warms all up


def _take_turns(peer: Peer, ours: Server, theirs: Server, echo: Server, number: int) -> tuple[Turn, Turn, Turn]:
    exchanges = peer.build(ours.url, number * ITEMS_A_ROUND, ITEMS_A_ROUND)
    mine, others = zip(*exchanges, strict=True)
    echoed = [_send_elsewhere(one, ECHO_PATH) for one in mine]
    return _take_turn(ours, mine), _take_turn(theirs, others), _take_turn(echo, echoed)


def _take_turn(server: Server, requests: Sequence[bytes]) -> Turn:
    load, used = send_measured(server.url, server.pid, requests, CONNECTIONS)
    return len(requests) / load.seconds, used / len(requests) * 1e3


def _send_elsewhere(request: bytes, path: str) -> bytes:
    line, rest = request.split(b"\r\n", 1)
    method, _, version = line.split(b" ")
    return b" ".join((method, path.encode(), version)) + b"\r\n" + rest


def _list_figures(peer: Peer, rounds: Sequence[tuple[Turn, Turn, Turn]]) -> Iterator[BenchmarkFigure]:
    row = f"`{peer.route}` beside {peer.name}"
    for part, unit, told in ((0, "", "a second"), (1, "ms", "processor time")):
        for place, who in enumerate(SERVERS):
            yield BenchmarkFigure.of(row, [turn[place][part] for turn in rounds], unit, column=f"{who}, {told}")
    for place, who in ((1, "theirs"), (2, "the echo")):
        over = [turn[0][0] / turn[place][0] for turn in rounds]
        yield BenchmarkFigure.of(row, over, column=f"rate over {who}")


@contextlib.contextmanager
def _serve(peer: Peer, folder: Path) -> Iterator[Server]:
    url = f"http://127.0.0.1:{(port := free_port())}"
    command: list[str | Path] = [peer.python, PROGRAMS / f"{peer.program}.py", str(port)]
    with serving_command(command, url + peer.path, folder, {"HOME": str(folder)}) as pid:
        yield Server(url, pid)


def _build_steps(url: str, first: int, count: int) -> list[Exchange]:
    """Single-turn episodes, each over in one step."""

    def exchange(task: str, text: str, wanted: str) -> Exchange:
        ours: JsonValue = {"task_id": task, "run": "bench", "group_size": 1, "action": {"text": text}}
        theirs: JsonValue = {"action": {"text": text, "wanted": wanted}}
        return post("/compat/openenv/gsm8k/step", ours), post("/step", theirs)

    return [exchange(*answer) for answer in _list_answers(url, first, count)]


def _list_answers(url: str, first: int, count: int) -> Iterator[tuple[str, str, str]]:
    """Tasks of GSM8K, what is said, and what is right."""
    for batch in build_batches(url, count, 1, first):
        text = batch.completions[0][0].text or ""
        yield batch.task_ids[0], text, text.rpartition("####")[2].strip()


def _build_verifications(url: str, first: int, count: int) -> list[Exchange]:
    """The same rows and responses to both: each ignores what the other grades by."""
    asked = [post("/envs/mcqa/next-batch", {"batch_size": 1, "cursor": first + number}) for number in range(count)]
    exchanges = []
    for number, answer in enumerate(send_all(url, asked, 1).answers):
        (task,) = json.loads(answer)["tasks"]
        text = "Let us go through the options one by one. " * 12 + "\\boxed{B} <answer>B</answer>"
        output = {"id": f"msg_{first + number}", **say(text)}
        more = {"created_at": 0, "model": "m", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        options: JsonValue = [{letter: f"option {letter}"} for letter in "ABCD"]
        row = build_row(task["task_id"], first + number, 0, options=options, expected_answer="B")
        body: JsonValue = {**row, "response": build_response(output, **more)}
        path = "/compat/nemo_gym/mcqa/verify?run=bench&group_size=1"
        exchanges.append((post(path, body), post("/verify", body)))
    return exchanges


PEERS: Final = (
    Peer("OpenEnv 0.10.0 `/step`", "/compat/openenv/gsm8k/step", "tuners", "openenv_server", "/health", _build_steps),
    Peer(
        *("NeMo Gym 0.7.0 `/verify` (mcqa)", "/compat/nemo_gym/mcqa/verify", "nemo_gym", "nemo_gym_server", "/"),
        build=_build_verifications,
    ),
)

if __name__ == "__main__":
    run("peers", measure)
