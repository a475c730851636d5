"""Checks the addresses that a remote retriever's host name resolves to."""

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Protocol

from app.domain.errors import RetrieverFailed


class Resolver(Protocol):
    """aiohttp's AbstractResolver and ResolveResult, without importing them: most starts need none of it."""

    async def resolve(self, host: str, port: int = ..., family: socket.AddressFamily = ...) -> list[Any]: ...
    async def close(self) -> None: ...


MakeResolver = Callable[[], Resolver]
"""Called inside a running event loop."""

_NAT64 = ip_network("64:ff9b::/96")
_RESERVED_NETWORKS = tuple(map(ip_network, ("::/96", "64:ff9b:1::/48", "fec0::/10", "192.0.0.0/24")))
"""Further non-public networks, which Python's tables lack or treat differently between versions."""


def is_public(address: str) -> bool:
    """Whether the address is public, and does not embed a private one."""
    found = ip_address(address.partition("%")[0])
    reached = _unwrap_embedded_address(found) if isinstance(found, IPv6Address) else None
    found = reached or found
    return found.is_global and not found.is_multicast and not any(found in network for network in _RESERVED_NETWORKS)


def is_loopback(address: str) -> bool:
    found = ip_address(address.partition("%")[0])
    return found.is_loopback


def _unwrap_embedded_address(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a gateway or the machine translates it to."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


class CheckedResolver:
    """Returns only allowed addresses, which the connection then uses (no DNS rebinding). A name with any forbidden
    address is rejected. `localhost` may resolve to loopback addresses only."""

    def __init__(self, resolver: Resolver, *, allow_private: bool) -> None:
        self._resolver = resolver
        self._allow_private = allow_private

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[Any]:
        found = await self._resolver.resolve(host, port, family)
        if not all(self._is_allowed(host, result["host"]) for result in found):
            raise RetrieverFailed(
                "the retriever's host name resolves to a private address, and rag.remote.allow_private is not set"
            )
        return found

    async def close(self) -> None:
        await self._resolver.close()

    def _is_allowed(self, host: str, address: str) -> bool:
        if self._allow_private:
            return True
        return is_loopback(address) if host.rstrip(".").lower() == "localhost" else is_public(address)


def create_system_resolver() -> Resolver:
    from aiohttp import ThreadedResolver  # takes long to import

    return ThreadedResolver()
