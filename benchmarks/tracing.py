"""What traces cost: durable GSM8K scoring over HTTP with tracing off, with every trace kept, and with one in ten.

Four gateways run side by side and are asked in turns, so that what else the machine does falls on all of them alike.
The fourth names a collector that is not there."""

import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from benchmarks.load import read_processor_seconds, send_all
from benchmarks.results import read_arguments
from benchmarks.scoring import GROUPS_A_REQUEST, build_requests
from tests.support.serving import Served, free_port, serving

ROUNDS: Final = 12
REQUESTS_A_ROUND: Final = 20
WARM_UP: Final = 10
CONNECTIONS: Final = 4
OFF: Final = "off"


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def sinking() -> Iterator[str]:
    """A collector that reads what it is sent and keeps nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@dataclass(frozen=True)
class TracingCost:
    """Medians over the rounds, each over the gateway without tracing in the same round."""

    rate: float
    cpu: float
    groups_per_second: float
    cpu_milliseconds: float


def compare(groups: int = GROUPS_A_REQUEST) -> Mapping[str, TracingCost]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        collector = stack.enter_context(sinking())
        kinds = {
            OFF: {},
            "every trace": _point_at(collector, "always_on"),
            "one in ten": _point_at(collector, "parentbased_traceidratio") | {"OTEL_TRACES_SAMPLER_ARG": "0.1"},
            "no collector": _point_at(f"http://127.0.0.1:{free_port()}", "always_on"),
        }
        gateways = {name: stack.enter_context(_serving(Path(folder), name, more)) for name, more in kinds.items()}
        requests = {
            name: build_requests(gateway.url, WARM_UP + ROUNDS * REQUESTS_A_ROUND, groups)
            for name, gateway in gateways.items()
        }
        for name, gateway in gateways.items():
            send_all(gateway.url, requests[name][:WARM_UP], CONNECTIONS)
        seconds: dict[str, list[float]] = {name: [] for name in kinds}
        cpu: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(ROUNDS):
            first = WARM_UP + number * REQUESTS_A_ROUND
            for name, gateway in gateways.items():
                before = read_processor_seconds(gateway.process.pid)
                load = send_all(gateway.url, requests[name][first : first + REQUESTS_A_ROUND], CONNECTIONS)
                seconds[name].append(load.seconds)
                cpu[name].append(read_processor_seconds(gateway.process.pid) - before)
    scored = REQUESTS_A_ROUND * groups
    return {
        name: TracingCost(
            rate=statistics.median(off / mine for off, mine in zip(seconds[OFF], seconds[name], strict=True)),
            cpu=sum(cpu[name]) / sum(cpu[OFF]),
            groups_per_second=scored / statistics.median(seconds[name]),
            cpu_milliseconds=sum(cpu[name]) / ROUNDS / scored * 1e3,
        )
        for name in kinds
    }


def _point_at(collector: str, sampler: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_TRACES_SAMPLER": sampler}


@contextmanager
def _serving(folder: Path, name: str, settings: Mapping[str, str]) -> Iterator[Served]:
    own = folder / name.replace(" ", "_")
    own.mkdir()
    with serving(own, settings=settings, python=sys.executable) as gateway:
        yield gateway


def main() -> None:
    for groups in (1, GROUPS_A_REQUEST):
        print(f"durable GSM8K scoring, groups of 8, {groups} a request; over tracing off")
        for name, cost in compare(groups).items():
            print(
                f"  {name:14}{cost.groups_per_second:8.0f} groups/s, {cost.rate:6.3f} of the rate; "
                f"{cost.cpu_milliseconds:7.3f} ms of CPU a group, {cost.cpu:6.3f} times"
            )


if __name__ == "__main__":
    read_arguments()
    main()
