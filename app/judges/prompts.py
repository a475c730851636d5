"""Prompts of chat judges, and the rubrics that people bring: read from files, or written by a judge's model.

A prompt holds fixed rules, then rubric and situation as plain lines, and the candidates last. What all groups of a
rubric share comes first, and then what all readings of a group share: servers keep such beginnings in their caches.
Every text of a stranger is on one line. One with line breaks is written as a JSON string, so that no text can begin a
line of its own and pass for a heading, a rule or another candidate.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, JsonValue, StringConstraints, ValidationError, model_validator
from pydantic_core import PydanticSerializationError, to_json

from app.characters.loading import BrokenYaml, YamlDocument, parse_document, read_text
from app.characters.sheet_checks import Level, SheetFinding
from app.domain.errors import GatewayError, InvalidRequest, JudgeFailed, UserError
from app.domain.faults import explain_faults, explain_os_error
from app.domain.judging import Candidate, Judgement, JudgeRequest, Mode, OwnRubric, Probes, Rubric, find_rubric_problems
from app.domain.values import (
    MEBIBYTE,
    Frozen,
    SameObject,
    WholeNumber,
    begin_digest,
    digest,
    finish_digest,
    remember,
    utc_now,
)
from app.judges.configuration import (
    ChatJudgeConfig,
    Deadline,
    ReadingCost,
    SpendingAccount,
    create_reservation_id,
)
from app.judges.gate_wordings import replace_surrogates
from app.judges.gates import GATES
from app.judges.judge_client import JudgeClient, PromptMessage
from app.judges.verdicts import assign_letters
from app.ports.judges import JudgeCache
from app.toolkit.templates import Template
from app.toolkit.thoughts import strip_leading_thoughts

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
_FOLDER: Final = Path(__file__).with_name("prompts")
_MESSAGE: Final = Template.read(_FOLDER / "message.j2")
_RULES: Final = Template.read(_FOLDER / "rules.j2")
_ANSWER: Final = Template.read(_FOLDER / "answer.j2")
_CORRECTION: Final = Template.read(_FOLDER / "correction.j2")
_REFERENCES: Final = Template.read(_FOLDER / "references.j2")

_FORMER_FORM: Final = ("77e2943e17f11918894815824db2814e", 3)
"""Of a form of answers that is asked no more: the digest of its text, and how many quotes it asked for. They stay in
the digest that follows, so that runs keep their pins and cached judgements are found."""
_LONGEST_QUOTED: Final = 8_000
"""Characters of an invalid answer that the correction quotes."""
_MOST_PREFIXES: Final = 512
"""Groups in flight, in which what their readings share is made once."""
_LAYOUT_VERSION: Final = 2
"""Increase this when the same request would be laid out differently."""
_SCALE: Final[Mapping[Mode, str]] = {
    "listwise": "Read all candidates before you score any. Give equal scores only to equal replies.",
    "pairwise": "Read both candidates before you score one. Use the whole scale, and give equal scores only to equal "
    "replies.",
    "pointwise": "Use the whole scale: of many replies to such a situation few are as good or as bad as its ends.",
}

TEMPLATES_DIGEST: Final = digest(
    [
        _MESSAGE.digest,
        _RULES.digest,
        {"long": _FORMER_FORM[0], "short": _ANSWER.digest},
        _CORRECTION.digest,
        dict(_SCALE),
        _FORMER_FORM[1],
        _LAYOUT_VERSION,
    ]
)


@dataclass(frozen=True)
class JudgePrompt:
    system: str
    user: str
    shared: str = ""
    """What `user` begins with in all readings of a group. It is encoded once."""

    def encode(self, judge: str) -> tuple[str, str]:
        """Its messages as JSON, and the digest of that and the judge's digest."""
        beginning, begun = _begin_encoding(judge, self.system, self.shared)
        rest = f"{_ENCODER.encode(self.user[len(self.shared) :])[1:]}}}]"
        return beginning + rest, finish_digest(begun, rest)


@remember(6 * MEBIBYTE)
def _begin_encoding(judge: str, system: str, shared: str) -> tuple[str, "hashlib._Hash"]:
    """Up to where the readings of a group differ."""
    encoded = f'[{{"role": "system", "content": {_encode_long_text(system)}}}, '
    encoded += f'{{"role": "user", "content": {_encode_long_text(shared)[:-1]}'
    return encoded, begin_digest(f"{judge} {encoded}")


