"""Requests made up from our own OpenAPI document, against the running service."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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


def complaints_of(folder: Path, options: Sequence[str]) -> str:
    with serving(folder, settings=BRIEF) as gateway:
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{gateway.url}/openapi.json",
            f"--checks={CHECKS}",
            "--workers=1",  # CPython 3.11 may fail where two threads parse at once (gh-106905), as Hypothesis does
            "--seed=1",
            "--no-color",
            "--request-timeout=30",
            *options,
        ]
        (folder / "zip_bodies.py").write_text(ZIP_BODIES, encoding="utf-8")
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "zip_bodies"}
        ran = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1_800, check=False
        )
    return f"{ran.stdout[-8000:]}\nleft with {ran.returncode}" if ran.returncode else ""


def test_no_example_breaks_the_service_or_its_document(tmp_path: Path) -> None:
    assert complaints_of(tmp_path, ["--phases=examples"]) == ""


@pytest.mark.slow
def test_no_request_breaks_the_service_or_its_document(tmp_path: Path) -> None:
    alike = [] if is_thorough() else [f"--exclude-path-regex={ALIKE}"]
    phases = "--phases=coverage,fuzzing,stateful"  # the other test sends the examples
    assert complaints_of(tmp_path, [phases, f"--max-examples={examples(40, fewest=5)}", *alike]) == ""
