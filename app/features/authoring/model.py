"""What authors write over HTTP: texts that stand in place of files of the folder of characters."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from pydantic import Field

from app.domain.authored_files import MAX_AUTHORED, AuthoredFile
from app.domain.values import Frozen


class AuthoredRevision(Frozen):
    """What an author made of a file. `text` is None where the folder's own file was taken back."""

    file: str
    revision: int
    """From 1 for each file; 0 stands for the folder's own."""
    text: str | None
    note: str
    author: str
    """The name of the key; empty where no key was needed."""
    at: datetime
    digest: str | None
    """SHA-256 of the text."""


class AuthoredDraft(Frozen):
    """What an author keeps of a file before it is published. Each author has at most one of a file."""

    file: AuthoredFile
    author: str
    text: Annotated[str, Field(max_length=MAX_AUTHORED)]
    digest: str
    """SHA-256 of the text."""
    based_on: Annotated[int, Field(ge=0)]
    """The revision that was published when the author read it last, 0 for none."""
    saved_at: datetime


class AuthoredChange(Frozen):
    """`text` is None to take back the folder's own file. `based_on` is the revision that the author has read, 0 for
    none."""

    file: AuthoredFile
    text: Annotated[str, Field(max_length=MAX_AUTHORED)] | None
    based_on: Annotated[int, Field(ge=0)]


def list_texts(in_force: Mapping[str, AuthoredRevision]) -> dict[str, str]:
    """The texts that stand in place of files, by file."""
    return {file: one.text for file, one in in_force.items() if one.text is not None}
