"""How many sockets a gateway may hold."""

import subprocess
import sys

PROGRAM = """
import resource
from app.cli.serve import ENOUGH, allow_many_sockets
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
allow_many_sockets()
after = resource.getrlimit(resource.RLIMIT_NOFILE)
wanted = ENOUGH if most == resource.RLIM_INFINITY else min(ENOUGH, most)
print(after == (wanted, most))
"""


def test_as_many_as_the_system_allows() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
