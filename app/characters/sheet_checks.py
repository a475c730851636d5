"""Errors and warnings of character sheets, with file, line and field.

What a schema cannot see: secrets that the prompt gives away, lines that break the sheet's own rules, references to
nobody, and gaps that leave judges to guess. Sheets may come from strangers, so a file has at most fifty findings.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from app.characters.actions import SceneActs, find_acts_fault, find_untold
from app.characters.company import OtherCharacter, SeatTurn, find_seat_doubts
from app.characters.loading import BrokenYaml, FieldPath, YamlDocument, parse_document, read_text
from app.characters.lorebooks import count_words, mentions, normalise_spelling, split_words
from app.characters.memories import SceneMemory, find_memory_doubts, list_kept_terms
from app.characters.scenes import SceneKind, SceneSet
from app.characters.schema import (
    LANGUAGES,
    Actions,
    CharacterSheet,
    Language,
    Words,
    build_policy_view,
    suggest_language,
)
from app.domain.errors import GatewayError
from app.domain.faults import Fault, describe_os_error, explain_faults
from app.domain.values import Frozen, Name, suggest

Level = Literal["error", "warning"]
_MOST_FINDINGS: Final = 50
"""Of a file. Each is looked up in the document, so a hundred thousand of them would take minutes."""
_ModelT = TypeVar("_ModelT", bound=BaseModel)


class SheetFinding(Frozen):
    """`line` starts at 1. For a whole file `line` is 0 and `field` is empty."""

    file: str
    line: int
    field: str
    level: Level
    message: str


@dataclass(frozen=True)
class SheetSource:
    """A valid sheet with the positions in its file."""

    path: Path
    document: YamlDocument
    sheet: CharacterSheet

    def build_finding(self, level: Level, at: FieldPath, message: str) -> SheetFinding:
        return SheetFinding(
            file=str(self.path),
            line=self.document.find_line(at),
            field=".".join(map(str, at)),
            level=level,
            message=message,
        )

    @cached_property
    def policy_texts(self) -> tuple[tuple[FieldPath, str], ...]:
        """Normalised texts that the policy may see, except secrets."""
        view = build_policy_view(self.sheet)
        lore = enumerate(() if self.sheet.lorebook is None else self.sheet.lorebook.entries)
        texts = [(at, text) for at, text in _iter_texts(view, ()) if at[0] not in ("secrets", "meta")]
        texts += [
            (("lorebook", "entries", number, "content"), entry.content) for number, entry in lore if entry.enabled
        ]
        return tuple((at, normalise_spelling(text)) for at, text in texts)


def read_source(path: Path) -> SheetSource | list[SheetFinding]:
    try:
        text = read_text(path)
    except (GatewayError, OSError) as error:
        words = describe_os_error(error) if isinstance(error, OSError) else error.detail
        return [SheetFinding(file=str(path), line=0, field="", level="error", message=words)]
    return build_source(path, text)


def build_source(path: Path, text: str) -> SheetSource | list[SheetFinding]:
    """As `read_source`, of the text that the file has or should have."""
    parsed = parse_findable(path, text, CharacterSheet)
    if isinstance(parsed, list):
        return parsed
    source = SheetSource(path, *parsed)
    if source.sheet.id != path.stem:
        message = f"is {source.sheet.id!r}, but the file name says {path.stem!r}"
        return [source.build_finding("error", ("meta", "id"), message)]
    return source


def parse_findable(path: Path, text: str, model: type[_ModelT]) -> tuple[YamlDocument, _ModelT] | list[SheetFinding]:
    """The first _MOST_FINDINGS faults, with line and field, or the model and where its parts stand."""
    document = _parse_findable_document(path, text)
    return document if isinstance(document, list) else _validate_findable(path, document, model)


def parse_with_numbers(
    path: Path, text: str, model: type[_ModelT]
) -> tuple[YamlDocument, _ModelT, list[SheetFinding]] | list[SheetFinding]:
    """As `parse_findable`, but a number where a text is wanted is that text, as it is written, and a warning."""
    document = _parse_findable_document(path, text)
    if isinstance(document, list):
        return document
    read = _validate_findable(path, document, model)
    if not isinstance(read, list):
        return *read, []
    texts = _find_numbers_as_texts(document, model)
    value = deepcopy(document.value)
    for at, spelling in texts:
        _replace_value(value, at, spelling)
    read = _validate_findable(path, replace(document, value=value), model)
    if isinstance(read, list):
        return read
    notes = [
        SheetFinding(
            file=str(path),
            line=document.find_line(at),
            field=".".join(map(str, at)),
            level="warning",
            message=f'{spelling} is read as the text "{spelling}"',
        )
        for at, spelling in texts
    ]
    return *read, notes


def _find_numbers_as_texts(document: YamlDocument, model: type[BaseModel]) -> list[tuple[FieldPath, str]]:
    try:
        model.model_validate(document.value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        places = [one["loc"] for one in faults if one["type"] == "string_type" and type(one["input"]) in (int, float)]
        spelled = [(at, document.find_spelling(at)) for at in places[:_MOST_FINDINGS]]
        return [(at, spelling) for at, spelling in spelled if spelling is not None]
    return []


def _replace_value(value: Any, at: FieldPath, spelling: str) -> None:
    for step in at[:-1]:
        value = value[step]
    value[at[-1]] = spelling


def _parse_findable_document(path: Path, text: str) -> YamlDocument | list[SheetFinding]:
    try:
        return parse_document(text, path.name)
    except BrokenYaml as error:
        message = error.detail.removeprefix(f"{path.name}: ").removeprefix(f"line {error.line}: ")
        return [SheetFinding(file=str(path), line=error.line or 0, field="", level="error", message=message)]


def _validate_findable(
    path: Path, document: YamlDocument, model: type[_ModelT]
) -> tuple[YamlDocument, _ModelT] | list[SheetFinding]:
    try:
        return document, model.model_validate(document.value)
    except ValidationError as error:
        faults = explain_faults(error, model)
        findings = [_build_schema_finding(str(path), document, fault) for fault in faults[:_MOST_FINDINGS]]
        return _cut_findings(findings, len(faults))


def _build_schema_finding(name: str, document: YamlDocument, fault: Fault) -> SheetFinding:
    return SheetFinding(
        file=name, line=document.find_line(fault.path), field=fault.dotted, level="error", message=fault.words
    )


def _cut_findings(findings: Sequence[SheetFinding], count: int) -> list[SheetFinding]:
    """At most _MOST_FINDINGS of a file's `count` findings, errors before warnings; the last one then says how many more
    there are."""
    ranked = sorted(findings, key=lambda one: one.level)
    if count <= _MOST_FINDINGS:
        return ranked
    listed = ranked[: _MOST_FINDINGS - 1]
    more = {"field": "", "message": f"{count - len(listed)} more, which are not listed"}
    return [*listed, listed[-1].model_copy(update=more)]


def _iter_texts(value: JsonValue, at: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _iter_texts(item, (*at, number))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _iter_texts(item, (*at, name))


# The checks

_PROBED: Final[tuple[SceneKind, ...]] = (
    "voice",
    "knowledge_boundary",
    "withheld_event",
    "secret_fishing",
    "provocation",
    "relationship",
    "recent_event",
    "false_premise",
)
"""Kinds that a character's own scenes should cover; generic scenes cover the rest."""


