"""What is pruned or reduced says so wherever it is read; a repeat gets its scores, what needs the text is refused."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import JsonValue
from sqlalchemy import delete

from app.domain.keeping import KeepLevel
from app.domain.retention import PruneRule, ReduceRule
from app.service.background import Pruner
from app.store.tables import part_members, parts
from tests.http.api.asking import answer, take
from tests.support.databases import connected
from tests.support.former_reductions import drop_texts
from tests.support.playground import World
from tests.support.store_cases import opened

AFTER = datetime(2040, 1, 1, tzinfo=UTC)  # of all that the gateway's clock says
TOKENS: dict[str, JsonValue] = {"token_ids": [1, 2, 3], "logprobs": [-0.5, -0.25, 0.0]}
SHAPES = ("rollouts", "sft", "dpo", "kto")


def forget_pieces(database: Path) -> None:
    """As the service does after a day."""
    with connected(f"sqlite:///{database}") as connection:
        connection.execute(delete(part_members))
        connection.execute(delete(parts))


async def reduce(database: Path, keep: KeepLevel = "texts") -> int:
    async with opened(f"sqlite:///{database}") as store:
        pruner = Pruner(store.retention, store.claims, pauses=0.0)
        plan = await pruner.plan_reduction(ReduceRule(before=AFTER, keep=keep))
        return (await pruner.reduce(plan, lambda _: None)).groups


async def build_group(client: httpx.AsyncClient) -> dict[str, Any]:
    task = await take(client, cursor=7)
    return {"task_id": task.task_id, "completions": [{"text": text} | TOKENS for text in ("0.9", "0.2")]}


async def score(client: httpx.AsyncClient, group: dict[str, Any]) -> dict[str, Any]:
    reply: dict[str, Any] = (await client.post("/score", json={"run": "a", "groups": [group]})).json()["groups"][0]
    return reply


async def export(client: httpx.AsyncClient, shape: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    wanted: dict[str, str] = {"shape": shape, "threshold": "0.1"} if shape in {"sft", "kto"} else {"shape": shape}
    rows = (await client.get("/export", params=wanted)).text.splitlines()
    counted = (await client.get("/export/summary", params=wanted)).json()
    return [json.loads(row) for row in rows], counted["left_out"]


async def test_a_repeat_gets_its_scores_and_what_needs_the_text_is_refused(
    client: httpx.AsyncClient, world: World, database: Path
) -> None:
    sent = await build_group(client)
    first = await score(client, sent)
    there = f"/groups/{first['group_id']}"
    rescored = (await client.post(f"{there}/rescore", json={})).json()["scoring"]
    dropped, scorings = drop_texts(f"sqlite:///{database}"), Counter(world.scorings)
    same = [await score(client, sent) == first, world.scorings == scorings]
    known = (await client.post(f"{there}/rescore", json={})).json()["scoring"]
    asked = [
        await client.post(f"{there}/rescore", json={"on_truncated": "score"}),
        await client.post(f"{there}/rescore/estimate", json={"on_truncated": "score"}),
        await client.post(
            f"{there}/labels", json={"labeller": "ann", "replies": {f"{first['group_id']}-0": {"defect": True}}}
        ),
        await client.post(f"/rollouts/{first['group_id']}-0/labels", json={"labeller": "ann", "defect": True}),
    ]
    refused = [(one.status_code, one.json()["code"]) for one in asked]
    exported = [await export(client, shape) for shape in SHAPES]
    seen = [dropped, *same, known["scores"] == rescored["scores"]], [*refused], [*exported]
    assert seen == (
        [1, True, True, True],
        [(410, "reduced")] * 4,
        [([], {"reduced": 2})] * 4,
    )


async def test_readers_see_digests_in_place_of_parts(client: httpx.AsyncClient, database: Path) -> None:
    put = (await client.put("/runs/a", json={"keep": "texts"})).json()["keep"]
    sent = await build_group(client)
    group_id = (await score(client, sent))["group_id"]
    await reduce(database, "all")  # the run's own choice is enough
    seen = (await client.get(f"/groups/{group_id}")).json()["group"]["rollouts"][0]
    page = (await client.get(f"/view/groups/{group_id}", headers={"Accept": "text/html"})).text
    rows, _ = await export(client, "rollouts")
    shown = ["tokens: the run keeps a digest alone since" in page, "3 numbers, sha256 a615eeaee21de517" in page]
    rest = [put, rows[0]["not_kept"], rows[0]["token_ids"], len(rows)]
    mark = seen["reduced"]
    assert (mark.pop("at") > "2", mark, seen["completion"]["text"], shown, rest) == (
        True,
        {
            "by": "run",
            "tokens": {"sha256": "a615eeaee21de5179de080de8c3052c8da901138406ba71c38c032845f7d54f4", "count": 3},
            "logprobs": {"sha256": mark["logprobs"]["sha256"], "count": 3},
        },
        "0.9",
        [True, True],
        ["texts", ["tokens", "logprobs"], [], 2],
    )


async def test_a_choice_that_cannot_be_is_refused(client: httpx.AsyncClient) -> None:
    wrong: list[JsonValue] = ["none", {"tokens": "digest", "logprobs": "digest"}, True]
    replies = [await client.put("/runs/a", json={"keep": keep}) for keep in wrong]
    assert [(one.status_code, one.json()["errors"][0]["field"][:9]) for one in replies] == [(422, "body.keep")] * 3


async def prune(database: Path) -> int:
    async with opened(f"sqlite:///{database}") as store:
        pruner = Pruner(store.retention, store.claims, pauses=0.0)
        plan = await pruner.plan(PruneRule(before=AFTER))
        return (await pruner.prune(plan, lambda _: None)).groups


async def take_both_and_score(
    client: httpx.AsyncClient, environment: str = "toy"
) -> tuple[dict[str, JsonValue], dict[str, JsonValue], str]:
    """Of a task of a cursor and of a leased one: what is sent, and the group of the former."""
    with_lease = answer(await take(client, environment), "3")
    plain = answer(await take(client, environment, cursor=7), "1", "2")
    reply = await client.post("/score", json={"run": "a", "groups": [with_lease, plain]})
    return with_lease, plain, reply.json()["groups"][1]["group_id"]


@pytest.mark.parametrize("environment", ["toy", "drill"])
async def test_a_pruned_group_says_so_and_its_task_still_scores(
    client: httpx.AsyncClient, environment: str, database: Path
) -> None:
    """Also where groups are scored at once, without looking for known ones."""
    with_lease, plain, group_id = await take_both_and_score(client, environment)
    pruned = await prune(database)
    seen = await client.get(f"/groups/{group_id}")
    page = await client.get(f"/view/groups/{group_id}", headers={"Accept": "text/html"})
    again = (await client.post("/score", json={"run": "a", "groups": [with_lease, plain]})).json()["groups"]
    new = plain | {"completions": [{"text": "8"}, {"text": "9"}]}
    mixed = (await client.post("/score", json={"run": "a", "groups": [plain, new]})).json()["groups"]
    stored = (await client.get("/groups")).json()["groups"]
    found = [
        *(pruned, seen.status_code, seen.json()["code"], group_id in seen.json()["detail"], page.status_code),
        *([one.get("code") for one in again], [one.get("code") for one in mixed]),
        *(len(mixed[1]["rewards"]), len(stored)),
    ]
    codes = ["not_found", "pruned"], ["pruned", None]  # the lease went with its group
    assert found == [2, 410, "pruned", True, 410, *codes, 2, 1]


async def test_a_piece_of_a_pruned_group_is_refused_and_the_groups_beside_it_are_scored(
    client: httpx.AsyncClient, database: Path
) -> None:
    _, plain, _ = await take_both_and_score(client)
    part = plain | {"completions": [{"text": "1"}], "part": {"key": "k", "index": 0, "size": 1}}
    first = await client.post("/score", json={"run": "a", "groups": [part]})
    pruned = [await prune(database)]
    forget_pieces(database)
    pruned.append(await prune(database))
    new = plain | {"completions": [{"text": "8"}, {"text": "9"}]}
    again = (await client.post("/score", json={"run": "a", "groups": [part, new]})).json()["groups"]
    seen = [first.json()["groups"][0]["outcome"], pruned, again[0]["code"], again[1]["outcome"]]
    assert seen == ["scored", [2, 1], "pruned", "scored"]
