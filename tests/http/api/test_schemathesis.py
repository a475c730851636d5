"""Requests made up from our own OpenAPI document, against the running service."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.serving import serving
from tests.support.tiers import examples, is_thorough

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
BRIEF = {"ATROPOS_ENVS_PARTS__DEADLINE_SECONDS": "1"}  # nobody sends the other pieces of a group
ALIKE = r"^/envs/(?!(gsm8k|mastermind|npc_arena|rlaif)/)[a-z0-9_]+/"
"""Routes of environments that have the same code as those of these four, which have every form of them."""
ZIP_BODIES = """
import schemathesis

schemathesis.serializer.alias("application/zip", "application/octet-stream")
"""


PARTS = ("^/(envs|score|next-batch|export)", "^/(characters|worlds)", "^/(compat|play)")
"""Routes that are asked beside one another, and those beside them. Each part is a process with one thread: CPython 3.11
may fail where two threads parse at once (gh-106905), as Hypothesis does."""


def list_complaints(folder: Path, *parts: Sequence[str]) -> list[str]:
    """What is said of one service by a process for the options of each part."""
    (folder / "zip_bodies.py").write_text(ZIP_BODIES, encoding="utf-8")
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "zip_bodies"}
    with serving(folder, settings=BRIEF) as gateway, ThreadPoolExecutor(len(parts)) as pool:
        httpx.get(f"{gateway.url}/openapi.json")  # it is built when it is first asked for; the command waits 10 seconds
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{gateway.url}/openapi.json",
            f"--checks={CHECKS}",
            "--workers=1",
            "--seed=1",
            "--no-color",
            "--request-timeout=600",
        ]
        told = pool.map(lambda part: _run([*command, *part], folder, environment), parts)
        return [one for one in told if one]


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1_800, check=False
    )
    return f"{ran.stdout[-8000:]}\nleft with {ran.returncode}" if ran.returncode else ""


def _leave_out(*paths: str) -> list[str]:
    return [f"--exclude-path-regex={'|'.join(paths)}"] if paths else []


def test_no_example_breaks_the_service_or_its_document(tmp_path: Path) -> None:
    if complaints := list_complaints(tmp_path, ["--phases=examples"]):
        pytest.fail("\n".join(complaints))


@pytest.mark.slow
def test_no_request_breaks_the_service_or_its_document(tmp_path: Path) -> None:
    """The other test sends the examples."""
    alike = () if is_thorough() else (ALIKE,)
    many = f"--max-examples={examples(40, fewest=5)}"
    each = [many, "--phases=coverage,fuzzing"]
    parts = [[*each, f"--include-path-regex={part}", *_leave_out(*alike)] for part in PARTS]
    rest = [*each, *_leave_out(*PARTS, *alike)]
    links = [many, "--phases=stateful", *_leave_out(*alike)]
    if complaints := list_complaints(tmp_path, *parts, rest, links):
        pytest.fail("\n".join(complaints))