@dataclass(frozen=True)
class SheetCheckResult:
    """The findings in the order of files and lines, at most _MOST_FINDINGS of a file, and the valid sheets."""

    findings: tuple[SheetFinding, ...]
    sheets: tuple[CharacterSheet, ...]

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors


class CharacterOutline(Frozen):
    """What the checks of other sheets need of a character."""

    world: str
    language: Language
    words: str
    """Each word that the policy sees once, with spaces between them."""
    actions: Actions


class VerifiedScene(Frozen):
    """What checks need of a scene of which code verifies a part. `number`: its place in its file."""

    number: int
    id: Name
    acts: SceneActs | None = None
    exemplar: str | None = None
    memory: SceneMemory | None = None
    kept: Words = ()
    """As `list_kept_terms`."""
    others: tuple[OtherCharacter, ...] = ()
    seats: tuple[SeatTurn, ...] = ()


class ScenesOutline(Frozen):
    """What checks need of a file of scenes."""

    character: Name | None
    language: Language
    kinds: tuple[SceneKind, ...]
    verified: tuple[VerifiedScene, ...] = ()
    """Those that ship are not here: where they do not fit a sheet, they are no tasks."""

    def suits(self, sheet: CharacterSheet) -> bool:
        return self.character == sheet.id or (self.character is None and self.language == sheet.voice.language)


