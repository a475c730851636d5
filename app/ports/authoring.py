"""Storage of what authors write."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.authored_files import AuthoredChange, AuthoredRevision, ListedRevision


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
