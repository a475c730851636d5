"""Which addresses the name of a retriever's server may stand for."""

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
"""Called where a loop runs."""

_NAT64 = ip_network("64:ff9b::/96")
_NOWHERE = tuple(map(ip_network, ("::/96", "64:ff9b:1::/48", "fec0::/10", "192.0.0.0/24")))
"""Not for the internet either, though Python's tables say nothing or differ between its versions."""


def is_public(address: str) -> bool:
    """Whether it is one of the internet's, and does not lead into the machine or its own network."""
    found = ip_address(address.partition("%")[0])
    reached = _inner(found) if isinstance(found, IPv6Address) else None
    found = reached or found
    return found.is_global and not found.is_multicast and not any(found in network for network in _NOWHERE)


def is_loopback(address: str) -> bool:
    found = ip_address(address.partition("%")[0])
    return found.is_loopback


def _inner(address: IPv6Address) -> IPv4Address | None:
    """What a gateway on the way, or the machine itself, makes of it."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


class CheckedResolver:
    """Answers only with addresses that may be connected to, so that no later answer can put another in their place. A
    name that stands for one that may not is refused as a whole. `localhost` may stand for loopback alone."""

    def __init__(self, resolver: Resolver, *, allow_private: bool) -> None:
        self._resolver = resolver
        self._allow_private = allow_private

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[Any]:
        found = await self._resolver.resolve(host, port, family)
        if not all(self._may(host, result["host"]) for result in found):
            raise RetrieverFailed(
                "the name of the retriever's server stands for a private address: rag.remote.allow_private is not set"
            )
        return found

    async def close(self) -> None:
        await self._resolver.close()

    def _may(self, host: str, address: str) -> bool:
        if self._allow_private:
            return True
        return is_loopback(address) if host.rstrip(".").lower() == "localhost" else is_public(address)


def system_resolver() -> Resolver:
    from aiohttp import ThreadedResolver  # takes long to import

    return ThreadedResolver()
