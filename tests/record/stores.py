"""The part `store`: what the present code makes of a store file that was written once and is committed."""

import asyncio
import gzip
import hashlib
import itertools
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlencode

import httpx
from pydantic import JsonValue

from app.features.exports.model import ExportFormat, ExportShape
from tests.record.first_act import MOMENT, RUN, Request, play
from tests.record.hosting import all_hosted
from tests.record.rows import Blocks, as_plain
from tests.record.serving import answered, gateway, packed

STORE: Final = Path(__file__).with_name("store.sqlite.gz")
REQUESTS: Final = Path(__file__).with_name("store.requests.json.gz")
"""What was sent to it with the answers, and what is to be sent."""
LATER: Final = MOMENT + timedelta(hours=1)
VOLATILE: Final = frozenset({"lease_id", "isolation", "description"})
"""Made by chance, found out by trying, or for people."""
PAGES: Final = (
    "/",
    "/?env=npc_arena",
    "/view/runs",
    "/view/judges",
    "/view/atropos",
    "/view/worlds",
    "/view/worlds/reedgate",
    "/docs",
    "/favicon.svg",
)
LISTED: Final = (
    "/runs",
    f"/runs/{RUN}",
    "/runs/chosen",
    "/stats",
    "/stats?env=npc_arena",
    "/judges",
    "/characters",
    "/worlds",
    "/worlds/reedgate",
    "/worlds/reedgate/events?limit=20",
    "/worlds/reedgate/lorebooks",
    "/envs",
)
CHOSEN: Final[Sequence[Mapping[str, str]]] = (
    {},
    {"offline_judge": "true"},
    {"offline_judge": "true", "private": "true"},
    {"offline_judge": "true", "threshold": "0.2", "margin": "0.05", "pairs": "3"},
    {"offline_judge": "true", "top_k": "2"},
    {"offline_judge": "true", "purpose": "eval"},
    {"run": "chosen", "offline_judge": "true"},
    {"judge": "offline", "offline_judge": "true"},
    {"env": "npc_arena", "offline_judge": "true"},
)


