"""The part `store`: what the present code makes of a store file that was written once and is committed."""

import asyncio
import gzip
import hashlib
import itertools
import json
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
from tests.record.rows import Blocks
from tests.record.serving import answered, gateway, packed

STORE: Final = Path(__file__).with_name("store.sqlite.gz")
REQUESTS: Final = Path(__file__).with_name("store.requests.json.gz")
"""What was sent to it with the answers, and what is to be sent."""
LATER: Final = MOMENT + timedelta(hours=1)
VOLATILE: Final = frozenset({"lease_id", "isolation", "description"})
"""Made by chance, found out by trying, or for people."""
LISTED: Final = (
    "/runs",
    f"/runs/{RUN}",
    "/runs/chosen",
    "/stats",
    "/stats?env=npc_arena",
    "/worlds",
    "/worlds/reedgate",
    "/worlds/reedgate/events?limit=20",
    "/worlds/reedgate/lorebooks",
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
            **{f"~{path}": [await _bare_answer(client, "GET", path)] for path in LISTED},
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
