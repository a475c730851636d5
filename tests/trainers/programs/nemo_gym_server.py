"""One of NeMo Gym's released agents or resources servers, started as its command line starts it.

Runs in NeMo Gym's Python: the package of the server, its name, a file with the whole configuration."""

import importlib
import os
import sys
from pathlib import Path

CLASSES = {
    "responses_api_agents.simple_agent": "SimpleAgent",
    "responses_api_agents.gymnasium_agent": "GymnasiumAgent",
    "resources_servers.blackjack": "BlackjackEnv",
    "resources_servers.example_session_state_mgmt": "StatefulCounterResourcesServer",
    "resources_servers.mcqa": "MCQAResourcesServer",
    "resources_servers.string_match": "StringMatchResourcesServer",
}


if __name__ == "__main__":
    package, name, config = sys.argv[1:]
    os.environ |= {"NEMO_GYM_CONFIG_DICT": Path(config).read_text(encoding="utf-8"), "NEMO_GYM_CONFIG_PATH": name}
    getattr(importlib.import_module(f"{package}.app"), CLASSES[package]).run_webserver()
