"""Who a request comes from: an API key, the cookie of a browser in which one was given, or a proxy's word.

The keys are read from the store again when they are older than a second, once for all requests that wait. Up to three
seconds of age a request goes on with those that were read before, so that the store is no part of a request's time;
after that it waits. While the store is away, keys hold for half a minute as they were last read; after that nobody is
let in. Browsers are looked up one by one, by the digests of their cookies: there may be any number of them.

And what they may reach: every route says where it is declared which scope a key needs, and where the bounds of a key
are checked, by `@needs` of its endpoint, or by `declare_access` of a router in which nothing differs. A route of which
nothing is said stops the start of the service, so that none is open because somebody forgot it.
"""

import asyncio
import base64
import binascii
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from time import monotonic
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args
from urllib.parse import quote

from fastapi import Depends
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from app.domain.access import (
    AccessScope,
    Caller,
    KeyBounds,
    SignIn,
    compute_key_digest,
    find_bounds,
    fold_person,
    work_for,
)
from app.domain.errors import Forbidden, GatewayError, RequestRefused, StoreUnavailable
from app.domain.values import utc_now
from app.http.web.problems import build_problem_response
from app.store.api_keys import KeyStore, KnownKeys

log = logging.getLogger(__name__)

_CALLER: Final = "caller"
"""Where the state of a request has its Caller. It has none where no key is needed."""
FRESH_SECONDS: Final = 1.0
"""Keys that were read less long ago are not read again, however many wrong ones arrive."""
STALE_SECONDS: Final = 3.0
"""After so long a request waits until the keys are read again."""
BLIND_SECONDS: Final = 30.0
"""For so long keys are valid as they were last read, while the store cannot be read."""

ALWAYS_OPEN = frozenset({"/livez", "/readyz", "/sign-in", "/favicon.svg"})
"""Probed by orchestrators without a key, and what the page needs on which people give theirs."""
_ASSETS: Final = "/view/assets/"
MOST_SIGN_INS: Final = 4_096
"""Browsers that a process remembers, the newest: some two megabytes. Others are looked up each time."""
_MOST_ASKED: Final = 500
"""Cookies of one look-up. Others wait for the next, so that made-up ones take one reader of the store at most."""
COOKIE: Final = "atropos_session"
_COOKIE_BEHIND_TLS: Final = f"__Host-{COOKIE}"
"""Browsers take a cookie of this name from this very host alone, over TLS: no other of the domain can set it."""
_SAFE: Final = frozenset({"GET", "HEAD"})
PEER: Final = "peer"
"""Where a scope has the address of the connection itself, before any header of a proxy replaces it."""
_PERSON: Final = re.compile(r"[\w.@+-]{1,100}")

_NO_KEY = "An API key is required: `Authorization: Bearer <key>`, or HTTP Basic with the key as password."
_WRONG_KEY = (
    "The API key in the `Authorization` header is not one of this service. Send `Bearer <key>`, or HTTP Basic with the "
    "key as password."
)
_CHALLENGES = ("Bearer", 'Basic realm="gateway", charset="UTF-8"')
"""One header line each: Chromium ignores Basic after Bearer on the same line."""


def is_behind_tls(scope: Scope) -> bool:
    """Also where a trusted proxy ended it, and says so in `X-Forwarded-Proto`."""
    return scope.get("scheme") in {"https", "wss"}


def name_cookie(scope: Scope) -> str:
    """Of the cookie by which the browser of this request is known."""
    return _COOKIE_BEHIND_TLS if is_behind_tls(scope) else COOKIE


def find_caller(scope: Scope) -> Caller | None:
    """None where no key is needed."""
    caller: Caller | None = scope.get("state", {}).get(_CALLER)
    return caller


async def get_bounds(connection: HTTPConnection) -> KeyBounds:
    return find_bounds(find_caller(connection.scope))


CallerBounds = Annotated[KeyBounds, Depends(get_bounds)]
"""What the caller of a handler is bound to."""


async def get_caller(connection: HTTPConnection) -> Caller | None:
    return find_caller(connection.scope)


MaybeCaller = Annotated[Caller | None, Depends(get_caller)]
"""The caller of a handler; None where no key is needed."""


async def get_author(connection: HTTPConnection) -> str:
    caller = find_caller(connection.scope)
    return "" if caller is None else caller.name


CallerName = Annotated[str, Depends(get_author)]
"""The name of the caller's key; empty where no key is needed."""


