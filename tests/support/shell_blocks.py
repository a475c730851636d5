"""What pages tell people to type into a shell, run against gateways of the tests."""

import re
import subprocess
from pathlib import Path


def list_shell_blocks(page: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", page, re.DOTALL)


def run_shell_blocks(page: str, folder: Path, *urls: str) -> list[str]:
    """What each block of the page prints. The gateways stand for those that it shows on port 8000, 8001 and so on."""
    script = "set -euo pipefail\n" + "\necho; echo ----\n".join(list_shell_blocks(page))
    for place, url in enumerate(urls):
        script = script.replace(f"http://127.0.0.1:{8000 + place}", url)
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("----")