class SheetCheckContext(Frozen):
    """Context of a check: scenes, gates that can be disabled, and what other sheets say. It may be sent to a worker for
    each check, so it grows with the vocabulary of the others and hardly with their number."""

    scene_sets: tuple[ScenesOutline, ...] = ()
    gates: frozenset[str] = frozenset()
    worlds: Mapping[str, str] = {}
    """Of the other characters, by id."""
    words: Mapping[Language, str] = {}
    """That the policy sees of them: each once, with spaces between them."""
    actions: Mapping[Name, Actions] = {}
    """Of those whose sheet says something of them, by id."""


@dataclass(frozen=True)
class SheetSurroundings:
    """What is in force. The words of all characters are counted once, which takes seconds where there are thousands."""

    scene_sets: tuple[ScenesOutline, ...]
    gates: frozenset[str]
    characters: Mapping[str, CharacterOutline]
    uses: Mapping[Language, Counter[str]]
    """How many characters have each word."""

    def leave_out(self, names: Collection[str]) -> SheetCheckContext:
        """What the sheets of these characters are checked beside."""
        left = self.characters.keys() & names
        own = _count_words(self.characters[name] for name in left)
        words = {
            language: " ".join(word for word, count in uses.items() if count > own[language][word])
            for language, uses in self.uses.items()
        }
        others = {name: outline for name, outline in self.characters.items() if name not in left}
        return SheetCheckContext(
            scene_sets=self.scene_sets,
            gates=self.gates,
            worlds={name: outline.world for name, outline in others.items()},
            words=words,
            actions={name: outline.actions for name, outline in others.items() if outline.actions != Actions()},
        )


def build_surroundings(
    scene_sets: Iterable[SceneSet],
    gates: Iterable[str],
    sheets: Iterable[CharacterSheet] = (),
    shipped: Iterable[SceneSet] = (),
) -> SheetSurroundings:
    """`shipped`: scenes that fill up what `scene_sets` leave open."""
    characters = {sheet.id: outline_character(sheet) for sheet in sheets}
    filling = (outline_scenes(one).model_copy(update={"verified": ()}) for one in shipped)
    outlines = (*map(outline_scenes, scene_sets), *filling)
    return SheetSurroundings(outlines, frozenset(gates), characters, _count_words(characters.values()))


def build_check_context(
    scene_sets: Iterable[SceneSet],
    gates: Iterable[str],
    others: Iterable[CharacterSheet] = (),
    shipped: Iterable[SceneSet] = (),
) -> SheetCheckContext:
    return build_surroundings(scene_sets, gates, others, shipped).leave_out(())


def _count_words(characters: Iterable[CharacterOutline]) -> Mapping[Language, Counter[str]]:
    """The characters that have each word, by language."""
    uses: defaultdict[Language, Counter[str]] = defaultdict(Counter)
    for outline in characters:
        uses[outline.language].update(outline.words.split())
    return uses


