"""What authors write over HTTP: texts that stand in place of files of the folder of characters."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from app.domain.values import Frozen

MAX_AUTHORED: Final = 256 * 1024
"""Characters of a text: the longest sheet that comes with the service has 12,000."""
MAX_NOTE: Final = 500

SCENE_FILES: Final = "scenes/"

AuthoredFile = Annotated[str, Field(pattern=r"^(?:scenes/)?[a-z0-9][a-z0-9_-]{0,63}\.yaml$")]
"""A sheet, such as `hob_tarrant.yaml`, or a file of scenes, such as `scenes/hob_tarrant.yaml`."""


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


class ListedRevision(Frozen):
    """A revision without its text."""

    revision: int
    note: str
    author: str
    at: datetime
    digest: str | None

    @property
    def is_withdrawal(self) -> bool:
        return self.digest is None


class AuthoredChange(Frozen):
    """`text` is None to take back the folder's own file. `based_on` is the revision that the author has read, 0 for
    none."""

    file: AuthoredFile
    text: Annotated[str, Field(max_length=MAX_AUTHORED)] | None
    based_on: Annotated[int, Field(ge=0)]


def list_texts(in_force: Mapping[str, AuthoredRevision]) -> dict[str, str]:
    """The texts that stand in place of files, by file."""
    return {file: one.text for file, one in in_force.items() if one.text is not None}
