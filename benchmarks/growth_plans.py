"""What a database plans for the statements of a route."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import Connection, Engine, event

from app.main.application import create_app
from app.settings import Settings
from app.store.database import is_postgres, open_for_inspection

LEAST_SECONDS = 0.001
"""Of a statement that is worth a look."""


def print_plans(url: str, paths: Mapping[str, str]) -> None:
    """Of statements that take long, asked in this process."""
    engine = open_for_inspection(url)
    app = create_app(Settings(database_url=url, anonymous=True), announce=lambda _: None)
    with TestClient(app, base_url="http://127.0.0.1") as client, engine.connect() as connection:
        while client.get("/readyz").status_code != 200:
            time.sleep(1)
        for name, path in paths.items():
            with _watched() as seen:
                client.get(path).raise_for_status()
            print(f"\n### {name}", flush=True)
            for statement, values in seen:
                _print_plan(connection, statement, values)
    engine.dispose()


@contextmanager
def _watched() -> Iterator[list[tuple[str, Any]]]:
    seen: list[tuple[str, Any]] = []

    def saw(_c: object, _cursor: object, statement: str, given: Any, _context: object, many: bool) -> None:
        if statement.lstrip().startswith(("SELECT", "WITH")) and not many:
            seen.append((statement, given))

    event.listen(Engine, "before_cursor_execute", saw)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", saw)


def _print_plan(connection: Connection, statement: str, given: Any) -> None:
    postgres = is_postgres(connection.engine)
    began = time.perf_counter()
    connection.exec_driver_sql(statement, given).all()
    taken = time.perf_counter() - began
    if taken < LEAST_SECONDS:
        return
    how = "EXPLAIN (ANALYZE, BUFFERS)" if postgres else "EXPLAIN QUERY PLAN"
    print(f"\n{taken * 1e3:.1f} ms: {' '.join(statement.split())[:600]}")
    for row in connection.exec_driver_sql(f"{how} {statement}", given):
        print(f"    {row[0] if postgres else row[3]}")