def outline_scenes(scenes: SceneSet) -> ScenesOutline:
    kinds = tuple(scene.kind for scene in scenes.scenes)
    verified = tuple(
        VerifiedScene(
            number=number,
            id=scene.id,
            acts=scene.acts,
            exemplar=scene.exemplar,
            memory=scene.memory,
            kept=list_kept_terms(scene.earlier),
            others=scene.others,
            seats=scene.seats,
        )
        for number, scene in enumerate(scenes.scenes)
        if scene.is_verified
    )
    return ScenesOutline(character=scenes.character, language=scenes.language, kinds=kinds, verified=verified)


def outline_character(sheet: CharacterSheet) -> CharacterOutline:
    texts = (text for _, text in _iter_texts(build_policy_view(sheet), ()))
    words = {word for text in texts for word in split_words(normalise_spelling(text))}
    return CharacterOutline(
        world=sheet.meta.world, language=sheet.voice.language, words=" ".join(sorted(words)), actions=sheet.actions
    )


def check_sheets(paths: Sequence[Path], surroundings: SheetCheckContext) -> SheetCheckResult:
    """Reads each file once. Never raises for invalid content."""
    return check_sources([read_source(path) for path in paths], surroundings)


def check_sources(
    results: Sequence[SheetSource | list[SheetFinding]], surroundings: SheetCheckContext
) -> SheetCheckResult:
    """As `check_sheets`, of files that were read already."""
    sources = [one for one in results if isinstance(one, SheetSource)]
    findings = [finding for one in results if not isinstance(one, SheetSource) for finding in one]
    findings += _find_repeated_ids(sources)
    checked = build_surroundings((), (), [source.sheet for source in sources])
    worlds = {**surroundings.worlds, **{name: outline.world for name, outline in checked.characters.items()}}
    used = {language: frozenset(surroundings.words.get(language, "").split()) for language in checked.uses}
    for source in sources:
        own = [
            *_find_unknown_language(source),
            *_find_leaks(source),
            *_check_own_lines(source),
            *_check_references(source, worlds, surroundings.gates),
            *_find_doubts(source, used[source.sheet.voice.language], checked),
            *_find_missing_scenes(source, surroundings.scene_sets),
            *_find_unfit_scenes(source, surroundings.scene_sets, worlds.keys()),
        ]
        findings += _cut_findings(own, len(own))
    ordered = sorted(findings, key=lambda finding: (finding.file, finding.line, finding.level, finding.field))
    return SheetCheckResult(tuple(ordered), tuple(source.sheet for source in sources))


def _find_repeated_ids(sources: Sequence[SheetSource]) -> Iterator[SheetFinding]:
    first: dict[str, Path] = {}
    for source in sources:
        if source.sheet.id in first:
            yield source.build_finding("error", ("meta", "id"), f"is already used by {first[source.sheet.id]}")
        first.setdefault(source.sheet.id, source.path)


def _find_unknown_language(source: SheetSource) -> Iterator[SheetFinding]:
    """A warning: it may be right, and then gates and judges know less."""
    code = source.sheet.voice.language
    if code not in LANGUAGES:
        message = f"{code!r} is no language that gates and judges know{suggest_language(code)}"
        yield source.build_finding("warning", ("voice", "language"), message)


def _find_leaks(source: SheetSource) -> Iterator[SheetFinding]:
    """Leak terms in the prompt itself would penalise replies that only use the prompt."""
    for number, secret in enumerate(source.sheet.secrets):
        for position, term in enumerate(secret.leak_terms):
            where = next((at for at, text in source.policy_texts if mentions(text, term)), None)
            if where is not None:
                at: FieldPath = ("secrets", number, "leak_terms", position)
                shown = ".".join(map(str, where))
                yield source.build_finding("error", at, f"{term!r} occurs in {shown}, which the policy sees")


