"""Stands in for `verifiers_child`: speaks its protocol, and does what the model's message says."""

import json
import os
import sys
import time
from typing import Any

PROMPT = [{"role": "user", "content": "Say something."}]
ABANDONED: list[int] = []
ANSWERS: dict[str, Any] = {
    "ping": {},
    "load": {"version": os.environ.get("VERSION", "1.0")},
    "read": {"count": 3, "scores_alone": False},
    "rows": [{"messages": [], "hidden": {"answer": number}} for number in range(3)],
    "open": {"session": "the only one", "messages": PROMPT, "tools": []},
    "finish": {"messages": [], "done": True, "reward": 0.25},
    "close": {},
}


def act(said: str) -> Any:
    if said.startswith("{"):
        return json.loads(said)
    if said == "crash":
        os._exit(3)
    if said == "garbage":
        sys.stdout.write("a print of a package\n")
    if said == "nothing":
        return None
    if said == "sleep":
        time.sleep(600)
    words = {"names": " ".join(sorted(os.environ)), "process": str(os.getpid()), "abandoned": str(ABANDONED)}.get(
        said, "Go on."
    )
    return {"messages": [{"role": "user", "content": words}], "done": False}


for line in sys.stdin:
    request = json.loads(line)
    if "abandon" in request:
        ABANDONED.append(request["abandon"])
        continue
    name = request["call"]
    result = act(request["message"]["content"]) if name == "step" else ANSWERS[name]
    if result is None:
        continue
    sys.stdout.write(json.dumps({"id": request["id"], "result": result}) + "\n")
    sys.stdout.flush()