class SignInLookup:
    """Browsers that are signed in, by the digests of their cookies. What was read holds as long as keys do."""

    def __init__(self, source: KeyStore) -> None:
        self._source = source
        self._known: dict[str, tuple[SignIn, float]] = {}
        """With when they were read."""
        self._expired_at = 0.0
        self._asked: dict[str, asyncio.Future[tuple[SignIn | None, float]]] = {}
        self._reading: asyncio.Task[None] | None = None

    def expire(self) -> None:
        """What was read before does not count any more."""
        self._expired_at = monotonic()

    async def find(self, digest: str) -> SignIn | None:
        """Unavailable when the store cannot be read for so long that nobody knows."""
        known = self._remember(digest, STALE_SECONDS)
        if known is not None:
            return known
        while True:
            try:
                found, read_at = await asyncio.shield(self._ask(digest))
            except StoreUnavailable:
                known = self._remember(digest, BLIND_SECONDS)
                if known is None:
                    raise
                return known
            if read_at >= self._expired_at:  # else a change during the read may not be in it
                return found

    def _remember(self, digest: str, seconds: float) -> SignIn | None:
        sign_in, read_at = self._known.get(digest, (None, 0.0))
        return sign_in if read_at >= self._expired_at and monotonic() - read_at < seconds else None

    def _ask(self, digest: str) -> asyncio.Future[tuple[SignIn | None, float]]:
        loop = asyncio.get_running_loop()
        waiting = self._asked.get(digest)
        if waiting is None:
            waiting = self._asked[digest] = loop.create_future()
        if self._reading is None:
            # In a context of its own: it is read for all requests, so it is in the trace of none.
            self._reading = loop.create_task(self._read_all(), context=Context())
        return waiting

    async def _read_all(self) -> None:
        try:
            while self._asked:
                asked = {digest: self._asked.pop(digest) for digest in list(self._asked)[:_MOST_ASKED]}
                await self._read(asked)
        finally:
            self._reading = None

    async def _read(self, asked: Mapping[str, asyncio.Future[tuple[SignIn | None, float]]]) -> None:
        began = monotonic()
        try:
            found = await self._source.find_sign_ins(list(asked))
        except Exception as error:  # whatever broke: nobody waits for ever
            log.warning("the sign-ins could not be read: %s", error)
            for waiting in asked.values():
                waiting.set_exception(StoreUnavailable("the sign-ins cannot be read"))
                waiting.exception()  # those who asked may have left
            return
        for digest, waiting in asked.items():
            self._known.pop(digest, None)
            if digest in found:
                self._known[digest] = found[digest], began
            waiting.set_result((found.get(digest), began))
        while len(self._known) > MOST_SIGN_INS:
            del self._known[next(iter(self._known))]