def store() -> Blocks:
    """The file is made where there is none: remove it to have another."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "store.db"
        if not STORE.is_file():
            asyncio.run(_written(database))
            database.unlink()
        database.write_bytes(gzip.decompress(STORE.read_bytes()))
        requests = [Request(**one) for one in json.loads(gzip.decompress(REQUESTS.read_bytes()))]
        return asyncio.run(_played(database, requests))


async def _written(database: Path) -> None:
    async with gateway(database, MOMENT) as client:
        requests = [asdict(request) async for request in play(client)]
    STORE.write_bytes(packed(database))
    REQUESTS.write_bytes(gzip.compress(json.dumps(requests, sort_keys=True).encode(), mtime=0))


async def _played(database: Path, requests: Sequence[Request]) -> Blocks:
    sent = [request for request in requests if request.answer is not None]
    held = [request for request in requests if request.answer is None]
    async with gateway(database, LATER) as client:
        before = await _exports(client)
        again = [await _again(client, request) for request in sent]
        same = await _exports(client)
        scored = [await _bare_answer(client, "POST", request.path, request.body) for request in held]
        groups = [*_groups(sent), *(group for answer in scored for group in _groups_in(answer))]
        return {
            "exports": before,
            "exports after requests were sent again are the same": [before == same],
            "sent again": [{"path": path, "same": same} for path, same in again],
            "~scored now": scored,
            "scored now, rewards": [_rewards(answer) for answer in scored],
            "~scored anew": [await _bare_answer(client, "POST", f"/groups/{one}/rescore", {}) for one in groups[::7]],
            "~groups": [await _bare_answer(client, "GET", f"/groups/{one}") for one in groups],
            "~tasks": [await _bare_answer(client, "GET", f"/tasks/{one}") for one in _tasks(requests)],
            "~handed out": [await _handed_out(client, name) for name in all_hosted()],
            "~steps": await _steps(client),
            **{f"~{path}": [await _bare_answer(client, "GET", path)] for path in LISTED},
            "~environments": [await _bare_answer(client, "GET", f"/envs/{name}") for name in all_hosted()],
            "pages": [await _page(client, path) for path in (*PAGES, *(f"/view/groups/{one}" for one in groups[::5]))],
            "~metrics": await _series(client),
            "exports afterwards": await _exports(client),
        }


async def _again(client: httpx.AsyncClient, request: Request) -> tuple[str, bool]:
    """A request that was answered before gets that answer."""
    answer = await answered(client, "POST", request.path, request.body, request.headers)
    return request.path, answer == request.answer


async def _exports(client: httpx.AsyncClient) -> list[JsonValue]:
    """Size and digest of every file that can be had."""
    found: list[JsonValue] = []
    for shape, form, chosen in itertools.product(get_args(ExportShape), get_args(ExportFormat), CHOSEN):
        query = urlencode({"shape": shape, "format": form, **chosen})
        response = await client.get(f"/export?{query}")
        content = response.content
        digest = hashlib.sha256(content).hexdigest() if response.is_success else ""  # a refusal names its request
        found.append([query, response.status_code, len(content), content.count(b"\n"), digest])
    return found


async def _page(client: httpx.AsyncClient, path: str) -> JsonValue:
    response = await client.get(path)
    return [path, response.status_code, hashlib.sha256(response.content).hexdigest()]


async def _series(client: httpx.AsyncClient) -> list[JsonValue]:
    """Names and labels of what was counted, without numbers; workers' functions without their modules."""
    lines = (await client.get("/metrics")).text.splitlines()
    named = {line.rpartition(" ")[0] for line in lines if line.startswith("atropos_envs") and "/readyz" not in line}
    plain = {re.sub(r'function="[^":]*:', 'function="', name) for name in named}
    return [*sorted(plain)]


async def _handed_out(client: httpx.AsyncClient, name: str) -> JsonValue:
    leased = await _bare_answer(client, "POST", f"/envs/{name}/next-batch", {"run": RUN, "batch_size": 5})
    looked = await _bare_answer(client, "GET", f"/envs/{name}/next-batch?batch_size=3&cursor=11&split=test")
    return [leased, looked]


async def _steps(client: httpx.AsyncClient) -> list[JsonValue]:
    """The first reply in every environment of several turns, over HTTP."""
    found: list[JsonValue] = []
    for name, hosted in all_hosted().items():
        if not hosted.environment.multi_turn:
            continue
        params = {"turns": "multi"} if "turns" in hosted.environment.Params.model_fields else {}
        batch = await client.post(f"/envs/{name}/next-batch", json={"batch_size": 3, "cursor": 0, "params": params})
        for task in batch.json()["tasks"]:
            said = [{"role": "assistant", "content": "<answer>hit</answer>"}]
            body: JsonValue = as_plain({"task_id": task["task_id"], "messages": said})
            found.append(await _bare_answer(client, "POST", f"/envs/{name}/step", body))
    return found


async def _bare_answer(client: httpx.AsyncClient, method: str, path: str, body: JsonValue = None) -> JsonValue:
    return _bare(await answered(client, method, path, body))


def _bare(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key not in VOLATILE}
    return value


def _groups(requests: Sequence[Request]) -> list[str]:
    return [group for request in requests for group in _groups_in(request.answer)]


def _groups_in(answer: Any) -> list[str]:
    return [group["group_id"] for group in answer["reply"]["groups"] if "group_id" in group]


def _rewards(answer: Any) -> JsonValue:
    return [group.get("rewards") for group in answer["reply"]["groups"]]


def _tasks(requests: Sequence[Request]) -> list[str]:
    bodies: list[Any] = [request.body for request in requests]
    return sorted({group["task_id"] for body in bodies for group in body["groups"]})
