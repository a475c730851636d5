"""What the commands make of a gateway's answers, without a gateway."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
import respx

from app.domain.errors import EnvironmentUnavailable, Gone, InvalidRequest, NotFound, Unauthorized, Unavailable
from app.terminal.client import GatewayClient
from tests.support.tables import read_table

URL = "http://gateway.invalid:8000"
PROBLEM = read_table(__file__, "problem.yaml", dict[str, Any])
NOTHING_MORE = {
    **dict.fromkeys(("origin", "label", "mode", "votes", "relative_weight", "isolation")),
    **{name: [] for name in ("splits", "criteria", "judges")},
    **{"version": "1", "description": "A toy.", "multi_turn": False, "params_schema": {}},
}


async def asked(question: Callable[[GatewayClient], Awaitable[object]]) -> object:
    async with httpx.AsyncClient(base_url=URL) as client:
        return await question(GatewayClient(client))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, InvalidRequest) for status in (400, 422)),
        (401, Unauthorized),
        (404, NotFound),
        (410, Gone),
        *((status, Unavailable) for status in (408, 429, 500, 503)),
    ],
)
@respx.mock
async def test_what_passes_is_told_from_what_is_refused(status: int, kind: type[Exception]) -> None:
    respx.get(f"{URL}/envs").respond(status, json=PROBLEM)
    with pytest.raises(kind) as raised:
        await asked(lambda gateway: gateway.list_environments())
    assert (type(raised.value), str(raised.value)) == (kind, "too many.")


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut off")]
)
@respx.mock
async def test_who_does_not_answer_may_answer_later(error: httpx.HTTPError) -> None:
    respx.get(f"{URL}/livez").mock(side_effect=error)
    with pytest.raises(Unavailable, match=rf"cannot reach the gateway at {URL} \(set --url\): {error}"):
        await asked(lambda gateway: gateway.fetch_version())


@respx.mock
async def test_what_is_no_problem_of_ours_is_quoted_in_short() -> None:
    respx.get(f"{URL}/judges").respond(502, text="<html>\n  bad gateway " + "x" * 1_000)
    with pytest.raises(Unavailable) as raised:
        await asked(lambda gateway: gateway.list_judges())
    said = str(raised.value)
    assert (said.split(" gateway ")[0], len(said) < 400) == (f"{URL}/judges answered 502: <html> bad", True)


@respx.mock
async def test_a_run_that_is_not_there_is_none() -> None:
    respx.get(f"{URL}/runs/first").respond(404, json=PROBLEM)
    assert await asked(lambda gateway: gateway.fetch_run("first")) is None


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [("chess", NotFound, "available: drill, toy"), ("toy", EnvironmentUnavailable, "toy is not available: no data")],
)
@respx.mock
async def test_an_environment_that_cannot_be_had_is_said(name: str, kind: type[Exception], said: str) -> None:
    listed = [
        {**NOTHING_MORE, "name": one, "available": one != "toy", "reason": "no data" if one == "toy" else None}
        for one in ("toy", "drill")
    ]
    respx.get(f"{URL}/envs").respond(json={"environments": listed})
    with pytest.raises(kind) as raised:
        await asked(lambda gateway: gateway.fetch_environment(name))
    assert said in str(raised.value)
