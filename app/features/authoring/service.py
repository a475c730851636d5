"""Sheets and scenes that authors write while the service runs.

The published text of a file is its newest stored revision, or else the folder's own file. Beside it each author may
keep a draft. Only the author's tries and talks that ask for it have it: a game never does. Every replica counts the
stored revisions now and then, and reads its characters again once there are new ones. What is published was read once
as it will be served, so nobody stores a text that breaks the service; what another replica's folder cannot serve is
tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from app.characters.authored_texts import UnreadableText, build_finding, check_texts, read_called
from app.characters.loading import LOREBOOKS, SCENES, list_yaml_files, read_text
from app.characters.sheet_checks import SheetCheckContext, SheetFinding, SheetSurroundings
from app.domain.access import name_current_caller
from app.domain.authored_files import MAX_AUTHORED, SCENE_FILES, AuthoredFile, ListedDraft, ListedRevision
from app.domain.errors import Conflict, GatewayError, InvalidRequest, NotFound
from app.domain.groups import GroupFilter
from app.domain.rollups import GROUPS_PER_BUCKET, RollupFilter
from app.domain.runs import RunState
from app.domain.tasks import Message
from app.domain.values import Frozen, Name
from app.features.authoring.model import AuthoredChange, AuthoredDraft, AuthoredRevision, list_texts
from app.features.authoring.store import AuthoredStore, build_draft_conflict
from app.ports.environment import Workers
from app.service.background import repeat
from app.service.catalogue import Catalogue
from app.service.runs import RunRegistry, RunReport
from app.store.views import GroupViews
from app.toolkit.texts import run_in_turn

log = logging.getLogger(__name__)

_STORE_SECONDS: Final = 1.0
"""How soon a store that could not be read at a start is asked again."""
POLL_SECONDS: Final = 2.0
"""Between two counts of the stored revisions."""
_MOST_POLLS: Final = 32
"""Polls until texts that could not be taken up are tried again, at most: a minute."""
_FILE: Final = TypeAdapter[str](AuthoredFile)
_MOST_CALLED: Final = 1000
"""Drafts of which is remembered what their characters are called."""


class BrokenText(InvalidRequest):
    """Texts with errors. `findings` has those and the warnings."""

    def __init__(self, findings: Sequence[SheetFinding]) -> None:
        self.findings = tuple(findings)
        first = next(finding for finding in findings if finding.level == "error")
        more = sum(finding.level == "error" for finding in findings) - 1
        position = f"{first.file}, line {first.line}: {first.field + ': ' if first.field else ''}"
        super().__init__(f"{position}{first.message}{f' (and {more} more)' if more else ''}", field="text")


class FileInForce(Frozen):
    """A file as it is in force."""

    file: str
    revision: int
    """0: the folder's own."""
    text: str


class SavedText(Frozen):
    """`revision` is in force now. It is no new one if it says what was in force before."""

    file: str
    revision: int
    is_new: bool
    warnings: tuple[SheetFinding, ...] = ()


class KeptFile(Frozen):
    """`digest` is that of the draft that is kept of a file. Without one, `why` says why none is."""

    file: str
    digest: str = ""
    why: str = ""


@dataclass(frozen=True)
class CharacterSource:
    """Where the characters come from. `build_surroundings` is what is in force."""

    environment: str
    folder: Path
    build_surroundings: Callable[[], SheetSurroundings]


@dataclass
class _RefusedTexts:
    """Texts that could not be taken up. They are tried again after one poll, two, four and so on."""

    texts: Mapping[str, str]
    tries: int = 0
    waits: int = 0
    """Polls until the next try."""

    def count_failure(self) -> None:
        self.waits = min(2**self.tries, _MOST_POLLS) - 1
        self.tries += 1


