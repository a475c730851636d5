"""Errors that a command's user can do something about end it with a message, all others with a traceback."""

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from pydantic import TypeAdapter

from app.domain.errors import InvalidRequest, UserError
from app.terminal.consoles import stop_on_errors


def raise_validation_error() -> None:
    TypeAdapter(dict[str, int]).validate_python({"a": "x", "b": "y"})


def raise_error(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InvalidRequest("no such task", field="task"), "`task`: no such task"),
        (OSError("disk full"), "disk full"),
        (UserError("--params is not JSON"), "--params is not JSON"),
        (LookupError("no host"), "no host"),
    ],
    ids=repr,
)
def test_it_says_what_is_wrong(error: Exception, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, stop_on_errors(3, also=LookupError):
        raise_error(error)
    assert (ended.value.exit_code, capsys.readouterr().err.strip()) == (3, words)


def test_it_names_every_wrong_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), stop_on_errors():
        raise_validation_error()
    said = capsys.readouterr().err
    assert [f"`{name}`: " in said for name in "ab"] == [True, True]


@pytest.mark.parametrize(
    "err",
    [
        lambda: raise_error(KeyError("x")),
        lambda: raise_error(ValueError("x")),
        lambda: dict(zip("ab", "a", strict=True)),
        lambda: int("x"),
    ],
)
def test_a_mistake_of_ours_is_not_hidden(err: Callable[[], object]) -> None:
    with pytest.raises((KeyError, ValueError)), stop_on_errors():
        err()


def test_a_file_that_is_no_text_is_a_mistake_of_its_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(typer.Exit), stop_on_errors():
        (tmp_path / "file").read_text(encoding="utf-8")
    assert "not UTF-8 text" in capsys.readouterr().err
