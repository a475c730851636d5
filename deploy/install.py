"""Installs locked packages, and then the project, into the environment of the Python that runs it:
`python deploy/install.py requirements.lock [--project]`.

uv does it in seconds where pip takes minutes. Where the machine has none, it is brought into the environment from the
index that pip is set up for, and it is told pip's settings, which it does not read itself. Where uv cannot be had or
fails, pip installs. Packages are those of the lock file, by their hashes, either way.

Standard library alone: it runs before anything is installed.
"""

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

NAMES_OF_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
"""Variables of uv by the names of pip's settings."""
AS_PIP_CHOOSES = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
"""uv looks at the first index alone that has a package; pip, whose settings these are, at all. The hashes of the lock
file keep foreign packages out."""
SECTIONS = ("global", "install", ":env:")
"""Of pip's settings; a later one goes before an earlier one."""


def translate_settings(listed: str) -> dict[str, str]:
    """What `pip config list` says, as variables of uv. Several addresses are separated by spaces in both."""
    found: dict[tuple[str, str], str] = {}
    for line in listed.splitlines():
        place, equals, value = line.partition("=")
        section, _, name = place.rpartition(".")
        if equals and section in SECTIONS and name in NAMES_OF_UV:
            found[name, section] = " ".join(str(ast.literal_eval(value)).split())
    return {
        NAMES_OF_UV[name]: found[name, section]
        for section in SECTIONS
        for name in NAMES_OF_UV
        if (name, section) in found
    }


def main(lock: str, *, with_project: bool) -> int:
    """The status of what failed last; 0 if everything is installed."""
    began = time.monotonic()
    count = Path(lock).read_text(encoding="utf-8").count("==")
    environment = {**AS_PIP_CHOOSES, **translate_settings(capture(*PIP, "config", "list")), **os.environ}
    tasks = [["install", "--require-hashes", "-r", lock]]
    if with_project:
        tasks.append(["install", "--no-deps", "-e", "."])
    uv = find_uv()
    say(f"Installing {count} packages of {lock} with {'uv' if uv else 'pip, which takes minutes'} …")
    for words in tasks:
        if uv and not run([uv, "pip", words[0], "--quiet", "--python", sys.executable, *words[1:]], environment):
            continue
        if uv:
            say("uv could not; pip tries again.")
        if status := run([*PIP, words[0], "-qq", "--no-compile", *words[1:]], os.environ):
            return status
    say(f"Installed into {Path(sys.prefix).name} in {time.monotonic() - began:.0f} s.")
    return 0


def find_uv() -> str:
    """The machine's, or that of this environment, where it is put first; empty where it cannot be had."""
    if known := shutil.which("uv"):
        return known
    own = Path(sys.executable).with_name("uv")
    if not own.exists():
        # Quiet: what is missing costs time alone, since pip installs then.
        capture(*PIP, "install", "--quiet", "--no-compile", "--require-hashes", "-r", str(FOLDER / "uv.lock"))
    return str(own) if own.exists() else ""


def capture(*command: str) -> str:
    """What it prints; empty where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    return subprocess.run(command, env=dict(environment), check=False).returncode


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    locks = [word for word in sys.argv[1:] if not word.startswith("-")]
    sys.exit(main(*locks, with_project="--project" in sys.argv))
