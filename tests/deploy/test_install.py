"""How locked packages are installed: with uv under pip's settings, and with pip where uv fails."""

import os
import subprocess
import sys
from pathlib import Path

from deploy.install import translate_settings

ROOT = Path(__file__).resolve().parents[2]


def test_uv_is_told_what_pip_is_set_up_for() -> None:
    listed = """
:env:.index-url='https://mine.example/simple'
global.cert='/etc/ours.pem'
global.disable-pip-version-check='1'
global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'
global.index-url='https://everybody.example/simple'
install.trusted-host='mine.example'
wheel.find-links='/elsewhere'
"""
    assert translate_settings(listed) == {
        "SSL_CERT_FILE": "/etc/ours.pem",
        "UV_DEFAULT_INDEX": "https://mine.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_INSECURE_HOST": "mine.example",
    }


def test_pip_installs_where_uv_fails(tmp_path: Path) -> None:
    broken, lock = tmp_path / "uv", tmp_path / "empty.lock"
    broken.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    lock.write_text("# nothing\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy/install.py"), str(lock)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    first, second, last = done.stdout.splitlines()
    assert (done.returncode, first, second) == (
        0,
        f"Installing 0 packages of {lock} with uv …",
        "uv could not; pip tries again.",
    )
    assert last.startswith("Installed into ")