class KeyRing:
    """The valid keys by digest. `digests` are those of unnamed ones, with every scope; `source` has the named ones,
    which may change at any time. `anonymous` lets everyone in without a key, as long as there is no named one.

    No request is let in on keys that were read more than STALE_SECONDS ago, while the source can be read."""

    def __init__(
        self,
        digests: Iterable[str],
        anonymous: bool,
        source: KeyStore | None = None,
        *,
        known: KnownKeys | None = None,
        owner: str = "settings",
    ) -> None:
        self._fixed = {digest: Caller(owner, frozenset({"admin"})) for digest in digests}
        self._anonymous = anonymous
        self._source = source
        self._callers = dict(self._fixed)
        self._sign_ins = None if source is None else SignInLookup(source)
        self._read_at = monotonic()
        self._reading: asyncio.Task[None] | None = None
        self._take(known or KnownKeys())

    @property
    def anonymous(self) -> bool:
        """Once there is a named key, a service needs keys for ever: one that is revoked opens nothing."""
        return self._anonymous and not self._keys.named

    @property
    def may_change(self) -> bool:
        return self._source is not None

    def expire(self) -> None:
        """The next request waits until the keys are read again."""
        self._read_at = min(self._read_at, monotonic() - STALE_SECONDS)
        if self._sign_ins is not None:
            self._sign_ins.expire()

    def find_caller(self, authorization: str | None) -> Caller | None:
        """Whose key the `Authorization` header has: `Bearer <key>`, or Basic with any user name and the key as
        password."""
        key = _read_bearer_or_basic_key(authorization or "")
        return None if key is None else self.find_holder(key)

    def find_holder(self, secret: str) -> Caller | None:
        # What the time of a look-up tells is of the digest, of which nobody can choose a bit.
        return self._callers.get(compute_key_digest(secret))

    async def find_sign_in(self, value: str) -> SignIn | None:
        """Of the browser with this cookie, until it is over."""
        found = None if self._sign_ins is None else await self._sign_ins.find(compute_key_digest(value))
        return None if found is None or found.expires_at <= utc_now() else found

    async def find_signed_in(self, value: str) -> Caller | None:
        """Whose key was given in the browser with this cookie."""
        sign_in = await self.find_sign_in(value)
        # Through the key, so that a revoked one signs its browsers out.
        return None if sign_in is None else self._callers.get(sign_in.key_digest)

    def find_person(self, name: str, scopes: Collection[AccessScope]) -> Caller | None:
        """Somebody whom a proxy names: as their key, if there is one of that name; None where it is valid no more."""
        person = fold_person(name)
        if person is None:
            return None
        key = next((one for one in self._keys.named if one.name == person), None)
        if key is None:
            return Caller(person, frozenset(scopes))
        return key.caller if key.is_valid(utc_now()) else None

    async def refresh(self) -> None:
        """Reads the keys again if that is due. Unavailable when nobody knows any more which keys are valid."""
        age = monotonic() - self._read_at
        if self._source is None or age < FRESH_SECONDS:
            return
        if self._reading is None:
            reading = self._read(self._source)
            # In a context of its own: it is read for all requests, so it is in the trace of none.
            self._reading = asyncio.get_running_loop().create_task(reading, context=Context())
        if age >= STALE_SECONDS:
            # `wait` does not cancel the read when this request is cancelled: others wait for it too.
            await asyncio.wait({self._reading}, timeout=STALE_SECONDS)
        if monotonic() - self._read_at > BLIND_SECONDS:
            raise StoreUnavailable("the keys cannot be read, so that nobody knows which of them are valid")

    async def _read(self, source: KeyStore) -> None:
        began = monotonic()  # a change during the read may not be in it, so its age counts from its beginning
        try:
            self._take(await source.load())
            self._read_at = began
        except GatewayError as error:
            log.warning("the keys could not be read: %s", error.detail)
        finally:
            self._reading = None

    def _take(self, keys: KnownKeys) -> None:
        now = utc_now()
        named = {digest: key.caller for key in keys.named for digest in key.list_digests(now)}
        self._keys, self._callers = keys, {**named, **self._fixed}


def _read_authorization(headers: Headers) -> str | None:
    """Clients of the Open Reward Standard send their key as `X-API-Key`."""
    key = headers.get("x-api-key")
    return headers.get("authorization") or (None if key is None else f"Bearer {key}")


