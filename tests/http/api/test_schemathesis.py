"""Requests made up from our own OpenAPI document, against the running service."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.serving import serving

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
def test_no_request_breaks_the_service_or_its_document(tmp_path: Path) -> None:
    brief = {"ATROPOS_ENVS_PARTS__DEADLINE_SECONDS": "1"}  # nobody sends the other pieces of a group
    with serving(tmp_path, settings=brief) as gateway:
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"{gateway.url}/openapi.json",
            f"--checks={CHECKS}",
            "--max-examples=40",
            "--workers=2",
            "--seed=1",
            "--no-color",
            "--request-timeout=30",
        ]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:]
