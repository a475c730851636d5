"""One of NeMo Gym's released agents as a server, started as its command line starts it.

Runs in NeMo Gym's Python: the agent's module, the name of its server, a file with the whole configuration."""

import importlib
import os
import sys
from pathlib import Path

KINDS = {"simple_agent": "SimpleAgent", "gymnasium_agent": "GymnasiumAgent"}


if __name__ == "__main__":
    kind, name, config = sys.argv[1:]
    os.environ |= {"NEMO_GYM_CONFIG_DICT": Path(config).read_text(encoding="utf-8"), "NEMO_GYM_CONFIG_PATH": name}
    module = importlib.import_module(f"responses_api_agents.{kind}.app")
    getattr(module, KINDS[kind]).run_webserver()
