"""The characters that are served, as pages and listings want them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from app.characters.loading import list_yaml_files, parse_model, read_own_scenes, read_scenes
from app.characters.scenes import Scene, SceneSet
from app.characters.schema import CharacterSheet
from app.characters.sheet_checks import SheetCheckContext, check_sources
from app.characters.sheet_sources import SheetFinding, build_source, read_source
from app.characters.views import CharacterCard, build_character_cards
from app.domain.authored_files import SCENE_FILES
from app.domain.errors import EnvironmentUnavailable, InvalidRequest
from app.domain.tasks import Message
from app.domain.values import Split
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena, NpcArenaDraft
from app.http.viewer.character_pages import CharacterPages
from app.judges.gates.gate_registry import GATES
from app.ports.authoring import AuthoredStore
from app.service.authoring import AuthoringService, CharacterSource
from app.service.character_drafts import TextDraft
from app.service.gateway import Gateway
from app.settings import Settings
from app.toolkit.package_data import find_packaged_folder

_Stamps = tuple[Mapping[Path, int], Mapping[str, str]]


@dataclass
class ServedCharacters:
    """Of NPC Arena, when it is served."""

    gateway: Gateway
    settings: Settings
    list_written: Callable[[], Mapping[str, str]] = dict
    """What authors wrote in place of the folder's files."""
    _checked: tuple[_Stamps, Sequence[SheetFinding]] = field(default_factory=lambda: (({}, {}), ()))

    @property
    def folder(self) -> Path:
        return self.settings.character_sheets or find_packaged_folder("character_sheets")

    def build_authoring(self, store: AuthoredStore, changed: Callable[[], Awaitable[None]]) -> AuthoringService:
        """What authors write is from now on part of what is checked."""
        source = CharacterSource(NpcArena.name, self.folder, self.build_context)
        authoring = AuthoringService(source, self.gateway.catalogue, store, changed)
        self.list_written = authoring.list_written
        return authoring

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

    def build_context(self) -> SheetCheckContext:
        """What a sheet is checked beside."""
        arena, gates = self._find_arena(), frozenset(gate.flag for gate in GATES)
        if arena is None:
            return SheetCheckContext(read_scenes(PACKAGED_SCENES), gates)
        return SheetCheckContext(arena.scene_sets, gates, {sheet.id: sheet for sheet in arena.sheets})

    def build_prompt(self, file: str, draft: TextDraft) -> tuple[Message, ...]:
        """The prompt of a sheet or of scenes that are being written. InvalidRequest naming what is wrong."""
        arena, character = self._find_arena(), Path(file).stem
        if arena is None:
            raise EnvironmentUnavailable("the characters are not served")
        try:
            asked = self._build_draft(file, draft, character)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise InvalidRequest(str(first["msg"]), field="text") from None
        return arena.draft(asked).task.messages

    def _build_draft(self, file: str, draft: TextDraft, character: str) -> NpcArenaDraft:
        if file.startswith(SCENE_FILES):
            scenes = parse_model(draft.text, file, SceneSet)
            scene = next((one for one in scenes.scenes if one.id == draft.scene), scenes.scenes[0])
            return NpcArenaDraft(character=scenes.character or character, scene=scene.model_dump(mode="json"))
        known = self.list_scenes(character)
        name = draft.scene or (known[0].id if known else None)
        return NpcArenaDraft(sheet=draft.text, scene=name, line=None if name else "Who are you?")

    async def check(self) -> Sequence[SheetFinding]:
        """What `atropos-envs sheets check` says of what is in force, again once that has changed. GatewayError,
        OSError."""
        return await asyncio.to_thread(self._check)

    def _check(self) -> Sequence[SheetFinding]:
        folder, written = self.folder, self.list_written()
        files = {file.name: file for file in list_yaml_files(folder)}
        stamps = {file: file.stat().st_mtime_ns for file in files.values()}
        known, findings = self._checked
        if known == (stamps, written):
            return findings
        files |= {name: folder / name for name in written if "/" not in name}
        sources = [
            build_source(files[name], written[name]) if name in written else read_source(files[name])
            for name in sorted(files)
        ]
        own = read_own_scenes(folder, written)
        context = SheetCheckContext((*own, *read_scenes(PACKAGED_SCENES)), frozenset(gate.flag for gate in GATES))
        findings = check_sources(sources, context).findings
        self._checked = ((stamps, written), findings)
        return findings

    def _find_arena(self) -> NpcArena | None:
        catalogue = self.gateway.catalogue
        if catalogue.explain_unavailability(NpcArena.name) is not None:
            return None
        arena = catalogue.get_environment_or_current(NpcArena.name).environment
        return arena if isinstance(arena, NpcArena) else None
