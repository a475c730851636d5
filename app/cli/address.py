"""The default gateway URL of commands, and the keys they send."""

from typing import Final

import httpx
import typer
from pydantic import SecretStr

from app.settings import read_settings

_NEAR: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}  # noqa: S104 - not listened on
"""What to open on this machine instead of what is listened on: a socket of all IPv6 addresses takes no IPv4."""


def find_gateway_url() -> str:
    """URL of the gateway that these settings serve on this machine."""
    try:
        settings = read_settings()
    except ValueError as error:
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
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        return ""
    return str(parsed.copy_with(username=None, password=None, query=None, fragment=None)).rstrip("/")


def read_policy_key(variable: str | None) -> SecretStr | None:
    """The key in this environment variable. ValueError when it is not set."""
    key = None if variable is None else read_settings().read_secret(variable)
    if variable is not None and key is None:
        raise ValueError(f"--api-key-env: the environment variable {variable} is not set")
    return key


def build_gateway_headers(api_key: str) -> dict[str, str]:
    """Of every request to the gateway; empty without a key."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}
