"""What a collector is sent of one scored group, over HTTP on all sides: trainer, judge and collector."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.domain.values import Frozen
from app.envs.rlaif.environment import Rlaif
from app.http.web import api_keys
from app.main.application import create_app
from app.service import catalogue
from app.settings import EnvironmentSettings, JudgeSettings, Settings
from app.telemetry import open_telemetry
from tests.support.chat_server import ChatServer, serving
from tests.support.collector import CollectedSpan, collecting
from tests.support.playground import await_ready
from tests.support.preferring import FEWER, count_tokens, preferring
from tests.support.tables import read_table

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TEXTS = ("Knock and ask.", "Knock one morning, and bring a cake along.")


@contextmanager
def gateway(folder: Path, judge: ChatServer) -> Iterator[TestClient]:
    settings = Settings.model_validate(
        {
            "database_url": f"sqlite:///{folder / 'gateway.db'}",
            "api_key": "gw_a-secret-key",
            "judges": {
                "wise": JudgeSettings(
                    base_url=judge.url, model="judge-1", input_price_per_million=2, output_price_per_million=10
                )
            },
            "environments": {"rlaif": EnvironmentSettings(judges=("wise",), readings=1, calibration_share=0)},
        }
    )
    app = create_app(settings, environments={"rlaif": Rlaif})
    with TestClient(app, base_url="http://127.0.0.1", headers={"Authorization": "Bearer gw_a-secret-key"}) as client:
        await_ready(client)
        yield client


def score(client: TestClient, **headers: str) -> list[float]:
    body = {"batch_size": 1, "run": "blue", "params": {"preference": FEWER}}
    task = client.post("/envs/rlaif/next-batch", json=body).raise_for_status().json()["tasks"][0]
    group = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": [{"text": one} for one in TEXTS]}
    reply = client.post("/envs/rlaif/score", json={"run": "blue", "groups": [group]}, headers=headers)
    rewards: list[float] = reply.raise_for_status().json()["groups"][0]["rewards"]
    return rewards


def describe(span: CollectedSpan) -> dict[str, object]:
    changing = {"atropos.group_id", "server.port", "db.system.name", "db.operation.name"}
    return {name: value for name, value in span.attributes.items() if name not in changing}


class Traced(Frozen):
    """traced.yaml."""

    outline: list[str]
    request: dict[str, object]
    group: dict[str, object]
    call: dict[str, object]


TRACED = read_table(__file__, "traced.yaml", Traced)


def test_one_scored_group_is_one_tree_that_the_judge_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are read again during each request, which is a span of none. Nothing else depends on how long it takes."""
    monkeypatch.setattr(api_keys, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(catalogue, "RECHECK_SECONDS", 3600.0)
    monkeypatch.setattr(open_telemetry, "CLOSE_SECONDS", 60.0)
    with collecting() as collector, serving(preferring) as judge:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine")
        with gateway(tmp_path, judge) as client:
            caller = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "a=b", "baggage": "c=d"}
            score(client, **caller, **{"X-Request-ID": "q1"})
    spans = [span for span in collector.spans if span.trace_id == TRACE]
    named = {span.name: span for span in spans}
    root, call, stored = named["POST /envs/rlaif/score"], named["chat judge-1"], named["write GroupStore.add"]
    headers = {name.lower(): value for name, value in judge.received[0].headers.items()}
    tokens = count_tokens(judge.received[0])
    about = {"atropos.environment": "rlaif", "atropos.run": "blue"}
    paid = {"gen_ai.usage.input_tokens": tokens, "atropos.cost_usd": pytest.approx((2 * tokens + 10 * 20) / 1e6)}
    assert collector.outline(TRACE) == TRACED.outline
    assert (root.kind, root.parent_id, describe(root)) == ("server", CALLER, TRACED.request | about)
    assert describe(named["score group"]) == TRACED.group | about
    assert (call.kind, describe(call)) == ("client", TRACED.call | paid)
    assert {name: headers.get(name) for name in caller} == {
        "traceparent": f"00-{TRACE}-{call.span_id}-01",
        "tracestate": None,
        "baggage": None,
    }
    assert [span.name for span in collector.spans if stored.span_id in span.links] == ["commit batch"]
    assert {str(span.resource["service.name"]) for span in collector.spans} == {"mine"}
    told = repr(collector.spans)
    assert [secret for secret in (*TEXTS, FEWER, "gw_a-secret-key") if secret in told] == []


def test_a_collector_that_never_answers_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_telemetry, "CLOSE_SECONDS", 0.05)
    with serving(preferring) as judge, socket.create_server(("127.0.0.1", 0)) as silent:
        with gateway(tmp_path, judge) as client:
            untraced = score(client)
        (tmp_path / "gateway.db").unlink()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
        with gateway(tmp_path, judge) as client:
            assert score(client) == untraced == [1.0, 0.0]
        for thread in threading.enumerate():  # its retries draw random numbers, which fails a strategy of Hypothesis
            if thread.name == "spans-closing":
                thread.join()
