"""A foreign program that tells what it can reach, and then answers lines until there are no more."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def works(attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except (OSError, MemoryError):
        return False
    return True


def talk_to_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=60).close()


told = json.loads(sys.stdin.readline())
thread = threading.Thread(target=talk_to_itself)
thread.start()
thread.join()
sys.stderr.write("a print\n")
answer = {
    "reads": [path for path in told["read"] if works(Path(path).stat)],
    "writes": [path for path in told["write"] if works(partial(Path(path).write_text, "x"))],
    "connects": works(lambda: socket.create_connection(("127.0.0.1", told["port"]), timeout=60).close()),
    "signals": works(lambda: os.kill(told["process"], 0)),
    "talks to itself": works(talk_to_itself),
    "starts processes": subprocess.run(["sh", "-c", "exit 7"], check=False).returncode,
    "maps too much": works(lambda: bytearray(told["too_much_mb"] << 20)),
}
sys.stdout.write(json.dumps(answer) + "\n")
sys.stdout.flush()
for line in sys.stdin:
    sys.stdout.write(line)
    sys.stdout.flush()
