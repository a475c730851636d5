"""Files as a service."""

from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.figures import AS_WRITTEN
from app.envs.tool_agent.services.files.operations import OPERATIONS
from app.envs.tool_agent.services.files.scenarios import KINDS
from app.envs.tool_agent.services.files.state import Tree
from app.envs.tool_agent.services.service import Operation, Scenario
from app.toolkit.seeded import Draws


class Files:
    name: Final = "files"
    rules: Final = (
        "A folder that holds a file named KEEP stays as it is, with all folders in it: nothing in it is changed, moved "
        "or deleted, though the tools would do it; copying out of it is allowed. Change, move and delete nothing "
        "that the user did not ask for, above all nothing outside the folder that was named. A file that is moved or "
        "copied keeps its name unless the user gives it another. Where these rules forbid a part of a wish, do the "
        f"rest of it and say what was left. {AS_WRITTEN}"
    )

    @property
    def operations(self) -> tuple[Operation[Tree], ...]:
        return OPERATIONS

    def essence(self, state: Tree) -> JsonValue:
        """Blank lines and blanks around lines do not count."""
        return [
            [file.path, *(line.strip() for line in file.text.splitlines() if line.strip())]
            for file in sorted(state.files, key=lambda one: one.path)
        ]

    def scenario(self, draws: Draws) -> Scenario[Tree]:
        return draws.one(KINDS)(draws)
