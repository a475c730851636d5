"""What authors write over HTTP: texts that stand in place of files of the folder of characters."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Protocol

from pydantic import Field

from app.domain.authored_files import MAX_AUTHORED, AuthoredFile, ListedRevision
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


class AuthoredChange(Frozen):
    """`text` is None to take back the folder's own file. `based_on` is the revision that the author has read, 0 for
    none."""

    file: AuthoredFile
    text: Annotated[str, Field(max_length=MAX_AUTHORED)] | None
    based_on: Annotated[int, Field(ge=0)]


def list_texts(in_force: Mapping[str, AuthoredRevision]) -> dict[str, str]:
    """The texts that stand in place of files, by file."""
    return {file: one.text for file, one in in_force.items() if one.text is not None}


class AuthoredStore(Protocol):
    """Revisions of files. They are only ever added, so their number says whether there are new ones."""

    async def count(self) -> int: ...

    async def load_newest(self) -> dict[str, AuthoredRevision]:
        """The newest revision of each file, withdrawals included."""

    async def add(self, changes: Sequence[AuthoredChange], author: str, note: str) -> list[AuthoredRevision]:
        """All or none; durable on return. Conflict naming the file whose newest revision is another than the change is
        based on."""

    async def list_revisions(self, file: str, limit: int, before: int | None = None) -> list[ListedRevision]:
        """Newest first, those before the revision `before`."""

    async def get(self, file: str, revision: int) -> AuthoredRevision | None: ...
