"""A gateway of nothing but Atropos' API, in this process, and clients of it."""

from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.main.application import create_app
from app.settings import Settings
from tests.support.atropos import ENVIRONMENT, JSON, TRAINER

PREFIX = "/compat/atropos"
ROOT_PORT = 8999
LIMIT = 1024 * 1024


def app_on(folder: Path, **settings: Any) -> FastAPI:
    given = {"atropos_port": ROOT_PORT, "max_body_bytes": LIMIT, **settings}
    return create_app(Settings(database_url=f"sqlite:///{folder / 'store.db'}", **given), environments={})


def client_of(app: FastAPI, path: str = PREFIX, port: int = 8000) -> TestClient:
    return TestClient(app, base_url=f"http://127.0.0.1:{port}{path}")


def status_env(client: TestClient, env_id: object) -> httpx.Response:
    """With a JSON body on GET, as the environments send it."""
    return client.request("GET", "status-env", json={"env_id": env_id})  # type: ignore[return-value]


def started(client: TestClient, *, environments: int = 1, **trainer: Any) -> list[JSON]:
    """A trainer that asked once, and environments that joined it."""
    client.post("register", json={**TRAINER, **trainer})
    client.get("batch")
    return [client.post("register-env", json=ENVIRONMENT).json() for _ in range(environments)]
