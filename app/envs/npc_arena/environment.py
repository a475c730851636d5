"""NPC Arena: stay in character for a scene, whatever the player says. Judges score replies against the sheet. Where
several characters meet, the policy speaks for one, and an episode is one trajectory.

Tasks of such scenes name the others in their metadata; what they say comes in the user's messages.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic_core import from_json, to_json

from app.characters.actions import write_reply
from app.characters.archives import list_world_files, read_world
from app.characters.authored_texts import read_in_worker, reads_authored
from app.characters.casting import (
    Cast,
    Staging,
    build_case_document,
    build_conversation,
    build_gate_facts,
    build_prompt_values,
    build_public_facts,
    build_scene_probes,
    build_starting_rubric,
    cast_all,
    choose_rubric,
    list_claimable_sources,
    refuse_unfit_scenes,
)
from app.characters.loading import (
    MAX_FILE_BYTES,
    NOTHING_WRITTEN,
    list_yaml_files,
    parse_model,
    read_own_scenes,
    read_scenes,
    read_sheets,
)
from app.characters.lorebooks import prepare_books
from app.characters.players import PROMPT_DIGEST
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.domain.errors import EnvironmentUnavailable, GatewayError, InvalidRequest, TooLarge
from app.domain.judging import Case, Rubric
from app.domain.players import PlayerChoice
from app.domain.scores import ReferencePlan, Score
from app.domain.tasks import Completion, Context, ContextQuery, Dataset, Message, Passage, Task, Turn, Withheld
from app.domain.values import Frozen, Name, Split, digest, digest_of_model, estimate_tokens
from app.envs.npc_arena.roster import (
    Acting,
    CandidateEntry,
    CastRoster,
    SheetDraft,
    Turns,
    Written,
    build_entry,
    build_single_scene_set,
    cast_draft,
    complete_score,
    compose_brief,
    derive_seed,
    extract_spoken,
    fill_names_in,
    find_next_turn,
    find_scene_player,
    list_stand_ins,
    list_utterances,
    parse_parts,
    read_edition,
    recall_passages,
    write_edition,
)
from app.envs.npc_arena.scenes import SceneComposer, SceneRow, SceneRows, build_row_form
from app.ports import Datasets, Drafted, Tools, Workers
from app.ports.players import Player
from app.toolkit.procedural import DatasetEnvironment, DatasetParams
from app.toolkit.templates import Template, find_packaged_folder
from app.toolkit.texts import run_in_turn
from app.toolkit.thoughts import map_completions

_FOLDER = Path(__file__).parent
PACKAGED_SCENES = _FOLDER / "scenes"
PACKAGED_WORLDS = _FOLDER / "worlds"
_PROMPT = Template.read(_FOLDER / "prompt.j2")
DEFAULT_RUBRIC = _FOLDER / "rubric.yaml"
_RUBRIC = parse_model(DEFAULT_RUBRIC.read_text(encoding="utf-8"), "rubric.yaml", Rubric)
_MEMORY = parse_model((_FOLDER / "rubric_memory.yaml").read_text(encoding="utf-8"), "rubric_memory.yaml", Rubric)
_MEMORY_RUBRIC = _RUBRIC.extend(_MEMORY)
"""Of scenes with earlier conversations: judges of other scenes are asked nothing more than before."""
STARTING_RUBRIC: Final = build_starting_rubric(_MEMORY_RUBRIC, _RUBRIC.name)
_CONTEXT_TOKENS = 600
"""Rough token budget for lore and events in a prompt; the character's own lorebook may take half of it."""
_Datasets = Mapping[str, Dataset[SceneRow]]
_ANY_SCENE: Final[Mapping[str, str]] = {"turns": "both", "actions": "with"}
_DRAFT: JsonDict = {"character": "hob_tarrant", "line": "Good morning! Is the water high today?"}