def _read_bearer_or_basic_key(authorization: str) -> str | None:
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip() or None
    if scheme.lower() != "basic":
        return None
    try:
        _, colon, password = base64.b64decode(credentials.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return password if colon and password else None


@dataclass(frozen=True)
class ProxySignIn:
    """A proxy in front that signs people in, and names them in a header."""

    header: str
    networks: Collection[IPv4Network | IPv6Network]
    scopes: Collection[AccessScope]

    def read_name(self, scope: Scope) -> str | None:
        """None unless the connection itself is the proxy's."""
        host = (scope.get(PEER) or ("",))[0]
        try:
            trusted = any(ip_address(host) in network for network in self.networks)
        except ValueError:
            return None
        name = Headers(scope=scope).get(self.header, "") if trusted else ""
        return name if _PERSON.fullmatch(name) else None


class ApiKeys:
    """Answers 401 to requests without a valid key, except on open paths; pages that a browser opens lead to the one on
    which a key is given. Web sockets are closed before they are accepted, and at the next message once their key is not
    valid any more."""

    def __init__(
        self,
        app: ASGIApp,
        ring: KeyRing,
        open_paths: frozenset[str] = ALWAYS_OPEN,
        proxy: ProxySignIn | None = None,
    ) -> None:
        self._app = app
        self._ring = ring
        self._open_paths = open_paths
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", "")).removeprefix(scope.get("root_path", ""))
        is_open = path in self._open_paths or path.startswith(_ASSETS)
        if scope["type"] not in {"http", "websocket"} or is_open:
            await self._app(scope, receive, send)
            return
        try:
            await self._ring.refresh()
            caller = None if self._ring.anonymous else await self._find_caller(scope)
        except StoreUnavailable as error:
            await _refuse(scope, send, receive, 503, error.detail)
            return
        if self._ring.anonymous:
            await self._app(scope, receive, send)
            return
        if caller is None:
            await self._refuse_unknown(scope, receive, send)
            return
        scope.setdefault("state", {})[_CALLER] = caller
        checked = self._check_messages(scope, receive, send) if scope["type"] == "websocket" else receive
        with bound_contextvars(key=caller.name), work_for(caller):
            await self._app(scope, checked, send)

    async def _find_caller(self, scope: Scope) -> Caller | None:
        """By a key in the header, by the cookie of a browser, or by the name that a proxy gives."""
        connection = HTTPConnection(scope)
        authorization = _read_authorization(connection.headers)
        if authorization is not None:  # a wrong key is refused, and never replaced by the cookie beside it
            return self._ring.find_caller(authorization)
        value = connection.cookies.get(name_cookie(scope))
        caller = None if value is None else await self._ring.find_signed_in(value)
        if caller is None and self._proxy is not None:
            name = self._proxy.read_name(scope)
            caller = None if name is None else self._ring.find_person(name, self._proxy.scopes)
        return caller if caller is not None and _is_own_request(connection) else None

    async def _refuse_unknown(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        has_key = _read_authorization(headers) is not None
        if scope["type"] == "websocket":
            await _refuse(scope, send, receive, 401, "the API key is wrong" if has_key else "an API key is required")
        elif not has_key and scope["method"] in _SAFE and headers.get("sec-fetch-mode") == "navigate":
            page = quote(str(scope.get("path", "/")).removeprefix(scope.get("root_path", "")))
            query = scope.get("query_string", b"").decode("latin-1")
            target = quote(f"{page}?{query}" if query else page, safe="")
            await RedirectResponse(f"{scope.get('root_path', '')}/sign-in?next={target}", 303)(scope, receive, send)
        else:
            await _refuse(scope, send, receive, 401, _WRONG_KEY if has_key else _NO_KEY)

    def _check_messages(self, scope: Scope, receive: Receive, send: Send) -> Receive:
        async def receive_while_valid() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            with suppress(StoreUnavailable):  # an episode is not lost because the store is away
                await self._ring.refresh()
            try:
                if await self._find_caller(scope) is not None:
                    return message
            except StoreUnavailable:
                return message
            await send({"type": "websocket.close", "code": 1008, "reason": "the API key is not valid any more"})
            return {"type": "websocket.disconnect", "code": 1008}

        return receive_while_valid


def _is_own_request(connection: HTTPConnection) -> bool:
    """Browsers send cookies by themselves: what changes something must say that it comes from a page of this service.
    That what they say is true has been checked before."""
    if connection.scope["type"] == "http" and connection.scope["method"] in _SAFE:
        return True
    return "origin" in connection.headers or "sec-fetch-site" in connection.headers


async def _refuse(scope: Scope, send: Send, receive: Receive, status: int, detail: str) -> None:
    if scope["type"] == "websocket":
        # A close frame has room for 123 bytes of reason.
        await send({"type": "websocket.close", "code": 1008, "reason": detail[:120]})
        return
    response = build_problem_response(scope, status, detail)
    for challenge in _CHALLENGES if status == 401 else ():
        response.headers.append("WWW-Authenticate", challenge)
    await response(scope, receive, send)


# What they may reach. Names that a caller gives are answered 403 with the bound, whether they exist or not; ids of
# others are 404, as if they were not there.

BoundKind = Literal["shared", "handler", "run", "group", "rollout", "world", "closed"]
"""Where the bounds of a key are checked. `shared`: nowhere, since everybody gets the same. `handler`: by the route.
`closed`: bound keys are refused. Others: the part of the path that is named so must be within the bounds."""


class RouteAccess(NamedTuple):
    scope: AccessScope | None
    """None: everybody may come, with a key or without."""
    bound: BoundKind


EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])

_ACCESS: Final = "route_access"
"""What endpoints, and routes that have none of their own, keep it under."""


def needs(scope: AccessScope, bound: BoundKind) -> Callable[[EndpointT], EndpointT]:
    """Says of an endpoint what a key needs to reach it."""

    def declare(endpoint: EndpointT) -> EndpointT:
        return _declare(endpoint, RouteAccess(scope, bound))

    return declare


def open_to_all(endpoint: EndpointT) -> EndpointT:
    """Says of an endpoint that everybody may come, with a key or without."""
    return _declare(endpoint, RouteAccess(None, "shared"))


def _declare(endpoint: EndpointT, access: RouteAccess) -> EndpointT:
    setattr(endpoint, _ACCESS, access)
    return endpoint


def declare_access(routes: Iterable[BaseRoute], scope: AccessScope, bound: BoundKind) -> None:
    """Says it of all these routes, but for those whose endpoint says something itself."""
    for route in routes:
        vars(route)[_ACCESS] = RouteAccess(scope, bound)


