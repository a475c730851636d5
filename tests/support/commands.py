"""`atropos-envs` in this process: a start of Python for each command would take longer than the command."""

from dataclasses import dataclass

from typer.testing import CliRunner

from app.cli.main import cli


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


def ended(*arguments: object) -> Ended:
    """On a wide terminal. An exception that the command does not turn into words is raised."""
    result = CliRunner().invoke(cli, [str(one) for one in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)
