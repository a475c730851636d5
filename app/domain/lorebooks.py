"""Lorebooks: entries that what was said calls into the prompt, by the rules that game masters know."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from app.domain.values import FiniteJson, Frozen, Unit, WholeNumber, require_encodable

SecondaryLogic = Literal["and_any", "and_all", "not_any", "not_all"]
"""What secondary keys add to a key that was found: one of them as well, all of them, none of them, not all of them."""

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
    """Any of these in the text that is scanned calls the entry up."""
    secondary_keys: tuple[Key, ...] = ()
    logic: SecondaryLogic = "and_any"
    constant: bool = False
    """Comes up whatever was said."""
    order: WholeNumber = 100
    """Lower stands higher up in the prompt."""
    priority: WholeNumber | None = None
    """Lower is left out first where the budget is short; by `order` where nothing is said."""
    position: Literal["before_character", "after_character"] = "before_character"
    scan_depth: Depth | None = None
    """How many of the last messages are scanned; the book's where nothing is said."""
    case_sensitive: bool | None = None
    whole_words: bool | None = None
    regex: bool = False
    """Keys are regular expressions; they run in linear time (RE2)."""
    probability: Unit = 1.0
    """Rolled once for a task, by its seed, so that every completion of a group meets the same prompt."""
    prevent_recursion: bool = False
    """Its content calls up nothing else."""
    exclude_recursion: bool = False
    """Other entries' contents do not call it up."""
    extensions: dict[str, FiniteJson] = {}
    """Kept through import and export, read by nothing here."""


class Lorebook(Frozen):
    name: str = ""
    description: str = ""
    scan_depth: Depth = 2
    """How many of the last messages are scanned for keys."""
    token_budget: Annotated[WholeNumber, Field(ge=0, le=100_000)] | None = None
    """Tokens at most that its entries take in a prompt; no bound of its own where nothing is said."""
    recursive: bool = False
    """Contents of entries that came up are scanned too."""
    case_sensitive: bool = False
    whole_words: bool = False
    entries: Annotated[tuple[LoreEntry, ...], Field(max_length=5000)] = ()
    extensions: dict[str, FiniteJson] = {}