def _encode_long_text(text: str) -> str:
    """As `_ENCODER` does it, in half the time."""
    try:
        return to_json(text).decode()
    except PydanticSerializationError:  # a lone surrogate
        return _ENCODER.encode(text)


@dataclass(frozen=True)
class JudgeQuestion:
    """A request with its rendered prompt and its cache key."""

    request: JudgeRequest
    prompt: JudgePrompt
    prompt_text: str
    """The first prompt as it is stored."""
    prompt_digest: str
    """Digest of the prompt and the judge."""
    cache_key: str
    """Cache key, equal for interchangeable questions."""


def build_prompt(request: JudgeRequest) -> JudgePrompt:
    """Deterministic. Parts shared by all groups of a rubric come first, then parts shared by a situation, so that
    servers can cache the prefix."""
    if request.wanted:
        return JudgePrompt(_REFERENCES.render(kinds=request.wanted), replace_surrogates(request.brief))
    lettered = zip(assign_letters(request), request.candidates, strict=True)
    candidates = "\n".join(_render_candidate(letter, each) for letter, each in lettered)
    prefix = _build_prefix(SameObject(request.rubric), SameObject(request.document), SameObject(request.probes))
    claims = request.rubric.claims
    criterion = "" if claims is None else claims.criterion
    return JudgePrompt(
        system=_render_rules(request.mode, criterion),
        user=f"{prefix}\n\nCANDIDATES\n{replace_surrogates(candidates)}",
        shared=prefix,
    )


@remember(4 * MEBIBYTE)
def _build_prefix(
    rubric: SameObject[Rubric], document: SameObject[dict[str, JsonValue]], probes: SameObject[Probes]
) -> str:
    """The message up to the candidates. The readings of a group share the parts, and encoding these once saves most of
    the work of a prompt."""
    parts = {
        "RUBRIC": _render_rubric(rubric),
        "CONTEXT": render_lines(document.value),
        "REFERENCES": render_lines(_leave_out_known(probes.value, document.value)),
    }
    return replace_surrogates("\n\n".join("\n".join((name, *lines)) for name, lines in parts.items()))