class AuthoringService:
    """`changed` is awaited after other characters are served."""

    def __init__(
        self,
        source: CharacterSource,
        catalogue: Catalogue,
        store: AuthoredStore,
        workers: Workers,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._source = source
        self._catalogue = catalogue
        self._store = store
        self._workers = workers
        self._changed = changed
        self._in_force: dict[str, AuthoredRevision] = {}
        self._written: Mapping[str, str] = {}
        self._served: Mapping[str, str] = {}
        """The texts with which the characters that are served were read."""
        self._refused = _RefusedTexts({})
        self._count = -1
        self._called: dict[str, tuple[str, ...]] = {}
        """What the characters of drafts are called, by the drafts' digests."""
        self._changing = asyncio.Lock()

    def list_written(self) -> Mapping[str, str]:
        """The texts that stand in place of the folder's files."""
        return self._written

    async def load(self) -> None:
        """Reads what is in force, before the characters are read. StoreUnavailable."""
        await self._load()
        self._served = self._written

    async def load_for_start(self) -> None:
        """As `load`, again and again until the store can be read: without it the characters would be others than those
        of the other replicas."""
        while True:
            try:
                return await self.load()
            except GatewayError as error:
                log.error("what authors wrote cannot be read yet: %s", error.detail)
                await asyncio.sleep(_STORE_SECONDS)

    async def _load(self) -> None:
        self._count = await self._store.count()
        self._in_force = await self._store.load_newest() if self._count else {}
        self._written = list_texts(self._in_force)

    async def reload(self) -> None:
        """Reads the folder and what is in force again. InvalidRequest when it cannot be used; what was read before then
        stays in use."""
        async with self._changing:
            await self._load()
            await self._reopen()
        await self._tell_changed()

    async def poll(self) -> bool:
        """Takes up what other replicas stored. Whether there was something."""
        if self._source.environment not in self._catalogue.classes:
            return False
        async with self._changing:
            if await self._store.count() != self._count:
                await self._load()
            if self._written == self._served:
                return False
            if self._refused.texts == self._written and self._refused.waits:
                self._refused.waits -= 1
                return False
            await self._reopen()
        await self._tell_changed()
        return True

    async def _reopen(self) -> None:
        if self._refused.texts != self._written:
            self._refused = _RefusedTexts(self._written)
        try:
            await run_in_turn("authors", self._catalogue.reopen, self._source.environment)
        except BaseException:
            self._refused.count_failure()
            raise
        self._served, self._refused = self._written, _RefusedTexts({})

    async def _tell_changed(self) -> None:
        """What is in force stays so, whatever becomes of this."""
        try:
            await self._changed()
        except GatewayError as error:
            log.warning("after a change of characters: %s", error.detail)
        except Exception:
            log.exception("after a change of characters")

    async def run(self) -> None:
        await repeat(self.poll, POLL_SECONDS, "what authors wrote could not be taken up")

    async def read(self, file: str) -> FileInForce:
        """NotFound for a file that is neither stored nor in the folder."""
        stored = self._in_force.get(file)
        if stored is not None and stored.text is not None:
            return FileInForce(file=file, revision=stored.revision, text=stored.text)
        own = await run_in_turn("authors", self._read_own, file)
        if own is None:
            raise NotFound(f"there is no {file}")
        return FileInForce(file=file, revision=self.find_number(file), text=own)

    def find_number(self, file: str) -> int:
        """The number of the newest stored revision, on which the next change is based."""
        stored = self._in_force.get(file)
        return 0 if stored is None else stored.revision

    def is_written(self, file: str) -> bool:
        """Whether a stored revision stands in place of the folder's file."""
        return file in self._written

    async def has_own(self, file: str) -> bool:
        """Whether the folder has a file of that name."""
        return await run_in_turn("authors", self._read_own, file) is not None

    def list_stored(self) -> list[str]:
        """The files of which a revision is stored, those that were taken back included."""
        return sorted(self._in_force)

    async def read_all(self) -> list[FileInForce]:
        """All sheets, scenes and lorebooks of the folder as they are in force."""
        texts = await run_in_turn("authors", self._read_folder) | list_texts(self._in_force)
        return [FileInForce(file=file, revision=self.find_number(file), text=texts[file]) for file in sorted(texts)]

    async def check(self, file: str, text: str) -> tuple[SheetFinding, ...]:
        """What `atropos-envs sheets check` says of it. UnreadableText."""
        return await self._check({file: text})

    async def list_revisions(self, file: str, limit: int, before: int | None = None) -> list[ListedRevision]:
        return await self._store.list_revisions(file, limit, before)

    async def get_revision(self, file: str, revision: int) -> AuthoredRevision:
        """NotFound."""
        stored = await self._store.get(file, revision)
        if stored is None:
            raise NotFound(f"{file} has no revision {revision}")
        return stored

    async def save(self, changes: Sequence[AuthoredChange], author: str, note: str = "") -> list[SavedText]:
        """All or none; durable and in force here on return. BrokenText, InvalidRequest for what cannot be used beside
        everything else, Conflict where another revision than that which a change is based on is stored."""
        async with self._changing:
            # As stored now: another replica may have saved since the last poll.
            await self._load()
            for change in changes:
                self._require_based(change)
            findings = await self._check_changes(changes)
            new = [change for change in changes if await self._differs(change)]
            if new:
                await self._store_changes(new, author, note)
        if new:
            await self._tell_changed()
        files = {change.file for change in new}
        return [
            SavedText(
                file=one.file,
                revision=self.find_number(one.file),
                is_new=one.file in files,
                warnings=tuple(finding for finding in findings if finding.file == one.file),
            )
            for one in changes
        ]

    async def find_draft(self, file: str, author: str) -> AuthoredDraft | None:
        """What this author keeps of the file, also where another replica has just stored it."""
        return await self._store.get_draft(file, author)

    async def fill_in(self, environment: str, draft: BaseModel) -> BaseModel:
        """With the caller's own draft in place of the character that `draft` names. InvalidRequest where there is none,
        and for one with errors."""
        character = getattr(draft, "character", None) if environment == self._source.environment else None
        if character is None:
            raise InvalidRequest("it needs a character of which you keep a draft", field="own_draft")
        kept = await self.find_draft(name_file(character, ""), name_current_caller())
        if kept is None:
            raise InvalidRequest(f"you keep no draft of {character}", field="draft.character")
        hosted = self._catalogue.get_environment_or_current(environment).environment
        try:
            mine = draft.model_copy(update={"character": None, "sheet": kept.text})
            return await hosted.read_draft(mine, self._workers)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"your draft of {character} cannot be used: {error.detail}. Mend or discard it on its page, "
                f"/view/characters/{character}/edit",
                field="draft.character",
            ) from error

    async def list_drafted(self, author: str) -> list[str]:
        """The files of which this author keeps a draft."""
        return await self._store.list_drafted(author)

    async def list_drafts(self, author: str) -> list[ListedDraft]:
        """All that this author keeps, with what their characters are called."""
        listed = await self._store.list_digests(author)
        return [
            ListedDraft(file=file) if "/" in file else await self._name_draft(file, digest, author)
            for file, digest in listed
        ]

    async def _name_draft(self, file: str, digest: str, author: str) -> ListedDraft:
        """Each text is read once: reading one takes a worker's time."""
        kept = None if digest in self._called else await self.find_draft(file, author)
        if kept is not None:
            if len(self._called) >= _MOST_CALLED:
                self._called.clear()
            try:
                self._called[digest] = await read_called(self._workers, file, kept.text)
            except InvalidRequest:
                self._called[digest] = ()
            except GatewayError as error:  # no worker now: the next page reads it again
                log.warning("a draft could not be read: %s", error.detail)
        return ListedDraft(file=file, called=self._called.get(digest, ()))

    async def save_draft(self, file: str, author: str, text: str, based_on: int, read: str) -> AuthoredDraft:
        """A draft may have errors. `based_on` is the revision that the author has read, and `read` the digest of the
        draft, empty for none. Conflict where it is another one by now."""
        return await self._store.put_draft(file, author, text, based_on, read)

    async def remove_draft(self, file: str, author: str, read: str) -> None:
        """`read` as for `save_draft`, and a Conflict too."""
        await self._store.remove_draft(file, author, read)

    async def publish(self, change: AuthoredChange, author: str, read: str, note: str = "") -> SavedText:
        """As `save`. The author's draft of the file is gone then. `read` as for `save_draft`: with another draft by now
        nothing is published."""
        kept = await self.find_draft(change.file, author)
        if kept is not None and kept.digest != read:
            raise build_draft_conflict(change.file)
        saved = await self.save([change], author, note)
        with suppress(Conflict):  # one that was saved in between stays
            await self.remove_draft(change.file, author, read)
        return saved[0]

    async def keep_drafts(self, texts: Mapping[str, str], numbers: Mapping[str, int], author: str) -> list[KeptFile]:
        """Of all these texts, by file, but for those that are published or of which the author keeps another draft.
        `numbers` are the revisions that they are based on."""
        return [await self._keep_draft(file, texts[file], numbers.get(file, 0), author) for file in sorted(texts)]

    async def _keep_draft(self, file: str, text: str, based_on: int, author: str) -> KeptFile:
        with suppress(NotFound):
            if (await self.read(file)).text == text:
                return KeptFile(file=file, why="published already, with this text")
        kept = await self.find_draft(file, author)
        try:
            kept = kept or await self.save_draft(file, author, text, based_on, "")
        except Conflict as error:
            return KeptFile(file=file, why=error.detail)
        if kept.text != text:
            return KeptFile(file=file, why="you keep another draft of it, which was not replaced")
        return KeptFile(file=file, digest=kept.digest)

    async def publish_drafts(self, read: Mapping[str, str], author: str) -> list[SavedText]:
        """As `save`, of the author's drafts of these files, which are gone then. `read` has the digest of each."""
        drafts = [await self.find_draft(file, author) for file in read]
        for draft, (file, digest) in zip(drafts, read.items(), strict=True):
            if draft is None or draft.digest != digest:
                raise build_draft_conflict(file)
        changes = [AuthoredChange(file=one.file, text=one.text, based_on=one.based_on) for one in drafts if one]
        saved = await self.save(changes, author)
        for file, digest in read.items():
            with suppress(Conflict):  # one that was saved in between stays
                await self.remove_draft(file, author, digest)
        return saved

    async def _store_changes(self, changes: Sequence[AuthoredChange], author: str, note: str) -> None:
        """What is stored has been read once as it will be served."""
        before = self._written
        texts = {**before, **{change.file: change.text for change in changes}}
        # The catalogue reads the characters through `list_written`, so they stand there before they are stored.
        self._written = {file: text for file, text in texts.items() if text is not None}
        try:
            hosted = await run_in_turn("authors", self._catalogue.read_again, self._source.environment)
            stored = await self._store.add(changes, author, note)
        except BaseException:
            self._written = before
            raise
        self._in_force |= {one.file: one for one in stored}
        self._count += len(stored)
        self._served = self._written
        self._catalogue.install(hosted)

    def _require_based(self, change: AuthoredChange) -> None:
        newest = self.find_number(change.file)
        if newest != change.based_on:
            raise Conflict(
                f"{change.file}: revision {newest} is in force, and this change is based on {change.based_on}: read it "
                "again, then repeat the change",
                field="revision",
            )

    async def _differs(self, change: AuthoredChange) -> bool:
        if change.text is None:
            return change.file in self._written
        try:
            return (await self.read(change.file)).text != change.text
        except NotFound:
            return True

    async def _check_changes(self, changes: Sequence[AuthoredChange]) -> tuple[SheetFinding, ...]:
        texts = {change.file: change.text for change in changes if change.text is not None}
        if not texts:
            return ()
        try:
            findings = await self._check(texts)
        except UnreadableText as error:
            raise BrokenText([build_finding(_name_files(texts), error)]) from None
        if any(finding.level == "error" for finding in findings):
            raise BrokenText(findings)
        return findings

    async def _check(self, texts: Mapping[str, str]) -> tuple[SheetFinding, ...]:
        """Of texts that will be in force together, which may refer to one another. UnreadableText."""
        former, context = await run_in_turn("authors", self._read_surroundings, texts)
        return await check_texts(self._workers, texts, former, context)

    def _read_surroundings(self, texts: Mapping[str, str]) -> tuple[dict[str, str], SheetCheckContext]:
        """The scenes that they replace, by file, and what else is in force."""
        changed = {Path(file).stem for file in texts if "/" not in file}
        replaced = {file: self._served.get(file) or self._read_own(file) for file in texts}
        former = {file: text for file, text in replaced.items() if file.startswith(SCENE_FILES) and text is not None}
        return former, self._source.build_surroundings().leave_out(changed)

    def _read_own(self, file: str) -> str | None:
        """None for what the folder has not, and for links that lead out of it."""
        try:
            path = self._source.folder / _FILE.validate_python(file)
        except ValidationError:
            return None
        inside = path.resolve().is_relative_to(self._source.folder.resolve())
        return read_text(path) if inside and path.is_file() else None

    def _read_folder(self) -> dict[str, str]:
        """TooLarge; InvalidRequest for links that lead out of the folder."""
        folders = ("", f"{SCENES}/", f"{LOREBOOKS}/")
        files = {f"{folder}{path.name}": path for folder in folders for path in self._list_files(folder)}
        return {file: read_text(path) for file, path in files.items()}

    def _list_files(self, folder: str) -> Sequence[Path]:
        try:
            return list_yaml_files(self._source.folder / folder)
        except NotFound:
            return ()


