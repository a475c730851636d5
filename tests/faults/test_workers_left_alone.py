"""The service is killed: its workers do not outlive it, whatever they are doing."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_house import ROOT

SERVICE = Path(__file__).with_name("workers_left_alone.txt").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only idle workers end with the service")
def test_workers_die_with_the_service(tmp_path: Path) -> None:
    pipes = [tmp_path / "one", tmp_path / "two"]
    for pipe in pipes:
        os.mkfifo(pipe)
    service = subprocess.Popen([sys.executable, "-c", SERVICE, *map(str, pipes)], cwd=ROOT)
    watched = [os.pidfd_open(int(pipe.read_text(encoding="ascii"))) for pipe in pipes]
    service.kill()
    service.wait()
    ended = [select.select([worker], [], [], 30)[0] == [worker] for worker in watched]
    for worker in watched:
        os.close(worker)
    assert ended == [True, True]
