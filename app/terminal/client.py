"""The client with which commands ask a running gateway.

Every refusal is one of two kinds: Unavailable, which may pass, so `Retrier` asks again; and RequestRefused, which will
not.
"""

import asyncio
import contextlib
import random
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeVar

import httpx
import typer
from pydantic import JsonValue, SecretStr, ValidationError

from app.domain.errors import (
    EnvironmentUnavailable,
    GatewayError,
    Gone,
    InvalidRequest,
    NotFound,
    RequestRefused,
    Unauthorized,
    Unavailable,
    UserError,
)
from app.domain.faults import describe_faults, explain_connection, quote
from app.domain.parts import GroupPart
from app.domain.runs import Purpose, Run
from app.domain.tasks import Completion, Message, Turn
from app.domain.values import Described, Frozen, suggest
from app.http.api.models import (
    EnvironmentInfo,
    EnvironmentList,
    GroupPage,
    GroupView,
    JudgeList,
    ServiceHealth,
    StatisticsView,
    TaskView,
)
from app.http.web.problems import Problem
from app.service.requests import GroupProblem, GroupReply, ScoreResponse, TaskBatch
from app.service.rescoring import RescoreEstimate, RescoreReply, RescoreRequest
from app.service.runs import RunReport, RunSettings
from app.settings import read_settings
from app.terminal.consoles import describe_error, stop
from app.toolkit.texts import escape_invisible

_PageT = TypeVar("_PageT", bound=Frozen)

_KINDS: Mapping[int, type[RequestRefused]] = {401: Unauthorized, 404: NotFound, 410: Gone}


@dataclass(frozen=True)
class AnsweredTask:
    """A task with the completions to score."""

    task_id: str
    lease_id: str | None
    completions: Sequence[Completion]
    part: GroupPart | None = None
    """Which places of a larger group they have."""


