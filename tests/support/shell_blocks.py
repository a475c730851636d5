"""What pages tell people to type into a shell, run against gateways of the tests."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

SHOWN: Final = "http://127.0.0.1:8000"
"""Where the pages have the gateway."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def list_blocks(page: str, language: str = "sh") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def run_shell(script: str, folder: Path) -> str:
    """What it prints, with our commands in reach. It has to end well."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def run_shell_blocks(page: str, folder: Path, *urls: str, also: Mapping[str, str] = _NOTHING) -> list[str]:
    """What each block of the page prints. The gateways stand for those that it shows on port 8000, 8001 and so on;
    `also` are other texts of the page with what stands for them."""
    script = "\necho; echo ----\n".join(list_blocks(page))
    shown = {f"http://127.0.0.1:{8000 + place}": url for place, url in enumerate(urls)}
    for text, other in {**shown, **also}.items():
        script = script.replace(text, other)
    return run_shell(script, folder).split("----")