class NpcArenaParams(Staging, DatasetParams):
    """What changes the prompt and the choice of scenes. `turns`, `scenes` and `actions` have no effect on rows of data
    sets."""

    turns: Turns = "single"
    """`single`: scenes of one reply. `multi`: scenes that a player continues (`/step`). `both`: all scenes."""

    scenes: Written = "all"
    """`by_hand`: scenes of scene files. `composed`: those composed from the fields of sheets and the events of their
    worlds. `all`: both."""

    # Left out while it is the default, so that seeds and tasks of the other scenes stay what they were.
    actions: Annotated[Acting, Field(exclude_if=lambda chosen: chosen == "without")] = "without"
    """Scenes with actions, whose tasks have `tools`. `without`: none of them, for models and servers without tools.
    `with`: these too. `only`: no others."""

    player: Annotated[PlayerChoice | None, Field(exclude_if=lambda choice: choice is None)] = None
    """The model that plays the player, as `{"policy": "NAME"}`, in scenes with a player for it. Null: scripts alone go
    on. See `docs/players.md`."""

    world: Name | None = None
    """World whose events are retrieved; null retrieves none."""


class NpcArenaDraft(SheetDraft):
    model_config = ConfigDict(json_schema_extra={"examples": [_DRAFT]})

    params: NpcArenaParams = NpcArenaParams()
    """Params as for tasks; `turns` and `actions` have no effect."""