@dataclass(frozen=True)
class GatewayClient:
    """Every request raises Unavailable when a retry may help, and RequestRefused with the gateway's message when it
    cannot help."""

    client: httpx.AsyncClient

    async def list_environments(self) -> EnvironmentList:
        return EnvironmentList.model_validate_json(await self.send_request("GET", "/envs"))

    async def list_judges(self) -> JudgeList:
        return JudgeList.model_validate_json(await self.send_request("GET", "/judges"))

    async def fetch_version(self) -> str:
        return ServiceHealth.model_validate_json(await self.send_request("GET", "/livez")).version

    async def require_run(self, name: str) -> Run:
        """NotFound, with near names, when there is no run of this name."""
        return RunReport.model_validate_json(await self.send_request("GET", f"/runs/{name}")).run

    async def fetch_run(self, name: str) -> Run | None:
        """None while there is no run of this name."""
        try:
            return await self.require_run(name)
        except NotFound:
            return None

    async def put_run(self, name: str, settings: RunSettings) -> Run:
        body = settings.model_dump(mode="json", exclude_unset=True)
        return Run.model_validate_json(await self.send_request("PUT", f"/runs/{name}", body))

    async def change_run(self, name: str, changes: Mapping[str, object]) -> Run:
        """Makes the run where there is none. What is fixed is sent as it is, since a PUT names all of it."""
        stored = await self.fetch_run(name)
        fixed = {} if stored is None else stored.model_dump(include={"seed", "strict", "options"}, exclude_unset=True)
        return await self.put_run(name, RunSettings.model_validate({**fixed, **changes}))

    async def fetch_page(self, path: str, kind: type[_PageT], filters: Mapping[str, str] | None = None) -> _PageT:
        """A page of the viewer as data."""
        query = httpx.QueryParams({**(filters or {}), "format": "json"})
        return kind.model_validate_json(await self.send_request("GET", f"{path}?{query}"))

    async def fetch_group(self, group_id: str) -> GroupView:
        return GroupView.model_validate_json(await self.send_request("GET", f"/groups/{group_id}"))

    async def find_group(self, group_id: str) -> GroupView | None:
        """None where there is no such group. Gone where there was one that is pruned."""
        try:
            return await self.fetch_group(group_id)
        except NotFound:
            return None

    async def list_groups(self, query: Mapping[str, str]) -> GroupPage:
        """A page of stored groups, newest first."""
        return GroupPage.model_validate_json(await self.send_request("GET", f"/groups?{httpx.QueryParams(query)}"))

    async def fetch_statistics(self, query: Mapping[str, str]) -> StatisticsView:
        return StatisticsView.model_validate_json(await self.send_request("GET", f"/stats?{httpx.QueryParams(query)}"))

    async def rescore(self, group_id: str, request: RescoreRequest) -> RescoreReply:
        body = request.model_dump(mode="json", exclude_none=True)
        return RescoreReply.model_validate_json(await self.send_request("POST", f"/groups/{group_id}/rescore", body))

    async def estimate_rescore(self, group_id: str, request: RescoreRequest) -> RescoreEstimate:
        body, path = request.model_dump(mode="json", exclude_none=True), f"/groups/{group_id}/rescore/estimate"
        return RescoreEstimate.model_validate_json(await self.send_request("POST", path, body))

    async def fetch_task(self, task_id: str) -> TaskView:
        return TaskView.model_validate_json(await self.send_request("GET", f"/tasks/{task_id}"))

    async def fetch_environment(self, name: str) -> EnvironmentInfo:
        """An available environment. NotFound, or EnvironmentUnavailable with the reason."""
        listed = {one.name: one for one in (await self.list_environments()).environments}
        environment = listed.get(name)
        if environment is None:
            near = suggest(name, listed) or f"; available: {', '.join(sorted(listed))}"
            raise NotFound(f"the gateway has no environment {name!r}{near}")
        if not environment.available:
            raise EnvironmentUnavailable(f"{name} is not available: {environment.reason}")
        return environment

    async def fetch_next_batch(self, ask: Mapping[str, JsonValue], environment: str | None = None) -> TaskBatch:
        """Tasks of one environment, or of the mixture in `ask`."""
        path = "/next-batch" if environment is None else f"/envs/{environment}/next-batch"
        return TaskBatch.model_validate_json(await self.send_request("POST", path, dict(ask)))

    async def step(self, environment: str, task_id: str, messages: Sequence[Message]) -> Turn:
        written: list[JsonValue] = [message.model_dump(mode="json") for message in messages]
        body: dict[str, JsonValue] = {"task_id": task_id, "messages": written}
        return Turn.model_validate_json(await self.send_request("POST", f"/envs/{environment}/step", body))

    async def score(
        self,
        groups: Sequence[AnsweredTask],
        run: str | None,
        policy: Mapping[str, JsonValue] | None,
        purpose: Purpose = "train",
        wait_seconds: float | None = None,
    ) -> tuple[GroupReply | GroupProblem, ...]:
        """Replies in the order of `groups`, each with its scores; after `wait_seconds` also without."""
        written: list[JsonValue] = [_encode_group(group) for group in groups]
        body: dict[str, JsonValue] = {"groups": written, "run": run, "purpose": purpose}
        if policy is not None:
            body["policy"] = dict(policy)
        if wait_seconds is not None:
            body["wait_seconds"] = wait_seconds
        reply = await self._ask("POST", "/score", body, None)
        if reply.status_code in range(400, 500) and (refused := _read_refused_groups(reply.content)):
            return refused
        return ScoreResponse.model_validate_json(self._take(reply)).groups

    async def send_request(
        self, method: str, path: str, body: Mapping[str, JsonValue] | None = None, content: bytes | None = None
    ) -> bytes:
        """The body of the reply."""
        return self._take(await self._ask(method, path, body, content))

    async def _ask(
        self, method: str, path: str, body: Mapping[str, JsonValue] | None, content: bytes | None
    ) -> httpx.Response:
        try:
            return await self.client.request(method, path, json=body, content=content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(describe_silence(self.address, error)) from error

    @property
    def address(self) -> str:
        return str(self.client.base_url).rstrip("/")

    def _take(self, reply: httpx.Response) -> bytes:
        if reply.is_success:
            return reply.content
        words = describe_refusal(reply)
        if reply.status_code >= 500 or reply.status_code in {408, 429}:
            raise Unavailable(words)
        raise _KINDS.get(reply.status_code, InvalidRequest)(words)


class _RefusedGroups(Described):
    """What a reply of status 4xx says of each group, where none was accepted."""

    groups: tuple[GroupProblem, ...]


def _read_refused_groups(content: bytes) -> tuple[GroupProblem, ...]:
    """Empty for a request that was refused as a whole."""
    try:
        return _RefusedGroups.model_validate_json(content).groups
    except ValidationError:
        return ()


def _encode_group(group: AnsweredTask) -> JsonValue:
    completions: list[JsonValue] = [one.model_dump(mode="json", exclude_defaults=True) for one in group.completions]
    part: dict[str, JsonValue] = {} if group.part is None else {"part": group.part.model_dump(mode="json")}
    return {"task_id": group.task_id, "lease_id": group.lease_id, "completions": completions, **part}


_PART_OF_REQUEST: Final = re.compile(r"^`(?:body|path|query)\.")
"""Before a field, which whoever wrote a command did not put there."""


def describe_refusal(reply: httpx.Response) -> str:
    """The gateway's reason for refusing a request, with the field first. Of what may be no gateway: who answered."""
    try:
        problem = Problem.model_validate_json(reply.content)
    except ValidationError:
        text = " ".join(reply.text.split())[:300]
        return f"{describe_url(str(reply.url))} answered {reply.status_code}{text and f': {text}'}"
    is_said = not problem.errors or (len(problem.errors) == 1 and problem.detail.startswith("`"))
    said = [problem.detail] if is_said else [f"`{one.field}`: {one.message}" for one in problem.errors]
    return "; ".join(_PART_OF_REQUEST.sub("`", one) for one in said)


def describe_silence(address: str, error: httpx.HTTPError | httpx.InvalidURL) -> str:
    return f"cannot reach the gateway at {address} (set --url): {explain_connection(error)}"


# Where the gateway is, and the keys that are sent.

_NEAR: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}  # noqa: S104 - not listened on
"""What to open on this machine instead of what is listened on: a socket of all IPv6 addresses takes no IPv4."""


