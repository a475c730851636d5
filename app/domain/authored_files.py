"""What authors write over HTTP: texts that stand in place of files of the folder of characters."""

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


class ListedDraft(Frozen):
    """A draft without its text. `called`: the name of the sheet's character, then aliases; none of scenes, and none
    where the sheet cannot be read."""

    file: str
    called: tuple[str, ...] = ()

    @property
    def character(self) -> str:
        return self.file.rpartition("/")[2].removesuffix(".yaml")

    @property
    def is_sheet(self) -> bool:
        return "/" not in self.file

    @property
    def name(self) -> str:
        """The id where nothing else is known."""
        return self.called[0] if self.called else self.character