class NpcArenaReference(Frozen):
    """What a task is rebuilt from. Hidden, since scenes contain what the character must not know."""

    character: str
    scene: str
    params: NpcArenaParams
    passages: tuple[Passage, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    now: Annotated[datetime | None, Field(exclude_if=lambda now: now is None)] = None
    """Game time of what was retrieved."""


class NpcArena(DatasetEnvironment[SceneRow]):
    name: ClassVar[str] = "npc_arena"
    version: ClassVar[str] = "8"
    Params: ClassVar[type[BaseModel]] = NpcArenaParams
    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (SceneRow,)
    rubric: ClassVar[Rubric | None] = _RUBRIC
    takes_rubric: ClassVar[bool] = True
    multi_turn: ClassVar[bool] = True
    stats_label: ClassVar[str | None] = "character"
    Draft: ClassVar[type[BaseModel] | None] = NpcArenaDraft

    def __init__(
        self,
        sheets: Sequence[CharacterSheet],
        scene_sets: Sequence[SceneSet],
        origin: str = "character_sheets",
        fallback: Sequence[SceneSet] = (),
        composer: SceneComposer | None = None,
        datasets: _Datasets | None = None,
    ) -> None:
        """`fallback`: scenes for what the others leave open. `composer`: makes more from the sheets."""
        super().__init__(datasets)
        self.sheets = tuple(sheets)
        self._rows = SceneRows(self.datasets, self.sheets)
        self._scene_sets = tuple(scene_sets)
        self._fallback = tuple(fallback)
        self._origin = origin
        self._composer = composer
        composed = () if composer is None else composer.compose(self.sheets)
        self._scenes = {scene.id: scene for scenes in (*composed, *fallback, *scene_sets) for scene in scenes.scenes}
        self._lorebooks = {
            sheet.id: prepare_books({sheet.id: sheet.lorebook}) for sheet in sheets if sheet.lorebook is not None
        }
        # by digest, so that neighbours are different characters even without shuffling
        casts = (*cast_all(sheets, scene_sets, fallback), *cast_all(sheets, composed))
        # No reply could be right in a scene whose actions do not fit the sheet: shipped scenes beside a changed sheet.
        casts = tuple(cast for cast in casts if cast.fault is None)
        ordered = sorted(casts, key=lambda cast: digest([cast.sheet.id, cast.scene.id]))
        self.roster = CastRoster(ordered, frozenset(scene.id for scenes in composed for scene in scenes.scenes))

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        folder = datasets.folder("character_sheets") or find_packaged_folder("character_sheets")
        arena = cls.read(folder, datasets.folder("character_scenes"), datasets.list_written("character_sheets"))
        rows = datasets.rows(cls.name, build_row_form(arena.sheets))
        return arena._build_again(arena.sheets, arena._scene_sets, rows) if rows else arena

    @classmethod
    def read(cls, folder: Path, scenes: Path | None = None, written: Mapping[str, str] = NOTHING_WRITTEN) -> Self:
        """Uses the sheets of that folder, with the scenes that it brings or those of `scenes`; the packaged ones fill
        up. EnvironmentUnavailable names file and field of the first invalid one."""
        try:
            own = read_own_scenes(folder, written) if scenes is None else read_scenes(scenes)
            worlds = [read_world(file) for file in list_world_files(folder)]
            composer = SceneComposer.read(worlds, [read_world(file) for file in list_yaml_files(PACKAGED_WORLDS)])
            sheets = read_sheets(folder, written)
            refuse_unfit_scenes(sheets, own)
            arena = cls(sheets, own, folder.name, read_scenes(PACKAGED_SCENES), composer)
        except (GatewayError, OSError) as error:
            raise EnvironmentUnavailable(f"npc_arena: {error}") from error
        if not all(arena.size(split, NpcArenaParams()) for split in get_args(Split)):
            raise EnvironmentUnavailable(f"npc_arena: the characters in {folder.name} need scenes in both splits")
        return arena

    @property
    def own_origin(self) -> str:
        return self._origin

    @cached_property
    def own_digests(self) -> Mapping[str, str]:
        return {
            "sheets": digest([sheet.digest for sheet in self.sheets]),
            "scenes": digest([digest_of_model(scenes) for scenes in (*self._scene_sets, *self._fallback)]),
            **({} if self._composer is None else {"compositions": self._composer.digest}),
            "rubric": digest([digest_of_model(_RUBRIC), digest_of_model(_MEMORY_RUBRIC)]),
            "prompt": _PROMPT.digest,
            "player": PROMPT_DIGEST,
        }

    def sheet_texts(self) -> tuple[str, ...]:
        return self._sheet_texts

    @cached_property
    def _sheet_texts(self) -> tuple[str, ...]:
        return write_edition(self.sheets, self._scene_sets)

    def with_sheets(self, texts: Sequence[str]) -> Self:
        sheets, own = read_edition(texts)
        return self._build_again(sheets, self._scene_sets if own is None else own, self.datasets)

    @property
    def own_scene_sets(self) -> tuple[SceneSet, ...]:
        """Those that the folder brings."""
        return self._scene_sets

    @property
    def shipped_scene_sets(self) -> tuple[SceneSet, ...]:
        """Those that fill up what the others leave open."""
        return self._fallback

    def list_worlds(self, sheet: CharacterSheet) -> tuple[str, ...]:
        """Names of worlds in which this character is at home: that of its sheet, then those whose events its scenes are
        composed from."""
        told = () if self._composer is None else self._composer.list_worlds(sheet)
        return tuple(dict.fromkeys((sheet.meta.world, *(world.world for world in told))))

    def _build_again(self, sheets: Sequence[CharacterSheet], own: Sequence[SceneSet], datasets: _Datasets) -> Self:
        return type(self)(sheets, own, self._origin, self._fallback, self._composer, datasets)

    def _list_casts(self, split: Split, params: BaseModel) -> tuple[Cast, ...]:
        chosen = NpcArenaParams.model_validate(params)
        plays = chosen.player is not None
        return self.roster.list_casts(split, chosen.turns, chosen.scenes, chosen.actions, chosen.as_of, plays=plays)

    def count_own_tasks(self, split: Split, params: BaseModel) -> int:
        return len(self._list_casts(split, params))

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        return self._build_bare_task(self._list_casts(split, params)[index], params)

    def size(self, split: Split, params: BaseModel) -> int:
        dataset = self.find_dataset(params)
        return self.count_own_tasks(split, params) if dataset is None else self._rows.count(dataset.name, split)

    def build_dataset_task(self, dataset: Dataset[SceneRow], split: Split, index: int, params: BaseModel) -> Task:
        return self._build_bare_task(self._rows.cast(dataset.name, split, index), params)

    def count_left_out(self, dataset: str, split: Split) -> Mapping[str, int]:
        return self._rows.count_left_out(dataset, split)

    def gold(self, task: Task) -> Completion | None:
        cast = self.find_cast(task) if self._rows.has(task) else None
        if cast is None:
            return None
        seat, acts = cast.scene.seat, cast.scene.acts
        exemplar = cast.scene.exemplar if seat is None or cast.scene.turns else seat.exemplar
        if exemplar is None:
            return None
        calls = [] if acts is None else [call.build_minimal_call() for call in acts.right[0]]
        return Completion(text=exemplar) if acts is None else write_reply(exemplar, calls)

    def _build_bare_task(self, cast: Cast, params: BaseModel) -> Task:
        chosen = NpcArenaParams.model_validate(params)
        reference = NpcArenaReference(character=cast.sheet.id, scene=cast.scene.id, params=chosen)
        return self._build_task(reference.model_copy(update={"passages": self._recall_lore(reference, cast)}), cast)

    def query(self, task: Task) -> ContextQuery | None:
        reference = NpcArenaReference.model_validate(task.reference)
        cast = self.find_cast(task)
        if reference.params.world is None or cast is None:
            return None
        utterances = list_utterances(cast)
        return ContextQuery(
            text=utterances[-1],
            character=reference.character,
            world=reference.params.world,
            as_of=reference.params.as_of,
            circles=cast.sheet.identity.circles,
            conversation=utterances,
            seed=derive_seed(reference.character, reference.scene, reference.params, utterances),
            budget_tokens=_CONTEXT_TOKENS - sum(estimate_tokens(passage.text) for passage in reference.passages),
        )

    def place(self, task: Task, context: Context) -> Task:
        reference = NpcArenaReference.model_validate(task.reference)
        cast = self.find_cast(task)
        if cast is None:
            return task
        passages = (*self._recall_lore(reference, cast), *context.passages)
        retrieved = {"passages": passages, "withheld": context.withheld, "now": context.as_of}
        placed = self._build_task(reference.model_copy(update=retrieved), cast)
        return placed.model_copy(update={"metadata": {**task.metadata, **placed.metadata}})

    def find_cast(self, task: Task) -> Cast | None:
        """The character and scene of a task; None if they are no longer served."""
        reference = NpcArenaReference.model_validate(task.reference)
        rows, scene = self._rows, reference.scene
        if rows.has(task):
            return rows.find_cast(task, scene)
        return self.roster.find_cast(reference.character, scene, plays=reference.params.player is not None)

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        cast = self.find_cast(task)
        if cast is None:
            raise InvalidRequest("this character or scene is no longer there", field="task_id")
        return find_next_turn(cast.scene, messages, extract_spoken)

    def find_player(self, task: Task) -> Player | None:
        choice = NpcArenaReference.model_validate(task.reference).params.player
        cast = None if choice is None else self.find_cast(task)
        return None if cast is None else find_scene_player(cast, choice, task.messages)

    def draft(self, draft: BaseModel) -> Drafted:
        requested = NpcArenaDraft.model_validate(draft.model_dump())
        cast = cast_draft(requested, self.sheets, self._scenes)
        arena = type(self)([cast.sheet, *cast.others], [build_single_scene_set(cast)])
        return Drafted(arena, arena.task(cast.scene.split, 0, requested.params.model_copy(update=_ANY_SCENE)))

    async def read_draft(self, draft: BaseModel, workers: Workers) -> BaseModel:
        """A sheet or scene of a stranger is tried in a worker first, up to its prompt."""
        requested = NpcArenaDraft.model_validate(draft)
        if requested.sheet is None and not isinstance(requested.scene, dict):
            return draft
        filled = await run_in_turn("authors", fill_names_in(requested, self.sheets, self._scenes).model_dump_json)
        if len(filled.encode()) > MAX_FILE_BYTES:
            raise TooLarge(f"the draft is larger than {MAX_FILE_BYTES} bytes", field="draft")
        parts = from_json(str(await read_in_worker(workers, try_draft, filled, size=len(filled))))
        brought = {"sheet": requested.sheet is not None, "scene": isinstance(requested.scene, dict)}
        return requested.model_copy(update={name: parts[name] for name in parts if brought[name]})

    def references(self, task: Task) -> ReferencePlan | None:
        """None for scenes of several replies, and for those of which code verifies a part: a line alone cannot be
        compared with those."""
        cast = self.find_cast(task)
        if cast is None or cast.scene.max_turns > 1 or cast.scene.is_verified:
            return None
        return ReferencePlan(
            scene=digest([self.name, cast.sheet.digest, digest_of_model(cast.scene)]),
            given=cast.references,
            brief=compose_brief(_PROMPT.render(**build_prompt_values(cast, NpcArenaParams(), ())), cast)
            if cast.allows_made_references
            else "",
            opted_out=not cast.sheet.probes.calibration,
        )

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        cast = self.find_cast(task)
        if cast is None:
            return [Score.unscored("version_changed", "this character or scene is no longer there")] * len(group)
        entries, case = await self._enter(task, cast, group)
        scores = iter(() if case is None else (await tools.panel.judge(case)).scores)
        return [
            complete_score(next(scores), entry) if isinstance(entry, CandidateEntry) else entry for entry in entries
        ]

    async def build_cases(self, task: Task, group: Sequence[Completion]) -> list[Case]:
        if (cast := self.find_cast(task)) is None:
            return []
        _, case = await self._enter(task, cast, group)
        return [] if case is None else [case]

    async def _enter(
        self, task: Task, cast: Cast, group: Sequence[Completion]
    ) -> tuple[list[CandidateEntry | Score], Case | None]:
        """Each completion as it enters the judging, or its score where it does not; and what judges are asked about
        those that do."""
        reference = NpcArenaReference.model_validate(task.reference)
        facts = build_gate_facts(cast, reference.params, task.messages[0].content or "", reference.withheld)
        entries = await map_completions(group, lambda one: build_entry(cast, one, facts, extract_spoken))
        entered = [entry for entry in entries if isinstance(entry, CandidateEntry)]
        if not entered:
            return entries, None
        case = Case(
            key=digest([[message.model_dump(mode="json") for message in task.messages], task.reference]),
            rubric=choose_rubric(cast, _MEMORY_RUBRIC if cast.scene.earlier else _RUBRIC),
            document=build_case_document(cast, reference.params, reference.passages, reference.withheld, reference.now),
            probes=build_scene_probes(cast),
            gates=facts,
            sources=list_claimable_sources(cast, reference.passages),
            candidates=tuple(entry.text for entry in entered),
            lines=tuple(entry.lines for entry in entered if entry.lines),
            conversation=task.messages,
            episodes=tuple(entry.messages for entry in entered) if cast.scene.max_turns > 1 else (),
        )
        return entries, case

    def _recall_lore(self, reference: NpcArenaReference, cast: Cast) -> tuple[Passage, ...]:
        """Passages that the scene recalls from the character's own lorebook."""
        book = self._lorebooks.get(cast.sheet.id)
        if book is None:
            return ()
        seed = derive_seed(reference.character, reference.scene, reference.params, list_utterances(cast))
        return recall_passages(book, cast, seed, _CONTEXT_TOKENS // 2)

    def _build_task(self, reference: NpcArenaReference, cast: Cast) -> Task:
        prompt = _PROMPT.render(**build_prompt_values(cast, reference.params, reference.passages, reference.now))
        return Task(
            messages=(Message(role="system", content=prompt), *build_conversation(cast)),
            tools=cast.tools,
            max_turns=cast.scene.max_turns,
            metadata=build_public_facts(cast),
            reference=reference.model_dump(mode="json"),
        )


@reads_authored
def try_draft(draft: str) -> str:
    """Builds the task of a draft that brings its sheet and its scene or line, and returns those of them that were
    read, as JSON."""
    parsed = parse_parts(NpcArenaDraft.model_validate_json(draft))
    NpcArena(list_stand_ins(parsed), []).draft(parsed)
    return to_json(parsed.model_dump(mode="json", include={"sheet", "scene"}, exclude_none=True)).decode()
