"""How much of `app` one score passes through, and how long its files and functions are.

`python -m tests.architecture.code_paths [--list]` prints it and ends with 1 where a bound is missed; `--list` names the
files. A score is one request over HTTP, from its first byte to the last of its reply, with everything that runs in
other threads meanwhile. The judge is a chat server on this machine; its answers are never cached.
"""

import ast
import contextlib
import math
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from fastapi.testclient import TestClient

from app.main.application import create_app
from app.main.components import discover
from app.settings import EnvironmentSettings, JudgeSettings, Settings
from benchmarks.slow_judge import answer_chat
from tests.support.chat_server import Received, Reply, serving

ADDRESS: Final = "http://127.0.0.1:8000"
APP: Final = Path(__file__).resolve().parents[2] / "app"
ANSWERS: Final = {
    "gsm8k": ("#### 1", "the answer is 2", "no answer"),
    "npc_arena": ("Two coppers, and mind the mud.", "Aye. Get in.", "Nay, not today, friend."),
}
REPEATS: Final = 9
QUIET_SECONDS: Final = 2.0
"""For what the service does once after its start, and for what it repeats without being asked."""
MOST_FILES: Final = {"gsm8k": 30, "npc_arena": 55}
MOST_FUNCTION_P95: Final = 21


@dataclass
class Trace:
    """What runs of `app` while it is `on`: files, and functions by file and name."""

    on: bool = False
    files: set[str] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if self.on and event == "call" and code.co_filename.startswith(str(APP)) and not code.co_name.startswith("<"):
            file = Path(code.co_filename).relative_to(APP).as_posix()
            self.files.add(file)
            self.functions.add((file, code.co_qualname))

    def start(self) -> None:
        self.files, self.functions, self.on = set(), set(), True

    def stop(self) -> "Trace":
        self.on = False
        return Trace(files=self.files, functions=self.functions)


@contextlib.contextmanager
def profile_threads(trace: Trace) -> Iterator[None]:
    """Every thread that starts meanwhile reports its calls, and this one."""
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def answer(number: int, received: Received) -> Reply:
    return Reply(answer_chat(received.body))


def trace_score(environment: str, settings: Settings) -> Trace:
    """What each of several groups' scores enters: other work of the service comes and goes.

    On a slow machine a score may last as long as the pauses of that work, which then runs beside each of them. So what
    the service enters while nobody asks counts for no score.
    """
    trace = Trace()
    traced: list[Trace] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(profile_threads(trace))  # before the threads of the store begin
        app = create_app(settings, environments={environment: discover()[environment]})
        client = stack.enter_context(TestClient(app, base_url=ADDRESS))
        while client.get("/readyz").status_code != 200:
            time.sleep(0.1)
        time.sleep(QUIET_SECONDS)
        trace.start()
        time.sleep(QUIET_SECONDS)
        unasked = trace.stop().functions
        for number in range(REPEATS):
            batch = client.get(f"/envs/{environment}/next-batch", params={"batch_size": 1, "cursor": number}).json()
            completions = [{"text": answer} for answer in ANSWERS[environment]]
            group = {"task_id": batch["tasks"][0]["task_id"], "completions": completions}
            trace.start()
            reply = client.post(f"/envs/{environment}/score", json={"groups": [group]})
            traced.append(trace.stop())
            if any(reward is None for reward in reply.json()["groups"][0]["rewards"]):
                raise RuntimeError(f"{environment} was not scored: {reply.text}")
    functions = set.intersection(*(one.functions for one in traced[1:])) - unasked
    return Trace(files={file for file, _ in functions}, functions=functions)


def measure_lengths() -> tuple[list[int], list[int]]:
    """Lines of every file of `app`, and of every function."""
    files, functions = [], []
    for path in sorted(APP.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 3:
            files.append(text.count("\n"))
        functions += [
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    return files, functions


def find_percentile(values: Sequence[int], share: float) -> int:
    """The nearest rank."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def trace_scores() -> dict[str, Trace]:
    """By environment."""
    with tempfile.TemporaryDirectory() as folder, serving(answer) as judge:
        judged = Settings(
            database_url=f"sqlite:///{folder}/judged.db",
            judges={"chat": JudgeSettings(base_url=judge.url, model="judge")},
            environments={"npc_arena": EnvironmentSettings(judges=("chat",))},
        )
        return {
            "gsm8k": trace_score("gsm8k", Settings(database_url=f"sqlite:///{folder}/verified.db")),
            "npc_arena": trace_score("npc_arena", judged),
        }


def measure(*, names_files: bool) -> Iterator[tuple[str, int, int | None]]:
    """What was counted, how much it is, and how much it may be."""
    traces = trace_scores()
    if any(len(trace.files) > MOST_FILES[name] for name, trace in traces.items()):
        # On a busy machine other work of the service may run beside each score. It adds files and takes none away.
        again = trace_scores()
        traces = {name: min(trace, again[name], key=lambda one: len(one.files)) for name, trace in traces.items()}
    for name, trace in traces.items():
        if names_files:
            print(f"{name}:", *sorted(trace.files), sep="\n    ")
        yield f"files that one score of {name} enters", len(trace.files), MOST_FILES[name]
        yield f"functions that one score of {name} enters", len(trace.functions), None
    files, functions = measure_lengths()
    yield f"lines of a module, the median of {len(files):,}", find_percentile(files, 0.5), None
    yield "lines of the longest module", max(files), None
    name = f"lines of a function, 95 of 100 of {len(functions):,}"
    yield name, find_percentile(functions, 0.95), MOST_FUNCTION_P95


def main() -> int:
    missed = 0
    for what, count, most in measure(names_files="--list" in sys.argv[1:]):
        print(f"{what:52} {count:6,}" + ("" if most is None else f"  at most {most}"))
        missed += most is not None and count > most
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