def _leave_out_known(probes: Probes, document: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The probes without words of the voice that the document has already."""
    listed_probes: dict[str, JsonValue] = probes.model_dump(mode="json")
    texts_of_document = _list_texts(document) if probes.voice else []
    return {
        **listed_probes,
        "voice": [word for word in probes.voice if not any(word in texts for texts in texts_of_document)],
    }


def _list_texts(document: Mapping[str, JsonValue]) -> list[frozenset[str]]:
    """Every string in it, however deep, by its parts."""
    parts = [part for value in document.values() for part in (value.values() if isinstance(value, dict) else [value])]
    collected = [_collect_texts(SameObject(part)) for part in parts if isinstance(part, list | dict)]
    return [*collected, frozenset(part for part in parts if isinstance(part, str))]


@remember(2 * MEBIBYTE)
def _collect_texts(part: SameObject[dict[str, JsonValue] | list[JsonValue]]) -> frozenset[str]:
    """Kept, as their lines."""
    texts: set[str] = set()
    open_parts: list[Iterable[JsonValue]] = [[part.value]]
    while open_parts:
        for item in open_parts.pop():
            if isinstance(item, str):
                texts.add(item)
            elif isinstance(item, list):
                open_parts.append(item)
            elif isinstance(item, dict):
                open_parts.append(item.values())
    return frozenset(texts)


def _render_candidate(letter: str, candidate: Candidate) -> str:
    hints = f" (hints: {'; '.join(map(encode_text, candidate.hints))})" if candidate.hints else ""
    return f"{letter}: {encode_text(candidate.text)}{hints}"


@lru_cache(maxsize=64)
def _render_rules(mode: Mode, grounded: str) -> str:
    """`grounded`: the criterion about claims; empty when the rubric asks for none."""
    for_all = "" if mode == "pointwise" else " for every candidate"
    return _MESSAGE.render(
        mode=mode,
        rules=_RULES.render(scale=_SCALE[mode], for_all=for_all, grounded=grounded),
        answer=_ANSWER.render(claims=bool(grounded)),
    )


def build_correction(answer: str, problems: Sequence[str]) -> list[PromptMessage]:
    """What is said after an invalid answer: its end, and its problems."""
    return [
        {"role": "assistant", "content": answer[-_LONGEST_QUOTED:] or "(nothing)"},
        {"role": "user", "content": replace_surrogates(_CORRECTION.render(problems=problems))},
    ]


@remember(MEBIBYTE)
def _render_rubric(rubric: SameObject[Rubric]) -> tuple[str, ...]:
    return tuple(_iterate_rubric_lines(rubric.value))


def _iterate_rubric_lines(rubric: Rubric) -> Iterator[str]:
    """Without weights and caps, which must not influence the scores of single criteria."""
    if rubric.instructions:
        yield from render_lines({"instructions": rubric.instructions})
    yield "criteria:"
    for criterion in rubric.criteria:
        levels = {str(level): text for level, text in sorted(criterion.anchors.items())}
        yield from render_lines({criterion.name: criterion.description or "(no description)", **levels})
    if rubric.defects:
        yield "defects:"
        for rule in rubric.defects:
            omission = " (omission)" if rule.omission else ""
            yield from render_lines({f"{rule.code}{omission}": rule.description or "(no description)"})


# Fields as plain lines.

_BETWEEN: Final = " | "
_SAID: Final = (("speaker", "text"), ("role", "content"))
"""Fields of a line of a conversation."""
# Line breaks for `str.splitlines`, which JSON leaves as they are.
_BREAKS_LEFT_BY_JSON: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def render_lines(fields: Mapping[str, JsonValue], indent: str = "") -> Iterator[str]:
    """No text can begin a line of its own: one with line breaks is written as a JSON string. Headings are not indented,
    and all else by at most one space, which costs no tokens."""
    for name, value in fields.items():
        if _is_empty(value):
            continue
        if isinstance(value, dict | list):
            yield from _render_part(name, SameObject(value)) if indent else _iterate_field_lines(name, value, indent)
        else:
            yield f"{indent}{name}: {_render_value(value)}"


@remember(2 * MEBIBYTE)
def _render_part(name: str, part: SameObject[dict[str, JsonValue] | list[JsonValue]]) -> tuple[str, ...]:
    """Kept, since the scenes of a character share most parts of its sheet."""
    return tuple(_iterate_field_lines(name, part.value, " "))


def _iterate_field_lines(name: str, value: dict[str, JsonValue] | list[JsonValue], indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{name}:"
        yield from render_lines(value, " ")
    elif any(isinstance(item, dict | list) for item in value):
        records = [item for item in map(_drop_empty, value) if not _is_empty(item)]
        columns = _find_columns(records)
        yield f"{indent}{name} ({_BETWEEN.join(columns)}):" if columns else f"{indent}{name}:"
        yield from (f" - {_render_item(item, named=not columns)}" for item in records)
    else:
        yield f"{indent}{name}: {_render_value(value)}"


def _is_empty(value: JsonValue) -> bool:
    """Whether a value says nothing. False and 0 say something."""
    return value is None or value in ("", [], {})


def encode_text(text: str) -> str:
    """A JSON string on one line."""
    written = _ENCODER.encode(text)
    return written if written.isascii() else written.translate(_BREAKS_LEFT_BY_JSON)


def _drop_empty(item: JsonValue) -> JsonValue:
    return {name: value for name, value in item.items() if not _is_empty(value)} if isinstance(item, dict) else item


def _find_columns(records: Sequence[JsonValue]) -> tuple[str, ...]:
    """The fields of records that all have the same ones: they are named once, above. A list within would look like
    further fields."""
    fields = [item for item in records if isinstance(item, dict)]
    names = {tuple(item) for item in fields}
    if len(fields) < max(2, len(records)) or len(names) > 1:
        return ()
    flat = not any(isinstance(value, dict | list) for item in fields for value in item.values())
    (columns,) = names
    return columns if flat and len(columns) > 1 and columns not in _SAID else ()


def _render_item(item: JsonValue, *, named: bool) -> str:
    """A record on one line. One that has only a text, or a text and its speaker, needs no names of fields."""
    if not isinstance(item, dict):
        return _render_value(item)
    if list(item) == ["text"]:
        return _render_value(item["text"])
    if tuple(item) in _SAID:
        speaker, text = map(_render_value, item.values())
        return f"{speaker}: {text}"
    return _BETWEEN.join(
        f"{name}: {_render_value(each)}" if named else _render_value(each) for name, each in item.items()
    )


def _render_value(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value if _is_plain(value) else encode_text(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return _BETWEEN.join(_render_value(item) for item in value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(_BREAKS_LEFT_BY_JSON)


def _is_plain(text: str) -> bool:
    """Whether a text can stand as it is: on one line, and without what separates values or opens a JSON string."""
    return len(text.splitlines()) == 1 and text == text.strip() and "|" not in text and not text.startswith('"')


# Rubrics of one's own: checked against the gates, and read from files with the line of every error.

_MAX_RUBRIC_BYTES: Final = 256 * 1024
_CONFIRMED_HINTS: Final = tuple(gate.flag for gate in GATES if gate.confirmed)
"""Hints whose gate closes when a defect of the rubric confirms them."""


@dataclass(frozen=True)
class RubricFile:
    """A rubric's file with all findings. `rubric` is None if one of them is an error."""

    findings: tuple[SheetFinding, ...]
    rubric: OwnRubric | None


@remember(2 * MEBIBYTE)
def build_sound_rubric(own: OwnRubric) -> Rubric:
    """InvalidRequest naming the field. The same object for equal rubrics, so that prompts of many groups share their
    beginning."""
    require_sound_rubric(own, "options.rubric")
    return own.build_rubric()


def require_sound_rubric(own: OwnRubric, field: str) -> None:
    """InvalidRequest naming the part of `field` that is wrong."""
    for problem in find_rubric_problems(own, _CONFIRMED_HINTS):
        if problem.level == "error":
            steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.at)
            raise InvalidRequest(problem.message, field="".join((field, *steps)))


