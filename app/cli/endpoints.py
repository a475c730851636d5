"""The gateway, the policy server and the output path of a command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from pydantic import SecretStr

from app.cli.gateway_client import GatewayClient
from app.inference.connection import Connection
from app.inference.server import open_policy_connection

GATEWAY_SECONDS: Final = 600.0
"""Judging may be slow; a repeated request joins the scoring in progress."""


@dataclass(frozen=True)
class Endpoints:
    gateway: str
    gateway_headers: dict[str, str]
    policy: str
    policy_key: SecretStr | None
    out: Path
    """Output path."""

    @asynccontextmanager
    async def open_clients(self, at_once: int) -> AsyncIterator[tuple[GatewayClient, Connection]]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=at_once)
        async with (
            httpx.AsyncClient(
                base_url=self.gateway, headers=self.gateway_headers, timeout=GATEWAY_SECONDS, limits=limits
            ) as gateway,
            open_policy_connection(self.policy, self.policy_key) as policy,
        ):
            yield GatewayClient(gateway), policy
