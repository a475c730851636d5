"""Pages over a whole service: something is trained, and somebody looks at it."""

from collections.abc import Sequence

import httpx

from tests.support.outline import Outline


async def answer(
    client: httpx.AsyncClient, run: str, step: int, said: Sequence[Sequence[str]], environment: str = "toy"
) -> list[str]:
    """What a run says at a step to the first tasks, one group for each. Returns the groups."""
    asked = {"run": run, "batch_size": 4, "cursor": 0, "split": "train"}
    tasks = (await client.post(f"/envs/{environment}/next-batch", json=asked)).json()["tasks"]
    order = sorted(tasks, key=lambda task: task["metadata"]["number"])
    groups = [
        {"task_id": task["task_id"], "completions": [{"text": text} for text in texts]}
        for task, texts in zip(order, said, strict=False)
    ]
    body = {"run": run, "policy": {"model": "m", "step": step}, "groups": groups}
    replies = (await client.post("/score", json=body)).raise_for_status().json()["groups"]
    return [reply["group_id"] for reply in replies]


async def train(client: httpx.AsyncClient, run: str, said: Sequence[tuple[str, str]], environment: str = "toy") -> None:
    """One group for each step, of two completions."""
    for step, texts in enumerate(said):
        asked = {"run": run, "batch_size": 1, "policy": {"step": step}}
        task = (await client.post(f"/envs/{environment}/next-batch", json=asked)).json()["tasks"][0]
        group = {**{name: task[name] for name in ("task_id", "lease_id")}, "completions": [{"text": t} for t in texts]}
        body = {"run": run, "groups": [group], "policy": {"model": "m", "step": step}}
        assert (await client.post(f"/envs/{environment}/score", json=body)).status_code == 200


async def look(client: httpx.AsyncClient, path: str) -> Outline:
    response = await client.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    outline = Outline(response.text)
    assert outline.open == []
    assert [a for a in outline.attributes if a[1] == "style" or a[1].startswith("on")] == []
    return outline