def load_rubric(path: Path) -> OwnRubric:
    """UserError with the first error: file, line and key."""
    file = read_rubric(path)
    if file.rubric is None:
        first = next(finding for finding in file.findings if finding.level == "error")
        where = f"{first.file}, line {first.line}" if first.line else first.file
        raise UserError(": ".join(filter(None, (where, first.field, first.message))))
    return file.rubric


def read_rubric(path: Path) -> RubricFile:
    """Never raises for invalid content."""
    name = str(path)
    try:
        document = parse_document(read_text(path, _MAX_RUBRIC_BYTES), path.name)
        own = OwnRubric.model_validate(document.value)
    except BrokenYaml as error:
        message = error.detail.removeprefix(f"{path.name}: ").removeprefix(f"line {error.line}: ")
        return RubricFile((_build_finding(name, error.line or 0, "", message),), None)
    except ValidationError as error:
        return RubricFile(_explain_fields(name, document, error), None)
    except GatewayError as error:
        return RubricFile((_build_finding(name, 0, "", error.detail),), None)
    except OSError as error:
        return RubricFile((_build_finding(name, 0, "", explain_os_error(error)),), None)
    findings = [
        _build_finding(name, document.find_line(one.at), _format_path(one.at), one.message, one.level)
        for one in find_rubric_problems(own, _CONFIRMED_HINTS)
    ]
    broken = any(finding.level == "error" for finding in findings)
    return RubricFile(tuple(sorted(findings, key=lambda one: (one.line, one.level))), None if broken else own)


def _explain_fields(name: str, document: YamlDocument, error: ValidationError) -> tuple[SheetFinding, ...]:
    findings = [
        _build_finding(name, document.find_line(fault.path), fault.dotted, fault.words)
        for fault in explain_faults(error, OwnRubric, noun="key")
    ]
    return tuple(sorted(findings, key=lambda finding: finding.line))


def _build_finding(file: str, line: int, field: str, message: str, level: Level = "error") -> SheetFinding:
    return SheetFinding(file=file, line=line, field=field, level=level, message=message)


def _format_path(at: Sequence[str | int]) -> str:
    return ".".join(map(str, at))


# Rubrics that a judge's model writes from a preference.

