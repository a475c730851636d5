"""The environment's side of the Atropos 0.4.0 API: registration, queue status, posting of groups."""

import asyncio
from dataclasses import dataclass
from typing import Final

import httpx
from pydantic import BaseModel, JsonValue

from app.cli.process.atropos_groups import GroupLine
from app.cli.retry import Retrier
from app.domain.errors import InvalidRequest, Unavailable

TRAINER: Final = "the Atropos API"
LOOK_SECONDS: Final = 1.0


class _Registration(BaseModel):
    status: str
    env_id: int | None = None


class _Info(BaseModel):
    batch_size: int
    max_token_len: int


class _Status(BaseModel):
    queue_size: int


@dataclass(frozen=True)
class AtroposApi:
    """`client` has the API's address as its base."""

    client: httpx.AsyncClient

    async def register(self, name: str, group_size: int, weight: float, max_tokens: int) -> int:
        """The environment id. Unavailable while no trainer has started."""
        body: JsonValue = {
            "max_token_length": max_tokens,
            "desired_name": name,
            "weight": weight,
            "group_size": group_size,
            "min_batch_allocation": None,
        }
        told = _Registration.model_validate_json(await self._send_request("POST", "register-env", body))
        if told.env_id is None:
            raise Unavailable(f"{self.client.base_url}: {told.status}")
        return told.env_id

    async def fetch_info(self) -> tuple[int, int]:
        """The trainer's batch size and its limit of tokens per sequence (exclusive; 0 or less for none)."""
        told = _Info.model_validate_json(await self._send_request("GET", "info"))
        return told.batch_size, told.max_token_len

    async def count_queued(self, env_id: int) -> int:
        """Number of groups queued for the trainer."""
        return _Status.model_validate_json(await self._send_request("GET", "status-env", {"env_id": env_id})).queue_size

    async def post_group(self, group: str) -> None:
        await self._send_request("POST", "scored_data", group.encode())

    async def _send_request(self, method: str, path: str, body: JsonValue | bytes = None) -> bytes:
        """Unavailable without an answer or with 5xx; InvalidRequest with the server's message when it refuses."""
        base = self.client.base_url
        sent = body if isinstance(body, bytes) else None
        plain = None if isinstance(body, bytes) else body
        headers = {} if sent is None else {"Content-Type": "application/json"}
        try:
            reply = await self.client.request(method, path, json=plain, content=sent, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"cannot reach the Atropos API at {base}: {error or type(error).__name__}") from error
        if reply.is_success:
            return reply.content
        words = f"{base}{path} returned {reply.status_code}: {' '.join(reply.text.split())[:300]}"
        passing = reply.status_code >= 500 or reply.status_code in {408, 429}
        raise Unavailable(words) if passing else InvalidRequest(words)


@dataclass(frozen=True)
class AtroposOutput:
    """After a crash a group may be posted twice, byte for byte the same; the gateway's API stores it once."""

    api: AtroposApi
    patience: Retrier
    env_id: int
    batch_size: int
    group_size: int
    longest: int
    """Maximum tokens per sequence (exclusive); 0 or less for none."""
    batches_ahead: int

    async def wait_until_ready(self) -> None:
        """Pauses while `batches_ahead` batches are queued, as Atropos' own environments do."""
        while await self._count_queued() * self.group_size >= self.batches_ahead * self.batch_size > 0:
            self.patience.note_waiting("the trainer", f"{self.batches_ahead} batches are queued", waits=True)
            await asyncio.sleep(LOOK_SECONDS)
        self.patience.note_waiting("the trainer", "", waits=False)

    async def put(self, line: GroupLine) -> str | None:
        if any(0 < self.longest <= len(tokens) for tokens in line.group.tokens or ()):
            return "too_long"
        group = line.group.model_copy(update={"env_id": self.env_id}).model_dump_json()
        await self.patience.retry_until_answered(TRAINER, lambda: self.api.post_group(group))
        return None

    async def _count_queued(self) -> int:
        return await self.patience.retry_until_answered(TRAINER, lambda: self.api.count_queued(self.env_id))
