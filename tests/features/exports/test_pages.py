"""What an export of a filter would hold, before it is made."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest

from tests.support.playground import World, gateway
from tests.support.viewing import look, train

EVIL = "</pre><script>alert(1)</script>'\u202e"


@pytest.fixture
async def client(sqlite_url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway(World(), sqlite_url) as client:
        yield client


async def test_an_export_is_previewed_as_it_would_be(client: httpx.AsyncClient) -> None:
    await train(client, "a", [("0.1", "0.3"), ("0.2", "0.6"), ("0.9", "0.7"), ("0.8", "0.8")])
    narrowed = "run=a&min_mean=0.3&max_step=2"
    data = (await client.get(f"/view/export?{narrowed}&shape=dpo&file=parquet&format=json")).json()
    counted = {
        shape: (await client.get(f"/export/summary?{narrowed}&shape={shape}")).json()
        for shape in ("rollouts", "sft", "dpo", "kto")
    }
    assert data["preview"]["summaries"] == counted
    assert (data["preview"]["groups"], data["found"]["matched"], len(data["preview"]["rows"])) == (2, 2, 2)
    page = await look(client, f"/view/export?{narrowed}&shape=dpo&file=parquet")
    address = "/export?run=a&max_step=2&min_mean=0.3&shape=dpo&format=parquet"
    assert address in page.links()
    assert (await client.get(address)).status_code == 200
    assert "atropos-envs export dpo.parquet --run a --max-step 2 --min-mean 0.3 --shape dpo" in page.words()
    listed = await look(client, f"/view/groups?{narrowed}")
    assert "/view/export?run=a&max_step=2&min_mean=0.3" in listed.links()


async def test_what_is_not_understood_is_told_and_stays_text(client: httpx.AsyncClient) -> None:
    await train(client, "a", [("<script>alert(1)</script>0.4", "0.3")])
    page = await look(client, f"/view/export?label={quote(EVIL)}&margin=7&min_step=x")
    assert (page.elements.count("script"), '`margin`: "7" was given; wanted' in page.words()) == (1, True)
    assert 'Not used: `min_step`: "x" was given; wanted is a whole number' in page.words()
    assert "`nope`: unknown environment" in (await look(client, "/view/export?environment=nope")).words()
    secret = (await look(client, "/view/export?shape=judgements")).words()
    assert "set private as well" in secret
    rows = await look(client, "/view/export?shape=rollouts")
    assert (rows.elements.count("script"), "<script>alert(1)</script>0.4" in rows.words()) == (1, True)
    assert "No row." in (await look(client, "/view/export?shape=labels")).words()
    backwards = await look(client, "/view/export?since=2026-02-01&until=2026-01-01&run=a")
    assert "until must be later than since. Change the filter: there is nothing to fetch." in backwards.words()
    found = [link for link in backwards.links() if link.startswith("/export")], "curl" in backwards.words()
    assert found == ([], False)
