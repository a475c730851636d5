"""People label groups over HTTP, blind until their label is sent."""

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow.parquet

from tests.support.forked_programs import ROOT
from tests.support.labelling import QUALITIES, contrary, labelled_gateway, opinionated, store_groups
from tests.support.outline import Outline
from tests.support.tables import read_table

LABEL_ROUTES: Final = {
    *("post /labels/next", "post /labels/skip", "delete /labels/{label_id}"),
    *("post /groups/{group_id}/labels", "post /rollouts/{rollout_id}/labels"),
}


async def find_item(client: httpx.AsyncClient, labeller: str, **asked: Any) -> dict[str, Any] | None:
    told = await client.post("/labels/next", json={"labeller": labeller, **asked})
    assert told.status_code == 200, told.text
    item: dict[str, Any] | None = told.json()["item"]
    return item


async def next_item(client: httpx.AsyncClient, labeller: str) -> dict[str, Any]:
    item = await find_item(client, labeller)
    assert item is not None
    return item


def label_of(item: Mapping[str, Any], labeller: str, **more: Any) -> dict[str, Any]:
    """Fair before foul, with a level and a defect."""
    ids = {reply["messages"][0]["content"].split()[0]: reply["rollout_id"] for reply in item["replies"]}
    replies = {
        ids["fair"]: {"levels": {"quality": 3}, "defect": False},
        ids["foul"]: {"levels": {"quality": 0}, "defect": True},
    }
    pair = {"better": ids["fair"], "worse": ids["foul"]}
    return {"labeller": labeller, "lease_id": item["lease_id"], "pair": pair, "replies": replies, **more}


async def test_an_item_is_labelled_blind_and_its_scores_may_be_seen_then(client: httpx.AsyncClient) -> None:
    await store_groups(client, 1)
    item = await next_item(client, "ada")
    assert (item["environment"], item["rubric"]["criteria"][0]["name"]) == ("arena", "quality")
    body = label_of(item, "ada", seconds=12.5, show_judge=True)
    told = (await client.post(f"/groups/{item['group_id']}/labels", json=body)).json()
    if told["judge"] is None:
        assert told["judge_hidden"] == "somebody else is still to label this item"
    else:
        assert {one["absolute"] for one in told["judge"].values()} == {*QUALITIES.values()}
        again = await client.post(f"/groups/{item['group_id']}/labels", json=body)
        assert again.json() == told
        other = await client.post(f"/groups/{item['group_id']}/labels", json=body | {"seconds": 13})
        gone = await client.delete(f"/labels/{told['label_id']}", params={"labeller": "ada"})
        assert (other.status_code, gone.status_code) == (409, 409)
    assert (told["kind"], await find_item(client, "ada")) == ("queue", None)


async def test_what_a_labeller_sees_is_the_same_whatever_the_judges_think(tmp_path: Path) -> None:
    """Two stores that differ in their scores and in who replied alone: every body of a labeller's routes is equal but
    for ids, times and the order by them, and so are the words of the page."""
    told: list[list[str]] = []

    async def play(client: httpx.AsyncClient, policy: str) -> None:
        (group,) = await store_groups(client, 1, policy=policy)
        seen: list[str] = []

        async def ask(method: str, path: str, body: Any = None) -> Any:
            reply = await client.request(method, path, json=body)
            assert reply.status_code == 200, reply.text
            seen.append(_hide_ids(reply.json()))
            return reply.json()

        form = {"labeller": "ada", "environment": "arena", "act": "next"}
        words = Outline((await client.post("/view/label", data=form)).text).words()
        assert "fair" in words
        seen.append(" ".join(sorted(words.split())))  # which reply is A is of the lease alone
        item = (await ask("POST", "/labels/next", {"labeller": "ada"}))["item"]
        await ask("POST", "/labels/skip", {"labeller": "ada", "lease_id": item["lease_id"]})
        held = (await ask("POST", "/labels/next", {"labeller": "bob"}))["item"]
        await ask("POST", f"/rollouts/{group}-0/labels", {"labeller": "cy", "defect": True, "show_judge": True})
        own_pick = {"labeller": "dan", "pair": {"better": f"{group}-0", "worse": f"{group}-1"}, "show_judge": True}
        await ask("POST", f"/groups/{group}/labels", own_pick)
        label = label_of(held, "bob") | {"show_judge": False}
        made = await ask("POST", f"/groups/{group}/labels", label)
        await ask("DELETE", f"/labels/{made['label_id']}?labeller=bob")
        told.append(seen)

    for name, judge in (("one", opinionated), ("other", contrary)):
        async with labelled_gateway(tmp_path / name, judge) as client:
            await play(client, f"policy-{name}")
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    known = {f"{verb} {path}" for path, verbs in paths.items() if "/labels" in path for verb in verbs}
    assert (told[0], known - {"post /labels/import"}) == (told[1], LABEL_ROUTES)


