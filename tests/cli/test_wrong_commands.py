"""Wrong command lines, files and settings: each ends the command with a sentence that says what is wanted."""

from pathlib import Path

import pytest

from app.domain.values import Frozen
from tests.support.commands import Ended, ended
from tests.support.tables import read_table


class WrongCommand(Frozen):
    command: str
    files: dict[str, str] = {}
    """What lies in the folder where it is called."""
    says: str
    code: int = 2


TABLE = read_table(__file__, "wrong_commands.yaml", tuple[WrongCommand, ...])


@pytest.mark.parametrize("wrong", TABLE, ids=lambda wrong: wrong.command)
def test_a_wrong_command_ends_with_a_sentence(
    wrong: WrongCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in wrong.files.items():
        Path(name).write_text(text, encoding="utf-8")
    done = ended(*wrong.command.split(" "))
    assert (done.returncode, say(done)) == (wrong.code, wrong.says)


def say(done: Ended) -> str:
    """What stands in the box of an error; without a box all that is printed."""
    lines = (done.stderr or done.stdout).splitlines()
    boxed = [line.strip("│").strip() for line in lines if line.startswith("│")]
    return " ".join(boxed or [line.strip() for line in lines])
