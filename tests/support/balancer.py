"""A balancer of connections, as a Service of Kubernetes is one."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

PIECE = 64 * 1024


class Balancer:
    """Each new connection goes to the next port. One that is left out keeps the connections that it has."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.failed = 0
        """Connections that the chosen port refused or broke off; so are they to the client."""
        self.url = ""
        self._next = 0
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[Any]] = set()
        """A loop forgets a task whose two ends are both half closed."""

    def add(self, port: int) -> None:
        self._loop.call_soon_threadsafe(self.ports.append, port)

    def leave_out(self, port: int) -> None:
        self._loop.call_soon_threadsafe(self.ports.remove, port)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        server = self._run(asyncio.start_server(self._connect, "127.0.0.1", 0, limit=PIECE))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            self._run(self._end(server))
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        while self._connections:
            for task in self._connections:
                task.cancel()
            await asyncio.wait(self._connections)
        await asyncio.sleep(0.05)  # transports close in passes of their own

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        with contextlib.suppress(asyncio.CancelledError):
            try:
                self._next += 1
                port = self.ports[self._next % len(self.ports)]
                replica, to_replica = await asyncio.open_connection("127.0.0.1", port, limit=PIECE)
            except (OSError, ZeroDivisionError):  # of no ports at all
                self.failed += 1
                return to_client.transport.abort()
            try:
                await asyncio.gather(_pass_on(client, to_replica), _pass_on(replica, to_client))
            except OSError:
                self.failed += 1
            finally:
                to_client.transport.abort()
                to_replica.transport.abort()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE):
        target.write(piece)
        await target.drain()
    target.write_eof()
