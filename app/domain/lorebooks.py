"""Lorebooks: entries that keywords in the conversation bring into the prompt."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from app.domain.values import FiniteJson, Frozen, Unit, WholeNumber, require_encodable

SecondaryLogic = Literal["and_any", "and_all", "not_any", "not_all"]
"""How secondary keys restrict a match: any must match, all must match, none may match, or not all may match."""

Key = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(require_encodable)]
Content = Annotated[str, Field(max_length=20_000), AfterValidator(require_encodable)]
Depth = Annotated[WholeNumber, Field(ge=0, le=1000)]


class LoreEntry(Frozen):
    """One piece of lore."""

    id: Key
    content: Content
    name: str = ""
    enabled: bool = True
    keys: tuple[Key, ...] = ()
    """Any of these keys in the scanned text activates the entry."""
    secondary_keys: tuple[Key, ...] = ()
    logic: SecondaryLogic = "and_any"
    constant: bool = False
    """Always active."""
    order: WholeNumber = 100
    """Lower values come earlier in the prompt."""
    priority: WholeNumber | None = None
    """Lower values are dropped first when the budget is short. Defaults to `order`."""
    position: Literal["before_character", "after_character"] = "before_character"
    scan_depth: Depth | None = None
    """How many of the last messages are scanned. Defaults to the book's value."""
    case_sensitive: bool | None = None
    whole_words: bool | None = None
    regex: bool = False
    """Keys are regular expressions (RE2, linear time)."""
    probability: Unit = 1.0
    """Drawn once per task from its seed, so that all completions of a group get the same prompt."""
    prevent_recursion: bool = False
    """Its content does not activate other entries."""
    exclude_recursion: bool = False
    """Other entries' contents do not activate it."""
    extensions: dict[str, FiniteJson] = {}
    """Preserved on import and export; not used by the service."""


class Lorebook(Frozen):
    name: str = ""
    description: str = ""
    scan_depth: Depth = 2
    """How many of the last messages are scanned for keys."""
    token_budget: Annotated[WholeNumber, Field(ge=0, le=100_000)] | None = None
    """Maximum tokens of its entries in a prompt; no limit of its own if omitted."""
    recursive: bool = False
    """Contents of activated entries are scanned too."""
    case_sensitive: bool = False
    whole_words: bool = False
    entries: Annotated[tuple[LoreEntry, ...], Field(max_length=5000)] = ()
    extensions: dict[str, FiniteJson] = {}