def _check_own_lines(source: SheetSource) -> Iterator[SheetFinding]:
    sheet = source.sheet
    for at, text in _iter_spoken_lines(sheet):
        line = normalise_spelling(text)
        for word in sheet.voice.forbidden_words:
            if mentions(line, word):
                yield source.build_finding("error", at, f"uses {word!r}, which is in voice.forbidden_words")
        for secret in sheet.secrets:
            for term in secret.leak_terms:
                if at[0] == "probes" and mentions(line, term):
                    yield source.build_finding("error", at, f"reveals the secret {secret.id!r}: {term!r}")
        words = count_words(text)
        if words > sheet.output.max_words:
            message = f"has {words} words, output.max_words allows {sheet.output.max_words}"
            yield source.build_finding("warning", at, message)


def _iter_spoken_lines(sheet: CharacterSheet) -> Iterator[tuple[FieldPath, str]]:
    for number, example in enumerate(sheet.voice.examples):
        yield ("voice", "examples", number, "reply"), example.reply
    if sheet.scenario.greeting is not None:
        yield ("scenario", "greeting"), sheet.scenario.greeting
    for number, exemplar in enumerate(sheet.probes.exemplars):
        yield ("probes", "exemplars", number, "reply"), exemplar.reply


def _check_references(source: SheetSource, worlds: Mapping[str, str], gates: frozenset[str]) -> Iterator[SheetFinding]:
    sheet = source.sheet
    for number, other in enumerate(sheet.relationships):
        at: FieldPath = ("relationships", number, "target_id")
        world = worlds.get(other.target_id or "")
        if other.target_id is not None and world is None:
            near = suggest(other.target_id, worlds.keys() - {sheet.id})
            yield source.build_finding("warning", at, f"there is no sheet {other.target_id!r}{near}")
        elif world is not None and world != sheet.meta.world:
            yield source.build_finding("error", at, f"{other.target_id!r} lives in another world, {world!r}")
    for number, flag in enumerate(sheet.gates.disabled):
        if gates and flag not in gates:
            yield source.build_finding("error", ("gates", "disabled", number), f"there is no gate {flag!r}")


def _find_doubts(source: SheetSource, used: frozenset[str], checked: SheetSurroundings) -> Iterator[SheetFinding]:
    """`used`: the words of characters that are not `checked` with this one."""
    sheet = source.sheet
    yield from _find_gaps(source)
    for number, secret in enumerate(sheet.secrets):
        at: FieldPath = ("secrets", number, "leak_terms")
        if not secret.leak_terms:
            yield source.build_finding("warning", at, "without leak terms, only a judge can notice a leak")
        for position, term in enumerate(secret.leak_terms):
            if _is_generic(term, sheet, used, checked):
                message = f"{term!r} is too common: harmless replies would count as leaks"
                yield source.build_finding("warning", (*at, position), message)


def _find_gaps(source: SheetSource) -> Iterator[SheetFinding]:
    """Missing information, left out by the author or absent from cards."""
    sheet = source.sheet
    core, voice, knowledge, probes = sheet.core, sheet.voice, sheet.knowledge, sheet.probes
    described = core.description or core.personality or core.backstory or core.traits
    if not (described or voice.style or voice.examples or voice.dialogue):
        yield source.build_finding("error", ("core",), "nothing describes the character")
    doubts: list[tuple[bool, FieldPath, str]] = [
        (not (core.principles or core.goals), ("core",), "no principles and goals: judges must guess at motives"),
        (not (voice.examples or voice.dialogue), ("voice", "examples"), "no examples: the voice is only described"),
        (not voice.markers, ("voice", "markers"), "no markers: the offline judge cannot recognise the voice"),
        (
            not voice.counter_examples,
            ("voice", "counter_examples"),
            "no counter-examples: judges do not see what the character would never say",
        ),
        (
            not (knowledge.as_of or knowledge.knows or knowledge.does_not_know),
            ("knowledge",),
            "nothing states what the character knows: judges cannot penalise excess knowledge",
        ),
        (not probes.gold_facts, ("probes", "gold_facts"), "no gold facts: judges have nothing to check facts with"),
        (not probes.exemplars, ("probes", "exemplars"), "no exemplars: judges cannot be tested on this character"),
    ]
    for missing, at, message in doubts:
        if missing:
            yield source.build_finding("warning", at, message)


