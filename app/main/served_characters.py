"""The characters that are served, as pages and listings want them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from app.characters.kept_scenes import keep_scene
from app.characters.loading import list_yaml_files, read_own_scenes, read_scenes
from app.characters.scenes import Scene
from app.characters.schema import CharacterSheet
from app.characters.sheet_checks import SheetCheckContext, check_sheets
from app.characters.sheet_sources import SheetFinding
from app.characters.views import CharacterCard, build_character_cards
from app.domain.errors import Conflict
from app.domain.values import Split
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena
from app.http.viewer.character_pages import CharacterPages
from app.judges.gates.gate_registry import GATES
from app.service.gateway import Gateway
from app.settings import Settings
from app.toolkit.package_data import find_packaged_folder

_Stamps = Mapping[Path, int]


@dataclass
class ServedCharacters:
    """Of NPC Arena, when it is served."""

    gateway: Gateway
    settings: Settings
    _checked: tuple[_Stamps, Sequence[SheetFinding]] = field(default_factory=lambda: ({}, ()))

    def build_pages(self) -> CharacterPages:
        return CharacterPages(NpcArena.name, self.list_sheets, self.list_scenes, self.check, self.gateway.views)

    def list_cards(self) -> tuple[CharacterCard, ...]:
        return build_character_cards(self.list_sheets())

    def list_names(self) -> dict[str, str]:
        """By id. Cards would digest every sheet, which takes longer than the rest of a reply's way."""
        return {sheet.id: sheet.identity.name for sheet in self.list_sheets()}

    def list_sheets(self) -> tuple[CharacterSheet, ...]:
        arena = self._find_arena()
        return () if arena is None else arena.sheets

    def list_scenes(self, character: str) -> tuple[Scene, ...]:
        """Those of both splits in which it is asked, as its tasks come without params."""
        arena = self._find_arena()
        splits: tuple[Split, ...] = () if arena is None else get_args(Split)
        casts = [cast for split in splits if arena for cast in arena.roster.list_casts(split, "both", "all", None)]
        return tuple(cast.scene for cast in casts if cast.sheet.id == character)

    def keep_scene(self, character: str, scene: Scene) -> None:
        """Adds it to the files of the folder that the settings name. Blocking. Conflict where none is named, or where
        it cannot be written."""
        folder = self.settings.character_sheets
        sheet = next((sheet for sheet in self.list_sheets() if sheet.id == character), None)
        if folder is None or sheet is None:
            raise Conflict("scenes are kept in the folder that the setting `character_sheets` names, and none is named")
        keep_scene(folder, sheet, scene)

    async def check(self) -> Sequence[SheetFinding]:
        """What `atropos-envs sheets check` says of the folder, again once a file of it has changed. GatewayError,
        OSError."""
        return await asyncio.to_thread(self._check)

    def _check(self) -> Sequence[SheetFinding]:
        folder = self.settings.character_sheets or find_packaged_folder("character_sheets")
        files = list_yaml_files(folder)
        stamps = {file: file.stat().st_mtime_ns for file in files}
        known, findings = self._checked
        if known == stamps:
            return findings
        own = read_own_scenes(folder)
        context = SheetCheckContext((*own, *read_scenes(PACKAGED_SCENES)), frozenset(gate.flag for gate in GATES))
        findings = check_sheets(files, context).findings
        self._checked = (stamps, findings)
        return findings

    def _find_arena(self) -> NpcArena | None:
        catalogue = self.gateway.catalogue
        if catalogue.explain_unavailability(NpcArena.name) is not None:
            return None
        arena = catalogue.get_environment_or_current(NpcArena.name).environment
        return arena if isinstance(arena, NpcArena) else None