# Running trainings of a character.

_NEWEST_GROUPS: Final = 2000
"""Of all runs, in which a character's trainings are looked for."""
_MOST_RUNS: Final = 20
_ARRIVALS: Final = 40
_RUNNING: Final[frozenset[RunState]] = frozenset({"training", "stalled", "held"})


@dataclass(frozen=True)
class CharacterTrainings:
    """Names of runs, in order. `pinned` ones never take up a new text."""

    changing: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingFinder:
    environment: str
    views: GroupViews
    runs: RunRegistry

    async def find(self, character: str) -> CharacterTrainings:
        """Among the runs of the newest groups."""
        names = await self._list_recent(character)
        reports = await asyncio.gather(*(self.runs.get_report(name) for name in names))
        running = [report.run for report in reports if await self._is_running(report)]
        return CharacterTrainings(
            tuple(run.name for run in running if run.characters == "newest"),
            tuple(run.name for run in running if run.characters == "pinned"),
        )

    async def _list_recent(self, character: str) -> Sequence[str]:
        newest = (await self.views.find_outlines(GroupFilter(limit=1))).outlines
        if not newest:
            return ()
        first = max(0, newest[0].sequence - _NEWEST_GROUPS) // GROUPS_PER_BUCKET
        where = RollupFilter("bucket", self.environment, label=character, first_bucket=first)
        named = {rollup.key.run for rollup in await self.views.list_rollups(where)}
        return sorted(name for name in named if name)[:_MOST_RUNS]

    async def _is_running(self, report: RunReport) -> bool:
        found = await self.views.find_outlines(GroupFilter(run=report.run.name, limit=_ARRIVALS))
        arrivals = [group.created_at for group in found.outlines]
        return self.runs.tell_progress(report, arrivals).state in _RUNNING