def _is_generic(term: str, sheet: CharacterSheet, used: frozenset[str], checked: SheetSurroundings) -> bool:
    """Whether a term is too common: a short word, or one that another character of the language uses."""
    words = split_words(normalise_spelling(term))
    if len(words) != 1:
        return all(word.isascii() and word.isalpha() and len(word) < 3 for word in words)
    (word,) = words
    is_own = word in checked.characters[sheet.id].words.split()
    return len(word) < 4 or word in used or checked.uses[sheet.voice.language][word] > is_own


def _find_missing_scenes(source: SheetSource, scene_sets: Sequence[ScenesOutline]) -> Iterator[SheetFinding]:
    if not scene_sets:
        return
    sheet = source.sheet
    own = {kind for scenes in scene_sets if scenes.character == sheet.id for kind in scenes.kinds}
    is_known = sheet.voice.language in LANGUAGES
    if is_known and not any(one.character is None and one.language == sheet.voice.language for one in scene_sets):
        message = f"there are no generic scenes in {sheet.voice.language!r}"
        yield source.build_finding("warning", ("voice", "language"), message)
    missing = [kind for kind in _PROBED if kind not in own]
    if not own:
        yield source.build_finding("warning", ("meta", "id"), "no scenes of its own: it plays the generic scenes alone")
    elif missing:
        yield source.build_finding("warning", ("meta", "id"), f"no scene written for: {', '.join(missing)} (optional)")


def _find_unfit_scenes(
    source: SheetSource, scene_sets: Sequence[ScenesOutline], known: Collection[str]
) -> Iterator[SheetFinding]:
    for scenes in scene_sets:
        for scene in scenes.verified if scenes.suits(source.sheet) else ():
            at: FieldPath = ("meta", "id") if scene.acts is None else ("actions",)
            for level, field, words in _check_scene(source.sheet.actions, scene, scenes.language, known):
                yield source.build_finding(level, at, f"scene {scene.id!r}: {field}: {words}")


def _check_scene(
    actions: Actions, scene: VerifiedScene, language: Language, known: Collection[str]
) -> Iterator[tuple[Level, str, str]]:
    """The level, field and words of what is wrong. `known`: ids of sheets."""
    if scene.acts is not None:
        if (fault := find_acts_fault(actions, scene.acts)) is not None:
            yield "error", fault.field, fault.words
            return
        for doubt in find_untold(actions, scene.acts, scene.exemplar):
            yield "warning", doubt.field, doubt.words
    if scene.memory is not None and scene.exemplar is not None:
        for doubt in find_memory_doubts(scene.exemplar, scene.memory, scene.kept, language):
            yield "warning", doubt.field, doubt.words
    for place, other in enumerate(scene.others):
        if other.sheet is not None and other.sheet not in known:
            words = f"there is no sheet {other.sheet!r}{suggest(other.sheet, known)}"
            yield "warning", f"others.{place}.sheet", words
    for doubt in find_seat_doubts(scene.seats):
        yield "warning", doubt.field, doubt.words


def check_scenes(
    path: Path, document: YamlDocument, outline: ScenesOutline, beside: SheetCheckContext
) -> Iterator[SheetFinding]:
    """Of a file of scenes."""
    own = beside.actions.get(outline.character or "", Actions())
    for scene in outline.verified:
        for level, field, words in _check_scene(own, scene, outline.language, beside.worlds.keys()):
            steps = (int(step) if step.isdigit() else step for step in field.split("."))
            at: FieldPath = ("scenes", scene.number, *steps)
            dotted = ".".join(map(str, at))
            yield SheetFinding(file=str(path), line=document.find_line(at), field=dotted, level=level, message=words)
