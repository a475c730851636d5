"""NeMo Gym's resources server for multiple choice, started as its command line starts it.

Runs in NeMo Gym's Python: `nemo_gym_server.py PORT`.
"""

import importlib
import json
import os
import sys


def place(port: int) -> dict[str, object]:
    return {"host": "127.0.0.1", "port": port, "entrypoint": "app.py"}


if __name__ == "__main__":
    port = int(sys.argv[1])
    server = {**place(port), "domain": "knowledge", "verified": False}
    config = {"head_server": place(port + 1), "dry_run": False, "mcqa": {"resources_servers": {"mcqa": server}}}
    os.environ |= {"NEMO_GYM_CONFIG_DICT": json.dumps(config), "NEMO_GYM_CONFIG_PATH": "mcqa"}
    importlib.import_module("resources_servers.mcqa.app").MCQAResourcesServer.run_webserver()