# Drafts: findings, and the prompt as it will be.


class TextDraft(Frozen):
    text: Annotated[str, Field(max_length=MAX_AUTHORED)]
    scene: Name | None = None
    """The scene whose prompt is shown; by default the first."""


class CheckedText(Frozen):
    """The prompt is empty where there is none: `no_prompt` says why."""

    findings: tuple[SheetFinding, ...]
    errors: int
    prompt: tuple[Message, ...] = ()
    no_prompt: str = ""


BuildPrompt = Callable[[str, TextDraft], Awaitable[tuple[Message, ...]]]
"""From a file and its draft. InvalidRequest where it has no prompt."""


def _name_files(files: Iterable[str]) -> str:
    """A few of them."""
    names = sorted(files)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def name_file(character: str, suffix: str) -> str:
    """Of a character's sheet, or of its scenes for any suffix."""
    return f"{SCENE_FILES}{character}.yaml" if suffix else f"{character}.yaml"


async def check_draft(
    authoring: AuthoringService, build_prompt: BuildPrompt, file: str, draft: TextDraft
) -> CheckedText:
    try:
        findings = await authoring.check(file, draft.text)
    except UnreadableText as error:
        return CheckedText(findings=(build_finding(file, error),), errors=1, no_prompt=error.detail)
    errors = sum(finding.level == "error" for finding in findings)
    try:
        prompt = await build_prompt(file, draft)
    except GatewayError as error:
        return CheckedText(findings=findings, errors=errors, no_prompt=error.detail)
    return CheckedText(findings=findings, errors=errors, prompt=prompt)
