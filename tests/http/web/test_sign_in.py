"""People sign in with a browser: by their key, or by the word of a proxy in front."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from app.cli.serve import keep_peers
from app.domain.access import fold_person
from app.domain.values import Frozen
from app.http.viewer.pages import choose_page
from app.http.web.api_keys import COOKIE
from app.main.application import create_app
from app.settings import Settings, SignInSettings
from tests.support.tables import read_table


class Tables(Frozen):
    proxies: tuple[tuple[str, str, int], ...]
    names: tuple[tuple[str, str | None], ...]


TABLES = read_table(__file__, "sign_in.yaml", Tables)

SECRET = "gw_of-the-settings"
PER_KEY = 12
"""Browsers: more than the tests sign in with the key of the settings."""
HOME = "http://localhost"
OPENED = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ASGIApp]:
    folder: Path = tmp_path_factory.mktemp("sign-in")
    proxy = {"proxy_header": "X-Forwarded-User", "proxy_addresses": ["10.1.2.3"]}
    sign_in = SignInSettings.model_validate({**proxy, "per_key": PER_KEY})
    settings = Settings.model_validate(
        {"database_url": f"sqlite:///{folder}/keys.db", "host": "127.0.0.1", "api_key": SECRET, "sign_in": sign_in}
    )
    made = create_app(settings, environments={})
    with TestClient(made, base_url=HOME):
        yield made


def browser(app: ASGIApp) -> TestClient:
    return TestClient(app, base_url=HOME, follow_redirects=False)


def signed_in(app: ASGIApp, secret: str = SECRET) -> TestClient:
    client = browser(app)
    answer = client.post("/sign-in", data={"key": secret, "next": "/view/groups?judge=ann"}, headers=OWN_PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/view/groups?judge=ann"), answer.text
    return client


def make_key(app: ASGIApp, name: str, **options: object) -> str:
    admin = TestClient(app, base_url=HOME, headers={"Authorization": f"Bearer {SECRET}"})
    secret: str = admin.post("/admin/keys", json={"name": name, **options}).json()["secret"]
    return secret


def test_a_page_without_a_key_leads_to_the_sign_in_page_and_back(app: ASGIApp) -> None:
    client = browser(app)
    led = client.get("/view/groups?judge=ann", headers=OPENED)
    asked = client.get(led.headers["location"])
    called = client.get("/view/judges")
    signed = signed_in(app).get("/view/groups?judge=ann", headers=OPENED)
    assert (led.status_code, asked.status_code, called.status_code, signed.status_code) == (303, 200, 401, 200)
    assert ('value="/view/groups?judge=ann"' in asked.text, "settings" in signed.text) == (True, True)


def test_the_cookie_is_for_this_service_alone_and_holds_no_key(app: ASGIApp) -> None:
    answer = browser(app).post("/sign-in", data={"key": SECRET}, headers=OWN_PAGE)
    told = {part.strip().split("=")[0].lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert (told, SECRET in answer.headers["set-cookie"]) == (
        {"httponly", "max-age", "path", "samesite"},
        False,
    )


@pytest.mark.parametrize(
    ("peer", "scheme", "is_safe"),
    [("127.0.0.1", "https", True), ("127.0.0.1", "http", False), ("10.9.9.9", "https", False)],
)
def test_behind_tls_the_cookie_is_secure_and_of_this_host_alone(
    app: ASGIApp, peer: str, scheme: str, is_safe: bool
) -> None:
    """Also where a trusted proxy ended TLS. A cookie that came in the clear counts for nothing there."""
    headers = {"X-Forwarded-Proto": scheme, **OWN_PAGE}
    asks = TestClient(from_peer(app, peer), base_url=HOME, headers=headers, follow_redirects=False)
    told = asks.post("/sign-in", data={"key": SECRET}).headers["set-cookie"]
    pair, *traits = (part.strip() for part in told.split(";"))
    name, _, value = pair.partition("=")
    asks.cookies.clear()
    seen = [
        asks.get("/view/judges", headers={"Cookie": f"{each}={value}"}).status_code
        for each in (COOKIE, f"__Host-{COOKIE}")
    ]
    gone = asks.post("/sign-out", headers={"Cookie": pair}).headers["set-cookie"]
    assert (name, "Secure" in traits, "Path=/" in traits, "Domain" in told) == (
        f"__Host-{COOKIE}" if is_safe else COOKIE,
        is_safe,
        True,
        False,
    )
    assert (seen, gone.startswith(f'{name}="";'), "Secure" in gone) == (
        [401, 200] if is_safe else [200, 401],
        True,
        is_safe,
    )


def test_a_connection_over_tls_itself_counts_too(app: ASGIApp) -> None:
    client = TestClient(app, base_url="https://localhost", headers=OWN_PAGE, follow_redirects=False)
    client.post("/sign-in", data={"key": SECRET})
    assert ([*client.cookies], client.get("/view/judges").status_code) == ([f"__Host-{COOKIE}"], 200)


def test_a_wrong_key_signs_nobody_in(app: ASGIApp) -> None:
    answer = browser(app).post("/sign-in", data={"key": "gw_wrong"}, headers=OWN_PAGE)
    assert (answer.status_code, "set-cookie" in answer.headers, "gw_wrong" in answer.text) == (403, False, False)


def test_a_key_that_is_open_in_as_many_browsers_as_it_may_be_opens_no_more(app: ASGIApp) -> None:
    secret = make_key(app, "shared")
    first, *_ = (signed_in(app, secret) for _ in range(PER_KEY))
    answer = browser(app).post("/sign-in", data={"key": secret}, headers=OWN_PAGE)
    first.post("/sign-out", headers=OWN_PAGE)
    signed_in(app, secret)
    assert (answer.status_code, "set-cookie" in answer.headers, "Sign out in one of them first." in answer.text) == (
        409,
        False,
        True,
    )


def test_what_changes_something_must_come_from_an_own_page(app: ASGIApp) -> None:
    client = signed_in(app)
    body = {"name": "made-by-cookie"}
    answers = [
        client.post("/admin/keys", json=body, headers=headers)
        for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, OWN_PAGE)
    ]
    assert [answer.status_code for answer in answers] == [401, 403, 403, 200]


def test_signing_out_ends_the_cookie_everywhere(app: ASGIApp) -> None:
    client = signed_in(app)
    value = client.cookies[COOKIE]
    before = client.get("/view/judges").status_code
    client.post("/sign-out", headers=OWN_PAGE)
    other = TestClient(app, base_url=HOME, cookies={COOKIE: value}, follow_redirects=False)
    assert (before, other.get("/view/judges").status_code, COOKIE in client.cookies) == (200, 401, False)


def test_a_rotated_key_ends_its_browsers(app: ASGIApp) -> None:
    client = signed_in(app, make_key(app, "rotated"))
    before = client.get("/view/judges").status_code
    admin = TestClient(app, base_url=HOME, headers={"Authorization": f"Bearer {SECRET}"})
    admin.post("/admin/keys/rotated/rotate", json={})
    assert (before, client.get("/view/judges").status_code) == (200, 401)


def test_a_browser_has_the_scopes_and_bounds_of_its_key(app: ASGIApp) -> None:
    client = signed_in(app, make_key(app, "few", scopes=["read"], bounds={"runs": ["few-*"]}))
    statuses = [client.get(path, headers=OWN_PAGE).status_code for path in ("/runs", "/runs/other-1", "/metrics")]
    assert statuses == [200, 403, 403]


def test_it_leads_nowhere_else() -> None:
    targets = ("//evil.example", "/\\evil.example", "https://evil.example", "/view\r\nSet-Cookie: a=b", "")
    assert (choose_page("/view/judges"), {choose_page(target) for target in targets}) == ("/view/judges", {"/"})


def from_peer(app: ASGIApp, host: str) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await keep_peers(app, "127.0.0.1")({**scope, "client": (host, 5000)}, receive, send)

    return call


@pytest.mark.parametrize(("host", "user", "status"), TABLES.proxies)
def test_a_proxy_names_people_from_its_own_address_alone(app: ASGIApp, host: str, user: str, status: int) -> None:
    headers = {"X-Forwarded-User": user, "X-Forwarded-For": "10.1.2.3"}
    client = TestClient(from_peer(app, host), base_url=HOME, headers=headers, follow_redirects=False)
    page = client.get("/view/judges")
    assert (page.status_code, client.get("/metrics").status_code) == (status, 403 if status == 200 else 401)
    assert ("eve@studio" in page.text) == (status == 200)


@pytest.mark.parametrize("written", ["mia", "Noa", "ZOE"])
def test_a_person_with_a_key_of_that_name_has_its_rights(app: ASGIApp, written: str) -> None:
    """However the proxy writes it: else capitals would lead around the bounds of a key, and around its end."""
    make_key(app, written.casefold(), scopes=["metrics"])
    client = TestClient(from_peer(app, "10.1.2.3"), base_url=HOME, headers={"X-Forwarded-User": written})
    statuses = [client.get(path).status_code for path in ("/metrics", "/runs")]
    admin = TestClient(app, base_url=HOME, headers={"Authorization": f"Bearer {SECRET}"})
    admin.post(f"/admin/keys/{written.casefold()}/revoke", json={})
    assert [*statuses, client.get("/runs").status_code] == [200, 403, 401]


@pytest.mark.parametrize(("name", "known"), TABLES.names)
def test_people_are_known_by_their_names_without_case(name: str, known: str | None) -> None:
    """Letters that fold to plain ones make nobody another person, and nobody is the service itself."""
    assert fold_person(name) == known


def test_a_header_without_addresses_is_refused() -> None:
    with pytest.raises(ValueError, match="need each other"):
        SignInSettings(proxy_header="X-Forwarded-User")


@pytest.mark.parametrize("network", ["10.1.0.0/16", "10.1.2.4/31", "0.0.0.0/0", "2001:db8::/64"])
def test_a_range_is_no_address_of_a_proxy(network: str) -> None:
    with pytest.raises(ValueError, match=f"{network} is a range; name each proxy by its own address"):
        SignInSettings.model_validate({"proxy_header": "X-Forwarded-User", "proxy_addresses": ["10.1.2.3", network]})