_FEWEST_CRITERIA: Final = 2
_MOST_CRITERIA: Final = 6
_WRITING_RULES: Final = Template.read(_FOLDER / "rubric.j2")
_MOST_PROBLEMS: Final = 6


class WrittenCriterion(Frozen):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    description: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=1_000)]
    weight: Annotated[WholeNumber, Field(ge=1, le=10)]


class WrittenRubric(Frozen):
    criteria: Annotated[tuple[WrittenCriterion, ...], Field(min_length=_FEWEST_CRITERIA, max_length=_MOST_CRITERIA)]

    @model_validator(mode="after")
    def _require_unique_names(self) -> Self:
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError("two criteria have the same name")
        return self


async def write_rubric(config: ChatJudgeConfig, preference: str, memory: JudgeCache) -> WrittenRubric:
    """Retries once, with a list of the problems, when the first answer is invalid; then JudgeFailed with the reason.
    The judge's budgets apply, and the cost is stored as a judgement without candidates."""
    account = SpendingAccount(utc_now)
    account.update_state(await memory.get_budget_state(config.name))
    client, spent = JudgeClient(config, account, memory), ReadingCost(create_reservation_id())
    deadline = Deadline(config.deadline_seconds, config.queue_seconds)
    question = replace_surrogates(json.dumps({"preference": preference}, ensure_ascii=False))
    messages: list[PromptMessage] = [
        {"role": "system", "content": _WRITING_RULES.render(fewest=_FEWEST_CRITERIA, most=_MOST_CRITERIA)},
        {"role": "user", "content": question},
    ]
    failed: str | None = "given up"
    try:
        async with deadline:
            written = await _ask_for_rubric(client, messages, deadline, spent)
        failed = None
        return written
    except TimeoutError:
        failed = f"no usable answer within {config.deadline_seconds:g} s"
        raise JudgeFailed(failed) from None
    except JudgeFailed as error:
        failed = _redact(config, error.detail)
        raise JudgeFailed(failed) from None
    finally:
        await client.close()
        judgement = spent.add_to(_build_spending_judgement(config, messages, failed), config.prices)
        await _record_spending(client, judgement, spent.hold, memory)


async def _ask_for_rubric(
    client: JudgeClient, messages: list[PromptMessage], deadline: Deadline, spent: ReadingCost
) -> WrittenRubric:
    try:
        return _parse_rubric((await client.ask(messages, None, deadline, spent)).text)
    except ValueError as error:
        messages += build_correction(spent.raw, _list_problems(error))
    try:
        return _parse_rubric((await client.ask(messages, None, deadline, spent)).text)
    except ValueError as error:
        problems = "; ".join(_list_problems(error))
        raise JudgeFailed(f"invalid answer, also after the corrective retry: {problems}") from None


async def _record_spending(client: JudgeClient, judgement: Judgement, hold: str, memory: JudgeCache) -> None:
    if judgement.calls:
        await memory.put(judgement, hold)
    else:
        await client.budget.release(hold)


def _build_spending_judgement(
    config: ChatJudgeConfig, messages: Sequence[PromptMessage], failed: str | None
) -> Judgement:
    prompt = json.dumps(messages[:2], ensure_ascii=False)
    return Judgement(
        judge=config.name,
        model=config.model,
        order=(),
        prompt=prompt,
        prompt_digest=digest(prompt),
        error=failed,
        reading=digest([config.name, config.base_url, prompt, create_reservation_id()]),
    )


def _parse_rubric(answer: str) -> WrittenRubric:
    """ValueError, pydantic's included, for an invalid rubric. Text around the JSON object is ignored."""
    text = strip_leading_thoughts(answer)
    start, end = text.find("{"), text.rfind("}")
    try:
        value: object = json.loads(text[start : end + 1]) if start >= 0 else None
    except RecursionError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("there is no JSON object in the answer")
    return WrittenRubric.model_validate(value)


def _list_problems(error: ValueError) -> list[str]:
    if not isinstance(error, ValidationError):
        return [str(error)]
    return [fault.sentence for fault in explain_faults(error, WrittenRubric)[:_MOST_PROBLEMS]]


def _redact(config: ChatJudgeConfig, words: str) -> str:
    return replace_surrogates(config.endpoint.credentials.redact(words))