def _hide_ids(value: object) -> str:
    """Lists in an order that does not depend on ids."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_hide_ids(name)}: {_hide_ids(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(sorted(map(_hide_ids, value))) + "]"
    text = re.sub(r"(item|group|label|task)_[0-9a-f]{32}", r"\1", repr(value))
    return re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+", "a time", text)


async def test_labels_are_exported_with_who_made_them_and_how(client: httpx.AsyncClient) -> None:
    """Of the queue and of two labellers, an own pick, a tie, a withdrawn label and an imported choice."""
    (queued,) = await store_groups(client, 1, 1)
    item = await next_item(client, "ada")
    await _label(client, queued, **label_of(item, "ada"))
    first, tied, gone = await store_groups(client, 3)
    pair = {"better": f"{first}-0", "worse": f"{first}-1"}
    defects = {f"{first}-1": {"levels": {"quality": 1}, "defect": True}}
    made = [
        await _label(client, first, labeller="ada", pair=pair, replies=defects, seconds=12.5),
        await _label(client, first, labeller="bob", order=[[f"{first}-1"], [f"{first}-0"]]),
        await _label(client, tied, labeller="ada", order=[[f"{tied}-0", f"{tied}-1"]]),
        await _label(client, gone, labeller="ada", order=[[f"{gone}-0"], [f"{gone}-1"]]),
    ]
    assert (await client.delete(f"/labels/{made[3]}", params={"labeller": "ada"})).status_code == 200
    chosen = {"prompt": [{"role": "user", "content": "Who goes there?"}], "chosen": "A friend.", "rejected": ["Me."]}
    imported = {"labeller": "eve", "choices": [{"kind": "pair", "choice": chosen | {"source": "a.jsonl:1"}}]}
    assert (await client.post("/labels/import", json=imported)).status_code == 200
    rows = [json.loads(line) for line in (await client.get("/export?shape=labels")).text.splitlines()]
    one, other = _texts("fair 0"), _texts("foul 0")
    whole = ("kind", "labeller", "group_id", "run", "chosen", "rejected", "chosen_levels", "rejected_levels")
    more = ("rejected_defect", "seconds", "probability", "source")
    fair, foul, high, low = _texts("fair 1"), _texts("foul 1"), '{"quality":3}', '{"quality":0}'
    assert [tuple(row[name] for name in (*whole, *more)) for row in rows] == [
        ("queue", "ada", queued, "a", fair, foul, high, low, True, None, None, ""),
        ("own_pick", "ada", first, "a", one, other, "{}", '{"quality":1}', True, 12.5, None, ""),
        ("own_pick", "bob", first, "a", other, one, "{}", "{}", None, None, None, ""),
        ("pair", "eve", "", "", _texts("A friend."), _texts("Me."), "{}", "{}", None, None, None, "a.jsonl:1"),
    ]
    assert [row["label_id"] for row in rows[1:3]] == made[:2]
    parquet = await client.get("/export?shape=labels&format=parquet")
    table = pyarrow.parquet.read_table(io.BytesIO(parquet.content)).to_pylist()
    assert [_drop_nulls(row) for row in table] == [_drop_nulls(row) for row in rows]
    summary = (await client.get("/export/summary?shape=labels")).json()
    assert (summary["rows"], summary["left_out"]) == (4, {"no_pair": 1})


async def _label(client: httpx.AsyncClient, group: str, **said: Any) -> str:
    told = await client.post(f"/groups/{group}/labels", json=said)
    assert told.status_code == 200, told.text
    return str(told.json()["label_id"])


def _drop_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """Parquet has every field of a message."""
    messages = {"prompt", "chosen", "rejected"}
    plain = {name: [_drop_nulls(one) for one in row[name]] for name in messages & row.keys()}
    return {name: value for name, value in (dict(row) | plain).items() if value is not None}


def _texts(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


async def test_the_order_of_the_replies_is_that_of_the_lease(client: httpx.AsyncClient) -> None:
    await store_groups(client, 4)
    orders = set()
    for number in range(12):
        item = await find_item(client, f"labeller {number}", lease_seconds=10.0)
        if item is not None:
            orders.add(tuple(reply["rollout_id"][-1] for reply in item["replies"]))
            again = await next_item(client, f"labeller {number}")
            assert again["replies"] == item["replies"]
            await client.post("/labels/skip", json={"labeller": f"labeller {number}", "lease_id": item["lease_id"]})
    assert orders == {("0", "1"), ("1", "0")}


WRONG = read_table(__file__, "routes.yaml", tuple[tuple[dict[str, Any], int, str], ...])


async def test_what_is_wrong_with_a_label_is_named_and_nothing_is_stored(client: httpx.AsyncClient) -> None:
    await store_groups(client, 1)
    item = await next_item(client, "ada")
    label = label_of(item, "ada")
    for change, status, named in WRONG:
        told = await client.post(f"/groups/{item['group_id']}/labels", json=label | change)
        errors = [f"{one['field']}: {one['message']}" for one in told.json().get("errors", [])]
        assert (told.status_code, [one for one in errors if one.startswith(named)] != []) == (status, True), errors
    reply = item["replies"][0]["rollout_id"]
    odd = await client.post(f"/rollouts/{reply}/labels", json={"labeller": "ada", "levels": {"qualty": 1}})
    assert (odd.status_code, "did you mean 'quality'" in odd.text.lower()) == (422, True), odd.text
    held = await next_item(client, "ada")
    assert held["lease_id"] == item["lease_id"]


async def test_a_strict_run_stops_where_its_judge_is_known_to_agree_too_little(database: Path) -> None:
    """People prefer what the judge does not."""
    async with labelled_gateway(database) as client:
        asked: dict[str, Any] = {"min_agreement": 0.7}
        wrong = await client.put("/runs/b", json={"min_agreement": 0.4})
        assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "body.min_agreement")
        for name, more in (("a", {}), ("strict", {"strict": True}), ("other", {"strict": True, "min_agreement": None})):
            assert (await client.put(f"/runs/{name}", json=asked | more)).status_code == 200
        for number in range(15):
            await store_groups(client, 4, number)
        before = (await client.get("/runs/a")).json()["agreement"]
        while (item := await find_item(client, "ada")) is not None:
            body = label_of(item, "ada")
            body["pair"] = {"better": body["pair"]["worse"], "worse": body["pair"]["better"]}
            await client.post(f"/groups/{item['group_id']}/labels", json=body)
        assert (before["alarm"], before["judges"][0]["met"]) == (False, None)
    async with labelled_gateway(database) as client:
        (standing,) = (found := (await client.get("/runs/a")).json()["agreement"])["judges"]
        assert (found["alarm"], found["wanted"], standing["met"], standing["judge"]) == (True, 0.7, False, "judge")
        source = (await client.get("/view/judges/judge?format=json")).json()["sources"][-1]
        shown = [(one["name"], one["value"], one["trials"]) for one in source["evidence"][0]["figures"]]
        assert (source["title"], shown[0]) == ("Labels of your own", ("pair accuracy", 0.0, 60))
        batch = {"batch_size": 1, "cursor": 0}
        statuses = {
            name: (await client.post("/envs/arena/next-batch", json=batch | {"run": name})).status_code
            for name in ("a", "strict", "other")
        }
        assert statuses == {"a": 200, "strict": 409, "other": 200}
        lowered = await client.put("/runs/strict", json={"strict": True, "min_agreement": None})
        assert lowered.json()["min_agreement"] is None
        again = await client.post("/envs/arena/next-batch", json=batch | {"run": "strict"})
        assert again.status_code == 200
