"""Programs in bare forked processes, without any protection: what `benchmarks.programs` compares with.

A warm Python, with the modules of a jail and no others, forks for each program, collects what its calls return, and
waits for its end. Standard library only, as in a jail."""

import gc
import json
import os
import resource
import sys
import time
from types import ModuleType
from typing import Any

from app.sandbox.supervisor import preload_modules

Outcome = list[dict[str, Any]]


def serve() -> None:
    """Runs the programs of each line of JSON, and answers with their outcomes and the seconds that they took."""
    preload_modules()
    for line in sys.stdin:
        programs = json.loads(line)
        gc.collect()
        gc.freeze()
        began, used = time.perf_counter(), _processor_seconds()
        outcomes = [run(program) for program in programs]
        seconds = (time.perf_counter() - began, _processor_seconds() - used)
        print(json.dumps({"outcomes": outcomes, "seconds": seconds[0], "processor_seconds": seconds[1]}), flush=True)


def run(program: dict[str, Any]) -> Outcome:
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _answer(its, program)
    os.close(its)
    parts = []
    while part := os.read(ours, 1 << 20):
        parts.append(part)
    os.close(ours)
    os.waitpid(child, 0)
    outcome: Outcome = json.loads(b"".join(parts))
    return outcome


def _answer(channel: int, program: dict[str, Any]) -> None:
    module = ModuleType("program")
    exec(compile(program["source"], "<program>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # ours
    function = module.__dict__[program["function"]]
    rest = memoryview(json.dumps([_call(function, arguments) for arguments in program["calls"]]).encode("ascii"))
    while rest:
        rest = rest[os.write(channel, rest) :]
    os._exit(0)


def _call(function: Any, arguments: list[Any]) -> dict[str, Any]:
    try:
        return {"value": function(*arguments), "fault": ""}
    except Exception:
        return {"value": None, "fault": "raised"}


def _processor_seconds() -> float:
    """Of this process and of the children that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
