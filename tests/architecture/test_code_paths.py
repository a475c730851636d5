"""How much of the service one score passes through is kept within bounds."""

import subprocess
import sys

from tests.support.serving import ROOT


def test_one_score_passes_through_few_files_and_functions_are_short() -> None:
    command = [sys.executable, "-m", "tests.architecture.code_paths", "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
