"""What is in the logs, and what must never be."""

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from app.domain.values import Frozen
from app.ports.tracing import bind_request, note_work, open_request_span
from app.telemetry.logs import Form, NonBlockingHandler, configure_logging, redact_text
from app.telemetry.open_telemetry import OpenTelemetryTracer
from tests.support.collector import collecting
from tests.support.tables import read_table


class Tables(Frozen):
    secrets: dict[str, str]
    ordinary: tuple[str, ...]


TABLES = read_table(__file__, "logs.yaml", Tables)

SECRETS = TABLES.secrets
SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Logging as the service configures it, into memory; everything as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    out = io.StringIO()
    configure_logging(stream=out)
    yield out
    root.handlers = handlers
    root.setLevel(level)
    for name in ("uvicorn.access", "uvicorn.error"):
        logging.getLogger(name).filters = []
    structlog.reset_defaults()


def written() -> None:
    """Waits for the thread that writes."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    written()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def without_time(line: dict[str, object]) -> dict[str, object]:
    assert str(line.pop("time")).endswith("Z")
    return line


def test_a_line_is_one_json_object_with_what_is_bound(stream: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        structlog.get_logger("app.service").info("scored", env="gsm8k", rewards=[0.0, 1.0], text="two\nlines \ud800")
    assert [without_time(line) for line in lines(stream)] == [
        {
            "event": "scored",
            "logger": "app.service",
            "level": "info",
            "request_id": "r1",
            "env": "gsm8k",
            "rewards": [0.0, 1.0],
            "text": "two\nlines \ud800",
        }
    ]


def test_a_line_says_which_key_work_and_span_it_is_of(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = 'r\n{"level": "error"}\u2028\x1b[31m'
    log = logging.getLogger("app.service")
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        tracer = OpenTelemetryTracer("1")
        with bind_request("r1"):
            with structlog.contextvars.bound_contextvars(key="ann"), open_request_span(tracer, "GET", {}):
                note_work("gsm8k", hostile)
                log.warning("late: %s", hostile)
            log.warning("after")
        log.warning("outside")
        tracer.close()
    (span,) = collector.spans
    bound = {"request_id": "r1", "environment": "gsm8k", "run": hostile}
    inside = {"event": f"late: {hostile}", "key": "ann", "trace_id": span.trace_id, "span_id": span.span_id}
    usual = {"logger": "app.service", "level": "warning"}
    assert [without_time(line) for line in lines(stream)] == [
        {**usual, **bound, **inside},
        {**usual, **bound, "event": "after"},
        {**usual, "event": "outside"},
    ]


@pytest.mark.parametrize("template", SECRETS.values(), ids=SECRETS.keys())
def test_no_secret_reaches_the_log(stream: io.StringIO, template: str) -> None:
    text = template.format(SECRET)
    log = structlog.get_logger("app")
    log.info(text)
    log.info("event", value=text, nested={"list": [text, (text, {"deep": text})]}, error=ValueError(text))
    logging.getLogger("sqlalchemy").warning("connecting to %s", text)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        log.exception("failed")
        logging.getLogger("uvicorn.error").exception("failed")
    assert (len(lines(stream)), SECRET in stream.getvalue()) == (5, False)


@pytest.mark.parametrize("name", ["authorization", "Authorization", "api_key", "API-KEY", "password", "set-cookie"])
def test_values_under_a_secret_name_are_never_shown(stream: io.StringIO, name: str) -> None:
    headers = {name: "short", "accept": "*/*"}
    structlog.get_logger().info("request", headers=headers, listed=[headers], paired=(headers,), **{name: SECRET})
    (line,) = lines(stream)
    shown = {name: "[redacted]", "accept": "*/*"}
    assert (line[name], line["headers"], line["listed"], line["paired"]) == ("[redacted]", shown, [shown], [shown])


@pytest.mark.parametrize("text", TABLES.ordinary)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact_text(text) == text


def test_keys_are_known_by_their_looks() -> None:
    assert redact_text(f"got gw_{'a' * 43} and sk-proj-{'b' * 40}!") == "got [redacted] and [redacted]!"


@pytest.mark.parametrize("unit", ["://", "bearer ", "basic\t", "secret=", "gw_", "sk-", "password: ", " "])
def test_redaction_is_linear(unit: str) -> None:
    redact_text(unit * 200_000)


def access_line(path: str) -> None:
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', "10.0.0.1:5000", "GET", path, "1.1", 200)


def test_requests_are_fields_and_health_checks_are_silent(stream: io.StringIO) -> None:
    for path in ("/livez", "/readyz?x=1", "/metrics", "/envs"):
        access_line(path)
    assert [without_time(line) for line in lines(stream)] == read_table(__file__, "request_line.yaml", list[Any])


def test_clients_do_not_log_requests_even_when_debugging(stream: io.StringIO) -> None:
    configure_logging("debug", stream=stream)
    for name in ("aiohttp.client", "httpx", "httpcore.http11", "openai._base_client"):
        logging.getLogger(name).debug("request headers")
        logging.getLogger(name).info("HTTP Request: POST")
    assert lines(stream) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("form", "out", "json_expected"),
    [
        ("auto", Terminal(), False),
        ("auto", io.StringIO(), True),
        ("json", Terminal(), True),
        ("console", io.StringIO(), False),
    ],
)
def test_a_person_gets_lines_to_read(stream: io.StringIO, form: Form, out: io.StringIO, json_expected: bool) -> None:
    configure_logging(form=form, stream=out)
    structlog.get_logger("app").warning("look here", url="https://a:b@c")
    written()
    text = out.getvalue()
    assert ("look here" in text, "a:b" in text, text.startswith("{")) == (True, False, json_expected)


FORGED = "done\n2030-01-01T00:00:00Z [error    ] the key was stolen \x1b[2J\r\u202e\u2028"


@pytest.mark.parametrize("form", ["json", "console"])
def test_nothing_that_a_model_wrote_can_stand_on_a_line_of_its_own(stream: io.StringIO, form: Form) -> None:
    configure_logging(form=form, stream=stream)
    log = structlog.get_logger("app")
    log.warning(FORGED, text=FORGED, nested={FORGED: [FORGED]})
    logging.getLogger("app").warning("it said %s", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("failed")
    written()
    found = stream.getvalue().split("\n")
    begun = [line for line in found[:-1] if not line.startswith("  | ")]
    assert (len(begun), sum(line.startswith("2030") for line in found), found[-1]) == (3, 0, "")
    assert [one for one in ("\r", "\u202e", "\u2028", "\x1b[2J") if one in stream.getvalue()] == []


class Stuck(io.StringIO):
    """Nobody reads what is written here before `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def write(self, text: str) -> int:
        self.goes_on.wait(20)
        return super().write(text)


def test_who_logs_does_not_wait_for_who_reads() -> None:
    out = Stuck()
    log = logging.Logger("alone")
    log.addHandler(handler := NonBlockingHandler(out, room=10))
    for number in range(50):
        log.warning("line %d", number)
    unread = out.getvalue()
    out.goes_on.set()
    handler.flush()
    log.warning("the last")
    handler.flush()
    *kept, dropped, last = out.getvalue().splitlines()
    assert (unread, kept, last) == ("", [f"line {number}" for number in range(len(kept))], "the last")
    assert dropped == f"log lines were dropped because the output was blocked: {50 - len(kept)}"


def test_a_reader_that_has_gone_takes_nobody_with_it() -> None:
    out = io.StringIO()
    log = logging.Logger("alone")
    log.addHandler(handler := NonBlockingHandler(out))
    log.warning("heard")
    handler.flush()
    text = out.getvalue()
    out.close()
    log.warning("unheard")
    handler.flush()
    assert text == "heard\n"
