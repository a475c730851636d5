"""Environments of the package `verifiers`, in a child process with an interpreter of their own.

    verifiers 0.4     task sets, with the environment that they bring or without
    verifiers < 0.4   what `load_environment` returns

Tasks are rows, read once. A task that is one prompt, and whose rewards look at the reply alone, is scored without a
session. All others are episodes that the environment runs itself in the child, where the model's endpoint waits for our
messages (`verifiers_child`); they are lost with the child, and played again. Not served: what needs containers, agents
besides the model, harnesses of a package's own, images, and rewards that compare siblings.

The child runs in a jail (`app.ports.children`). That keeps the service's files, secrets and network from it, and not
its answers from being wrong: whoever configures a package trusts its rewards.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue, ValidationError

from app.domain.errors import HostFailed
from app.domain.hosting import HostedStep
from app.domain.tasks import Message, Opening, ToolSpec
from app.domain.values import Split, digest, digest_in_pieces
from app.envs.foreign.child import ChildKeeper, RunningChild
from app.envs.foreign.contract import MOST_TEXT, Description, ForeignOptions, ForeignRow, Start
from app.ports.children import Children, ChildProgram
from app.ports.hosts import HostedSession

CHILD: Final = Path(__file__).with_name("verifiers_child.py")
_PAGE: Final = 200
"""Rows of one answer."""
_READ_SECONDS: Final = 600.0
"""For loading a package, and for reading its tasks."""
_PROBE: Final = Message(role="assistant", content="A reply that tries whether an episode can be played again.")


@dataclass(frozen=True)
class VerifiersServer:
    """Tasks of a package for the library verifiers."""

    name: str
    package: str
    """The module that exports the task set, or that has `load_environment`."""
    python: Path
    """The interpreter of a virtual environment with the package and verifiers."""
    children: Children
    args: Mapping[str, JsonValue] = field(default_factory=dict)
    """Fields of the task set's config; arguments of `load_environment` before verifiers 0.4."""
    folders: tuple[Path, ...] = ()
    """What the child may read besides. They are where its modules are looked for first."""
    variables: tuple[str, ...] = ()
    """Names of the service's variables that the child gets."""
    tasks: int = 10_000
    """Read so many at most."""
    test: int = 0
    """How many of the tasks, the last ones, are the test split."""
    trusted: bool = False
    memory_mb: int = 8192
    options: ForeignOptions = field(default_factory=ForeignOptions)
    program: Path = CHILD
    """What the child runs."""

    kind = "verifiers"

    def __post_init__(self) -> None:
        program = ChildProgram(
            interpreter=self.python,
            file=self.program,
            folders=self.folders,
            settings={"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
            variables=self.variables,
            memory_mb=self.memory_mb,
            trusted=self.trusted,
        )
        keeper = ChildKeeper(self.name, self.children, program, self._load)
        object.__setattr__(self, "_keeper", keeper)
        object.__setattr__(self, "_described", _Described())