def find_gateway_url() -> str:
    """URL of the gateway that these settings serve on this machine."""
    try:
        settings = read_settings()
    except UserError as error:
        raise typer.BadParameter(str(error)) from error
    return build_local_url(settings.host, settings.port)


def build_local_url(host: str, port: int) -> str:
    """Where what listens on this address can be opened on this machine."""
    return f"http://{join_address(_NEAR.get(host, host), port)}"


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def describe_url(url: str) -> str:
    """The address for a report: without a name and password that stand in it. Empty for what is no web address."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return ""
    has_port = parsed.port is None or 0 < parsed.port < 2**16
    if parsed.scheme not in {"http", "https"} or not parsed.host or not has_port:
        return ""
    return str(parsed.copy_with(username=None, password=None, query=None, fragment=None)).rstrip("/")


def check_url(value: str | None) -> str | None:
    """Of an option: the value, unless it is no web address."""
    if not value or describe_url(value):
        return value
    given = "" if "@" in value else f"{quote(value)} was given; "  # before an @ may be a password
    has_host = given and "://" not in value and describe_url(f"http://{value}")
    example = f"did you mean 'http://{value}'?" if has_host else "such as http://127.0.0.1:8000"
    raise typer.BadParameter(f"{given}wanted is a web address{'; ' if has_host else ', '}{example}")


def read_policy_key(variable: str | None) -> SecretStr | None:
    """The key in this environment variable. UserError when it is not set."""
    key = None if variable is None else read_settings().read_secret(variable)
    if variable is not None and key is None:
        raise UserError(f"--api-key-env: the environment variable {variable} is not set")
    return key


def build_gateway_headers(api_key: str) -> dict[str, str]:
    """Of every request to the gateway; empty without a key."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


# Retries of a server that is unavailable.

T = TypeVar("T")

_FIRST_SECONDS: Final = 0.25
"""Longest wait before the second attempt. It doubles with each one, up to MOST_SECONDS."""
MOST_SECONDS: Final = 10.0


@dataclass
class Retrier:
    """`waiting`: the last error by server; empty while all servers answer."""

    most_seconds: float = MOST_SECONDS
    """Maximum seconds between two attempts."""
    ends_after: float | None = None
    """Seconds after which retrying stops; None for never."""
    waiting: dict[str, str] = field(default_factory=dict)

    def note_waiting(self, who: str, why: str, *, waits: bool) -> None:
        """Notes that `who` waits for something other than a reply, or no longer does."""
        if waits:
            self.waiting[who] = why
        else:
            self.waiting.pop(who, None)

    def list_waits(self) -> list[str]:
        """What is waited for now, in words."""
        return [f"waiting for {who}: {escape_invisible(why[:100])}" for who, why in self.waiting.items()]

    async def retry_until_answered(self, who: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Retries after every Unavailable, with exponential backoff. Raises the last one after `ends_after` seconds."""
        seconds, began = _FIRST_SECONDS, time.monotonic()
        while True:
            try:
                answer = await ask()
            except Unavailable as error:
                self.waiting[who] = error.detail
                if self.ends_after is not None and time.monotonic() - began >= self.ends_after:
                    raise
                await asyncio.sleep(random.uniform(seconds / 2, seconds))  # noqa: S311  # so that not all come at once
                seconds = min(2 * seconds, self.most_seconds)
            else:
                self.waiting.pop(who, None)
                return answer


# Ctrl-C and SIGTERM.


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` in the running loop for each signal."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # not on Windows
            loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)


# A running gateway, and one question to it.

ResultT = TypeVar("ResultT")

Url = Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings", callback=check_url)]
ApiKey = Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")]
SECONDS: Final = 60.0
"""Timeout of a question."""
_KEPT_CONNECTIONS: Final = 20


@contextlib.asynccontextmanager
async def open_gateway(
    url: str, api_key: str, seconds: float = SECONDS, *, at_once: int = _KEPT_CONNECTIONS
) -> AsyncIterator[GatewayClient]:
    """Without a URL the gateway that these settings serve here. `seconds`: how long a reply may take."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=at_once)
    headers, base = build_gateway_headers(api_key), url or find_gateway_url()
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=seconds, limits=limits) as client:
        yield GatewayClient(client)


def ask_gateway(url: str, api_key: str, question: Callable[[GatewayClient], Awaitable[ResultT]]) -> ResultT:
    """The answer of the gateway; without one the command ends and says why."""

    async def ask() -> ResultT:
        async with open_gateway(url, api_key) as gateway:
            return await question(gateway)

    try:
        return asyncio.run(ask())
    except GatewayError as error:
        stop(describe_error(error))
    except UserError as error:
        stop(str(error))
    except ValidationError as error:
        stop(f"what answers there may be no gateway: {describe_faults(error)}")