def find_access(route: BaseRoute) -> RouteAccess:
    """LookupError for a route of which nothing is said, or something that would check nothing."""
    access = _find_declared(route)
    where = f"{' '.join(list_methods(route))} {vars(route).get('path', '')}"
    if access is None:
        raise LookupError(f"no scope is set for {where}: say with @needs what a key needs to reach it")
    if access.bound not in get_args(BoundKind):
        raise LookupError(f"{access.bound} is no place where bounds are checked: {where}")
    return access


def _find_declared(route: BaseRoute) -> RouteAccess | None:
    kept = vars(route)  # the attributes that are there: asking for others builds a route that puts that off
    declared: RouteAccess | None = getattr(kept.get("endpoint"), _ACCESS, None) or kept.get(_ACCESS)
    return declared


def list_methods(route: BaseRoute) -> list[str]:
    """Web sockets and mounted files count as GET; HEAD is guarded as GET."""
    return sorted((vars(route).get("methods") or {"GET"}) - {"HEAD"})


def describe_scopes(routes: Iterable[BaseRoute]) -> dict[tuple[str, str], str]:
    """By path and method, in small letters, of the documentation."""
    shown = [(route, _find_declared(route)) for route in routes if vars(route).get("include_in_schema")]
    return {
        (vars(route)["path_format"], method.lower()): f"A key needs the scope `{access.scope}`."
        for route, access in shown
        if access is not None and access.scope is not None
        for method in list_methods(route)
    }


RequireGroup = Callable[[KeyBounds, str], Awaitable[None]]
_Handle = Callable[[Scope, Receive, Send], Awaitable[None]]

_NO_ADMIN: Final = (
    "Without a key nobody is an admin here, though all else is open: whoever made keys now would have them for ever. "
    "Make the first one with `atropos-envs keys create`."
)
_OWN_ROUTES: Final = re.compile(r"^/envs/(?P<name>[^/{]+)/")
"""Each environment has routes of its own."""
_DEFAULT_QUEUE: Final = "default"
"""Of an Atropos path that names none."""


@dataclass(frozen=True)
class RouteGate:
    """What a caller of a route needs. `require_group` raises NotFound for a group of others."""

    needed: AccessScope
    bound: BoundKind
    path: str
    methods: frozenset[str]
    require_group: RequireGroup

    async def handle(self, handle: _Handle, scope: Scope, receive: Receive, send: Send) -> None:
        """Checks the caller's scope and bounds before anything else."""
        method = str(scope.get("method", "GET"))
        try:
            if ("GET" if method == "HEAD" else method) in self.methods:
                await self._check(find_caller(scope), scope.get("path_params", {}))
        except RequestRefused as refused:
            if scope["type"] == "websocket":
                # A close frame has room for 123 bytes of reason.
                await send({"type": "websocket.close", "code": 1008, "reason": refused.detail[:120]})
            else:
                await build_problem_response(scope, refused.status, refused.detail)(scope, receive, send)
            return
        await handle(scope, receive, send)

    async def _check(self, caller: Caller | None, values: Mapping[str, str]) -> None:
        """Forbidden; NotFound for what is of others."""
        if caller is None:
            if self.needed == "admin":
                raise Forbidden(_NO_ADMIN)
            return
        if not caller.has(self.needed):
            raise Forbidden(f"The key {caller.name!r} lacks the scope `{self.needed}`, which this needs.")
        if not caller.bounds.is_open:
            await self._check_bounds(caller, values)

    async def _check_bounds(self, caller: Caller, values: Mapping[str, str]) -> None:
        bounds = caller.bounds
        if self.bound == "closed":
            raise Forbidden(f"The key {caller.name!r} is bound to parts of the service, and this is of all of it.")
        # The environment is in the template of its own routes, and a parameter in those of trainers.
        own = _OWN_ROUTES.match(self.path)
        environment = own["name"] if own is not None else values.get("env") if self.bound != "shared" else None
        if environment is not None:
            bounds.require_environment(environment)
        if self.bound == "run":
            bounds.require_run(values.get("run", _DEFAULT_QUEUE))
        elif self.bound == "world":
            bounds.require_world(values["world"])
        elif self.bound in {"group", "rollout"}:
            # A rollout's id is its group's, a hyphen and its number.
            group_id = values.get("group_id") or values.get("rollout_id", "").rpartition("-")[0]
            await self.require_group(bounds, group_id)


def build_gate(route: BaseRoute, require_group: RequireGroup) -> RouteGate | None:
    """None for a route that is open to all. LookupError for one of which nothing is said."""
    scope, bound = find_access(route)
    if scope is None:
        return None
    return RouteGate(scope, bound, str(vars(route)["path"]), frozenset(list_methods(route)), require_group)
