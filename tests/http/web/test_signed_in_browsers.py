"""Browsers that are signed in are looked up by their cookies, however many there are."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from app.domain.access import SignIn, compute_key_digest
from app.domain.errors import StoreUnavailable
from app.http.web import api_keys
from app.http.web.api_keys import COOKIE, SignInLookup
from app.main.application import create_app
from app.settings import Settings
from app.store.api_keys import KeyStore
from tests.support.tables import read_table

LATER = datetime.now(UTC) + timedelta(hours=1)
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}
SECRET = "gw_of-the-settings"

SMALL = read_table(__file__, "small_tables.yaml", dict[str, str])
"""The tables that every replica may read whole, and what they grow by. None of them grows with use."""


class Kept(KeyStore):
    """Sign-ins as a store has them. It writes down what it is asked for."""

    def __init__(self, *digests: str) -> None:
        self.digests = set(digests)
        self.asked: list[int] = []
        self.is_away = False

    async def find_sign_ins(self, digests: Sequence[str]) -> dict[str, SignIn]:
        self.asked.append(len(digests))
        found = {one: SignIn(one, "of-a-key", LATER) for one in digests if one in self.digests}
        await asyncio.sleep(0.01)
        if self.is_away:
            raise StoreUnavailable("away")
        return found


async def test_requests_at_once_are_one_look_up_and_made_up_cookies_are_not_remembered() -> None:
    kept = Kept("a")
    lookup = SignInLookup(kept)
    found = await asyncio.gather(*(lookup.find(one) for one in "aabca"))
    again = [await lookup.find(one) for one in "aab"]
    told = [None if one is None else one.digest for one in (*found, *again)]
    assert (told, kept.asked) == (["a", "a", None, None, "a", "a", "a", None], [3, 1])


async def test_a_flood_of_cookies_is_asked_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "MOST_SIGN_INS", 3)
    kept = Kept(*(f"{n}" for n in range(5)))
    lookup = SignInLookup(kept)
    found = await asyncio.gather(*(lookup.find(f"{n}") for n in range(1_100)))
    again = [await lookup.find(f"{n}") for n in (4, 3, 2, 1)]
    assert (sum(one is not None for one in found), len(again), kept.asked) == (5, 4, [500, 500, 100, 1])


async def test_who_signs_out_while_it_is_looked_up_is_out() -> None:
    kept = Kept("a")
    lookup = SignInLookup(kept)
    first = asyncio.create_task(lookup.find("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    kept.digests.clear()
    lookup.expire()
    assert (await lookup.find("a"), await first) == (None, None)


async def test_another_replica_notices_and_a_store_that_is_away_signs_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_keys, "STALE_SECONDS", 0.02)
    kept = Kept("a")
    lookup = SignInLookup(kept)
    seen = [await lookup.find("a") is not None]
    for is_away, digests in ((True, {"a"}), (False, {"a"}), (False, set[str]())):
        kept.is_away, kept.digests = is_away, digests
        await asyncio.sleep(0.03)
        seen.append(await lookup.find("a") is not None)
    kept.is_away = True
    with pytest.raises(StoreUnavailable):
        await lookup.find("a")
    assert seen == [True, True, True, False]


@pytest.fixture
def written() -> Iterator[list[str]]:
    """Statements of every engine of this process."""
    statements: list[str] = []

    def note(*given: Any) -> None:
        statements.append(" ".join(str(given[2]).split()))

    event.listen(Engine, "before_cursor_execute", note)
    yield statements
    event.remove(Engine, "before_cursor_execute", note)


def find_whole_reads(statements: Sequence[str]) -> set[str]:
    """The tables of selects that have no condition and no limit."""
    whole = (
        re.search(r"^SELECT .* FROM (\w+)(?!.*(?: WHERE | LIMIT | JOIN ))", one)
        for one in statements
        if "count(" not in one and "sqlite_master" not in one
    )
    return {found[1] for found in whole if found is not None}


def test_no_table_that_grows_with_use_is_read_whole(
    tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(api_keys, "STALE_SECONDS", 0.0)
    settings = Settings(database_url=f"sqlite:///{tmp_path}/a.db", host="127.0.0.1", api_key=SECRET)
    with TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client:
        client.post("/sign-in", data={"key": SECRET}, headers=OWN_PAGE)
        pages = ("/", "/view/groups", "/view/runs", "/view/judges", "/view/worlds", "/view/talk")
        answers = [client.get(page).status_code for page in pages]
        client.post("/sign-out", headers=OWN_PAGE)
    named = any("FROM named_keys" in one for one in written)
    assert (set(answers), named, find_whole_reads(written) - {*SMALL}) == ({200}, True, set())


def test_who_is_refused_and_who_signs_out_with_a_made_up_cookie_write_nothing(
    tmp_path: Path, written: list[str]
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    sign_in = {"per_key": 1}
    settings = Settings.model_validate({"database_url": url, "api_key": SECRET, "sign_in": sign_in})
    with TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client:
        statuses = [client.post("/sign-in", data={"key": SECRET}, headers=OWN_PAGE).status_code]
        value = client.cookies[COOKIE]
        written.clear()
        for cookie in ("gw_made-up", "", value[:-1]):
            client.cookies.clear()
            sent = {**OWN_PAGE, "Cookie": f"{COOKIE}={cookie}"}
            statuses.append(client.post("/sign-in", data={"key": SECRET}, headers=sent).status_code)
            statuses.append(client.post("/sign-out", headers=sent).status_code)
        sent = {"Cookie": f"{COOKIE}={value}"}
        statuses.append(client.get("/view/judges", headers=sent).status_code)
    touched = [one for one in written if "sign_ins" in one and not one.startswith("SELECT")]
    assert (statuses, touched) == ([303, *[409, 401] * 3, 200], [])


def test_a_cookie_holds_no_digest_that_is_stored(tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/a.db", host="127.0.0.1", api_key=SECRET)
    with TestClient(create_app(settings), base_url="http://localhost", follow_redirects=False) as client:
        client.post("/sign-in", data={"key": SECRET}, headers=OWN_PAGE)
        digest = compute_key_digest(client.cookies[COOKIE])
        client.cookies.clear()
        status = client.get("/view/judges", headers={"Cookie": f"{COOKIE}={digest}"}).status_code
    assert status == 401
