"""The character sheet. Each field says who may see it: the policy (through its prompt) or judges alone."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Final, Literal, Self

import jsonschema_rs
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    StringConstraints,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.main import IncEx

from app.characters.lorebooks import refuse_unusable
from app.domain.errors import InvalidRequest
from app.domain.values import MEBIBYTE, FiniteJson, Frozen, Name, SameObject, WholeNumber, is_absent, remember
from app.domain.worlds import Lorebook

POLICY = Field(json_schema_extra={"audience": "policy"})
"""The policy's prompt may show this."""

JUDGE = Field(json_schema_extra={"audience": "judge"})
"""Judges and gates see this; no prompt, task or listing shows it."""

CALLED_UP = Field(json_schema_extra={"audience": "called_up"})
"""Not shown as a whole: activated entries are among the passages of prompts and judges."""


SAID = Field(exclude_if=is_absent)
"""Omitted from dumps when empty, so that digests of older sheets stay the same."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=4000, strip_whitespace=True)]
Prose = Annotated[str, StringConstraints(min_length=1, max_length=40_000, strip_whitespace=True)]
"""Free text, as character cards have it."""
Word = Annotated[str, StringConstraints(min_length=1, max_length=120, strip_whitespace=True)]
LANGUAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "ar": ("Arabic", "العربية"),
    "be": ("Belarusian", "беларуская", "by"),
    "bg": ("Bulgarian", "български"),
    "ca": ("Catalan", "català"),
    "cs": ("Czech", "čeština", "cz"),
    "da": ("Danish", "dansk", "dk"),
    "de": ("German", "Deutsch", "at"),
    "el": ("Greek", "ελληνικά", "gr"),
    "en": ("English", "gb", "us"),
    "es": ("Spanish", "español", "castellano", "mx"),
    "fa": ("Persian", "فارسی", "Farsi", "ir"),
    "fi": ("Finnish", "suomi"),
    "fr": ("French", "français"),
    "he": ("Hebrew", "עברית", "il", "iw"),
    "hi": ("Hindi", "हिन्दी"),
    "hr": ("Croatian", "hrvatski"),
    "hu": ("Hungarian", "magyar"),
    "id": ("Indonesian", "bahasa Indonesia"),
    "it": ("Italian", "italiano"),
    "ja": ("Japanese", "日本語", "jp"),
    "ko": ("Korean", "한국어", "kr"),
    "la": ("Latin", "latina"),
    "mk": ("Macedonian", "македонски"),
    "nb": ("Norwegian Bokmål", "bokmål"),
    "nl": ("Dutch", "Nederlands"),
    "no": ("Norwegian", "norsk"),
    "pl": ("Polish", "polski"),
    "pt": ("Portuguese", "português", "br"),
    "ro": ("Romanian", "română"),
    "ru": ("Russian", "русский"),
    "sk": ("Slovak", "slovenčina"),
    "sl": ("Slovene", "slovenščina", "si"),
    "sr": ("Serbian", "српски", "srpski", "rs"),
    "sv": ("Swedish", "svenska", "se"),
    "sw": ("Swahili", "Kiswahili"),
    "th": ("Thai", "ไทย"),
    "tr": ("Turkish", "Türkçe"),
    "uk": ("Ukrainian", "українська", "ua"),
    "vi": ("Vietnamese", "tiếng Việt", "vn"),
    "zh": ("Chinese", "中文", "Mandarin", "cn"),
}
"""The languages of which gates and judges know something, by code. First the English name, then what is typed in place
of the code: other names, and codes of countries."""
_CODE: Final = re.compile("[a-z]{2}")
_LONGEST_LANGUAGE: Final = 40
"""Characters of a word for which a near one is looked for."""


def suggest_language(word: str) -> str:
    """The end of a sentence about what is no known code, as `suggest`: `; German is `de``."""
    typed = word.strip().casefold().replace("_", "-")
    names = {name.casefold(): code for code, called in LANGUAGES.items() for name in (code, *called)}
    spoken = typed.partition("-")[0]
    begun = [name for name in names if len(spoken) > 1 and name.startswith(spoken)]
    is_short = len(typed) <= _LONGEST_LANGUAGE
    near = [spoken] if spoken in names else begun or (get_close_matches(typed, names, n=1) if is_short else [])
    return f"; {LANGUAGES[names[near[0]]][0]} is `{names[near[0]]}`" if near else ""


def find_language_fault(word: str) -> str:
    """Empty for two small letters, whether they are known or not."""
    is_code = _CODE.fullmatch(word)
    return "" if is_code else f"wanted is a language of two letters, such as `en`{suggest_language(word)}"


def _require_language(value: object) -> object:
    if isinstance(value, str) and (fault := find_language_fault(value)):
        raise ValueError(fault)
    return value


Language = Annotated[str, StringConstraints(pattern=f"^{_CODE.pattern}$"), BeforeValidator(_require_language)]
"""ISO 639-1."""

SCHEMA_VERSION: Final = 1
"""The newest supported version; an incompatible change increments it."""

Texts = tuple[Text, ...]
Words = tuple[Word, ...]


class SheetPart(Frozen):
    pass


def _require_readable_version(version: int) -> int:
    if version > SCHEMA_VERSION:
        raise ValueError(f"written for schema {version}; this version of the service reads up to {SCHEMA_VERSION}")
    return version


class Meta(SheetPart):
    schema_version: Annotated[WholeNumber, Field(ge=1), AfterValidator(_require_readable_version), POLICY]
    """Schema version of the sheet: 1. Newer versions are refused."""
    id: Annotated[Name, POLICY]
    """File name without suffix."""
    version: Annotated[Word, POLICY] = "1"
    """The author's revision of the sheet."""
    licence: Annotated[Word, POLICY]
    source: Annotated[Word, POLICY] = "original"
    genre: Annotated[Word, POLICY]
    world: Annotated[Name, POLICY]
    """Characters with the same value share a world."""
    summary: Annotated[Text, POLICY]
    """One sentence for listings; holds no secret."""
    tags: Annotated[Words, POLICY] = ()
    held_out: Annotated[bool, POLICY] = False
    """Kept out of training: the character appears in the test split only, its own training scenes included."""
    notes: Annotated[str, JUDGE] = ""
    """Author's notes for judges: what this character tests."""
    extensions: Annotated[dict[str, FiniteJson], JUDGE] = {}
    """Kept on import and export, otherwise unused."""


class Identity(SheetPart):
    name: Annotated[Word, POLICY]
    aliases: Annotated[Words, POLICY] = ()
    """Other names for the same person: first name, title, nickname."""
    role: Annotated[Text | None, POLICY, SAID] = None
    faction: Annotated[Word | None, POLICY] = None
    circles: Annotated[Words, JUDGE] = ()
    """Further names for the visibility of events: factions, households, places."""
    species: Annotated[Word | None, POLICY, SAID] = None
    age: Annotated[Word | None, POLICY, SAID] = None
    pronouns: Annotated[Word | None, POLICY, SAID] = None
    appearance: Annotated[Text | None, POLICY, SAID] = None
    is_machine: Annotated[bool, POLICY] = False
    """The character really is a machine and may say so."""


class Core(SheetPart):
    stance: Annotated[Literal["good", "ambivalent", "villain"] | None, POLICY, SAID] = None
    """Moral stance. Malice that fits the sheet of a villain is not a defect."""
    traits: Annotated[Texts, POLICY, SAID] = ()
    principles: Annotated[Texts, POLICY, SAID] = ()
    contradictions: Annotated[Texts, POLICY, SAID] = ()
    """What keeps the character from being a caricature."""
    goals: Annotated[Texts, POLICY, SAID] = ()
    fears: Annotated[Texts, POLICY, SAID] = ()
    flaws: Annotated[Texts, POLICY, SAID] = ()
    backstory: Annotated[Text | None, POLICY, SAID] = None
    description: Annotated[Prose | None, POLICY, SAID] = None
    """Description of the character in free text."""
    personality: Annotated[Prose | None, POLICY, SAID] = None


class Catchphrase(SheetPart):
    text: Annotated[Text, POLICY]
    once_in: Annotated[WholeNumber, Field(ge=1, le=100), POLICY]
    """Used in at most one of this many replies."""


class VoiceExample(SheetPart):
    player: Annotated[Text, POLICY]
    reply: Annotated[Text, POLICY]


class CounterExample(SheetPart):
    """What the character would never say, and why."""

    reply: Annotated[Text, JUDGE]
    why: Annotated[Text, JUDGE]


class Voice(SheetPart):
    language: Annotated[Language, POLICY] = "en"
    style: Annotated[Text | None, POLICY, SAID] = None
    """Register and manner."""
    dialect: Annotated[Text | None, POLICY] = None
    sentence_length: Annotated[Text | None, POLICY, SAID] = None
    markers: Annotated[Words, POLICY, SAID] = ()
    """Characteristic words and phrases."""
    catchphrases: Annotated[tuple[Catchphrase, ...], POLICY] = ()
    forbidden_words: Annotated[Words, POLICY] = ()
    """Words that the character would never use."""
    examples: Annotated[tuple[VoiceExample, ...], POLICY, SAID] = ()
    """Examples to imitate, not to copy."""
    dialogue: Annotated[Prose | None, POLICY, SAID] = None
    """Example dialogue that is not in the form of a line and a reply."""
    counter_examples: Annotated[tuple[CounterExample, ...], JUDGE] = ()


class Misconception(SheetPart):
    belief: Annotated[Text, POLICY]
    """What the character holds to be true."""
    truth: Annotated[Text, JUDGE]


class Knowledge(SheetPart):
    as_of: Annotated[Text | None, POLICY, SAID] = None
    """The moment, in the world's own words, after which the character knows nothing."""
    tech_era: Annotated[Text | None, POLICY, SAID] = None
    knows: Annotated[Texts, POLICY, SAID] = ()
    does_not_know: Annotated[Texts, POLICY, SAID] = ()
    """Subjects that the character knows nothing about, without the answers."""
    misconceptions: Annotated[tuple[Misconception, ...], POLICY] = ()


class SheetSecret(SheetPart):
    """A secret that the character knows, and so the policy; leak terms are for the gates."""

    id: Annotated[Name, POLICY]
    text: Annotated[Text, POLICY]
    reveal_if: Annotated[Text, POLICY]
    leak_terms: Annotated[Words, JUDGE]
    """A reply with any of these leaks the secret, unless the player said it first."""


class Relationship(SheetPart):
    target: Annotated[Word, POLICY]
    target_id: Annotated[Name | None, POLICY] = None
    """The other's sheet, where there is one."""
    type: Annotated[Text, POLICY]
    attitude: Annotated[Text, POLICY]
    trust: Annotated[WholeNumber, Field(ge=-5, le=5), POLICY]


class LoreFact(SheetPart):
    """A fact about the world, in a form that lorebooks can use. `known: false` hides it from the policy."""

    id: Annotated[Name, POLICY]
    text: Annotated[Text, POLICY]
    known: Annotated[bool, POLICY] = True
    keys: Annotated[Words, POLICY] = ()
    """Any of these in the recent conversation activates the fact."""
    secondary_keys: Annotated[Words, POLICY] = ()
    logic: Annotated[Literal["and_any", "and_all", "not_any", "not_all"], POLICY] = "and_any"
    """How secondary keys restrict the keys: at least one, all, none, or not all of them must occur."""
    constant: Annotated[bool, POLICY] = False
    """Always active."""
    importance: Annotated[WholeNumber, Field(ge=0, le=10), POLICY] = 5
    valid_from: Annotated[AwareDatetime | None, POLICY] = None
    valid_to: Annotated[AwareDatetime | None, POLICY] = None

    def holds_at(self, moment: datetime | None) -> bool:
        """Whether the fact holds at `moment`; without a moment, only open-ended facts hold."""
        if moment is None:
            return self.valid_to is None
        return (self.valid_from is None or self.valid_from <= moment) and (
            self.valid_to is None or moment < self.valid_to
        )


Disclosure = Literal["on_sincere_request"]
"""When a character may say that a program speaks."""


class Boundaries(SheetPart):
    forbidden_topics: Annotated[Texts, POLICY] = ()
    refusal_style: Annotated[Text | None, POLICY, SAID] = None
    """How the character declines without leaving its role."""
    content_rating: Annotated[Literal["everyone", "teen", "mature"] | None, POLICY, SAID] = None
    disclosure: Annotated[Disclosure | None, POLICY, SAID] = None
    """`on_sincere_request`: a player who asks sincerely and outside the story is told that a program answers. Unset:
    nobody is told."""


_MOST_SCHEMA: Final = 4_000
"""Characters of the JSON schema of one action."""
_UNSAFE_KEYWORDS: Final = frozenset(("$ref", "$dynamicRef", "pattern", "patternProperties", "format"))
"""Keywords of JSON schema that lead elsewhere, or run an author's regular expression."""


def _require_plain_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    text = json.dumps(schema)
    if len(text) > _MOST_SCHEMA:
        raise ValueError(f"a schema of {len(text)} characters; at most {_MOST_SCHEMA} are read")
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise ValueError("wanted is a JSON schema of an object: `type: object` with `properties`")
    if unsafe := _UNSAFE_KEYWORDS.intersection(_iterate_keywords(schema)):
        raise ValueError(f"`{min(unsafe)}` is not read here; list the values with `enum`")
    try:
        jsonschema_rs.meta.validate(schema)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no valid JSON schema: {str(error).splitlines()[0][:200]}") from None
    return schema


def _iterate_keywords(schema: JsonValue) -> Iterator[str]:
    """Every key of a schema but the names of properties."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            yield from part
            for key, value in part.items():
                waiting += value.values() if key == "properties" and isinstance(value, dict) else [value]


class SheetAction(SheetPart):
    """An action for the game. Without `parameters` it is written as `[name]`; with them it is called as a tool, in
    scenes with `acts` and in play."""

    name: Annotated[Name, POLICY]
    meaning: Annotated[Text, POLICY]
    when: Annotated[Text | None, POLICY, SAID] = None
    """When it fits."""
    parameters: Annotated[
        Annotated[dict[str, FiniteJson], AfterValidator(_require_plain_schema)] | None, POLICY, SAID
    ] = None
    """JSON schema of its arguments: an object with `properties`, and `required` for those that must be there."""


class Actions(SheetPart):
    """Game actions of the character. Without any, brackets in a reply have no meaning."""

    allowed: Annotated[tuple[SheetAction, ...], POLICY] = ()
    at_most: Annotated[WholeNumber, Field(ge=1, le=5), POLICY] = 1
    """Maximum actions per reply."""


class SheetOutput(SheetPart):
    max_words: Annotated[WholeNumber, Field(ge=10, le=400), POLICY] = 120
    narration: Annotated[Literal["none", "short_actions"], POLICY] = "short_actions"
    """Whether the character's own actions may stand between asterisks."""
    speak_only_as_self: Annotated[bool, POLICY] = True


class SheetScenario(SheetPart):
    location: Annotated[Text | None, POLICY, SAID] = None
    situation: Annotated[Prose | None, POLICY, SAID] = None
    player: Annotated[Text | None, POLICY, SAID] = None
    """Who the player is to this character when nothing else is said."""
    greeting: Annotated[Prose | None, POLICY, SAID] = None
    """The character's previous line in scenes without history."""
    greetings: Annotated[tuple[Prose, ...], POLICY, SAID] = ()
    """Alternative greetings. Kept; not used in prompts."""


class Exemplar(SheetPart):
    """A very good reply to a line of the player, which judges under test must prefer to perturbed ones."""

    player: Annotated[Text, JUDGE]
    reply: Annotated[Text, JUDGE]
    plain: Annotated[Text | None, JUDGE, SAID] = None
    """A sound reply to the line that shows little of the character, for calibration."""
    generic: Annotated[Text | None, JUDGE, SAID] = None
    """A weak reply that almost anybody could have given, for calibration."""


class SheetProbes(SheetPart):
    gold_facts: Annotated[Texts, JUDGE, SAID] = ()
    must_not_mention: Annotated[Words, JUDGE] = ()
    distractors: Annotated[Texts, JUDGE, SAID] = ()
    """Fluent replies of another persona, for tests of judges."""
    exemplars: Annotated[tuple[Exemplar, ...], JUDGE, SAID] = ()
    calibration: Annotated[bool, JUDGE, Field(exclude_if=bool)] = True
    """`off`: no group of this character is calibrated, and no judge makes replies for it."""


class GateOverrides(SheetPart):
    disabled: Annotated[Words, JUDGE] = ()
    """Disabled gates, by flag; see docs/flags.md."""


class CharacterSheet(SheetPart):
    """One NPC, complete."""

    meta: Annotated[Meta, POLICY]
    identity: Annotated[Identity, POLICY]
    core: Annotated[Core, POLICY] = Core()
    voice: Annotated[Voice, POLICY] = Voice()
    knowledge: Annotated[Knowledge, POLICY] = Knowledge()
    secrets: Annotated[tuple[SheetSecret, ...], POLICY] = ()
    relationships: Annotated[tuple[Relationship, ...], POLICY] = ()
    lore_facts: Annotated[tuple[LoreFact, ...], POLICY] = ()
    lorebook: Annotated[Lorebook | None, CALLED_UP, SAID] = None
    """The character's own lorebook."""
    boundaries: Annotated[Boundaries, POLICY] = Boundaries()
    actions: Annotated[Actions, POLICY] = Actions()
    output: Annotated[SheetOutput, POLICY] = SheetOutput()
    scenario: Annotated[SheetScenario, POLICY] = SheetScenario()
    probes: Annotated[SheetProbes, JUDGE] = SheetProbes()
    gates: Annotated[GateOverrides, JUDGE] = GateOverrides()

    @model_validator(mode="after")
    def _require_unique_ids(self) -> Self:
        _require_unique("secrets", (secret.id for secret in self.secrets))
        _require_unique("lore_facts", (fact.id for fact in self.lore_facts))
        _require_unique("actions", (action.name for action in self.actions.allowed))
        try:
            refuse_unusable(self.lorebook or Lorebook())
        except InvalidRequest as error:
            raise ValueError(f"lorebook.{error.field}: {error.detail}") from None
        return self

    @property
    def id(self) -> str:
        return self.meta.id

    @property
    def digest(self) -> str:
        """32 hexadecimal digits over every field, judge-only ones included."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _require_unique(where: str, ids: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(ids).items() if count > 1]
    if repeated:
        raise ValueError(f"{where}: the id {repeated[0]!r} occurs more than once")


# Views of a sheet for the policy, for judges and for public listings


class CharacterCard(Frozen):
    """Public summary of a character, without secrets or judge-only fields."""

    id: str
    name: str
    genre: str
    world: str
    language: str
    role: str | None
    stance: str | None
    """Null where the sheet does not say."""
    summary: str
    held_out: bool
    """Kept out of training: in the test split only."""
    digest: str


def build_character_cards(sheets: Iterable[CharacterSheet]) -> tuple[CharacterCard, ...]:
    return tuple(
        CharacterCard(
            id=sheet.id,
            name=sheet.identity.name,
            genre=sheet.meta.genre,
            world=sheet.meta.world,
            language=sheet.voice.language,
            role=sheet.identity.role,
            stance=sheet.core.stance,
            summary=sheet.meta.summary,
            held_out=sheet.meta.held_out,
            digest=sheet.digest,
        )
        for sheet in sheets
    )


def build_policy_view(sheet: CharacterSheet, as_of: datetime | None = None) -> dict[str, JsonValue]:
    """The fields that the policy's prompt may show, with the lore that the character knows and that holds then."""
    facts = tuple(fact for fact in sheet.lore_facts if fact.known and fact.holds_at(as_of))
    return _dump_visible(sheet.model_copy(update={"lore_facts": facts, "actions": _leave_out_tools(sheet.actions)}))


def _leave_out_tools(actions: Actions) -> Actions:
    """The actions that are written in brackets. Of the others a scene says whether they are there."""
    return actions.model_copy(update={"allowed": tuple(one for one in actions.allowed if one.parameters is None)})


def build_judge_view(sheet: CharacterSheet) -> dict[str, JsonValue]:
    """Everything to judge by. Nobody changes it, since all scenes of a character share it. Left out are fields for
    tests of judges, for listings and for retrieval, the lorebook, whose activated entries are passed separately, and
    probes, which are passed with those of the scene."""
    return _dump_for_judges(SameObject(sheet))


@remember(4 * MEBIBYTE)
def _dump_for_judges(kept: SameObject[CharacterSheet]) -> dict[str, JsonValue]:
    sheet = kept.value
    shown: dict[str, JsonValue] = sheet.model_dump(mode="json", exclude=_find_hidden_fields(sheet))
    shown["lore_facts"] = [fact.model_dump(mode="json", include=_get_shown_fields(fact)) for fact in sheet.lore_facts]
    bracketed = _leave_out_tools(sheet.actions)
    shown["actions"] = bracketed.model_dump(mode="json")
    if not bracketed.allowed:
        shown.pop("actions")
    return shown


def _find_hidden_fields(sheet: CharacterSheet) -> Mapping[str, IncEx | bool]:
    """A machine, and one who may speak for others, are exceptions: that a character is none need not be said."""
    is_usual = not sheet.identity.is_machine
    return {
        **_NOT_FOR_JUDGES,
        "identity": {"circles", "is_machine"} if is_usual else {"circles"},
        "output": {"speak_only_as_self"} if sheet.output.speak_only_as_self else set[str](),
    }


def _get_shown_fields(fact: LoreFact) -> set[str]:
    """Of lore that the character knows its text, and when it holds; of other lore also that it does not."""
    return {"text", "valid_from", "valid_to", *(() if fact.known else ("known",))}


_NOT_FOR_JUDGES: Final[Mapping[str, IncEx | bool]] = {
    "meta": set(Meta.model_fields) - {"genre", "notes"},
    "relationships": {"__all__": {"target_id"}},
    "lorebook": True,
    "scenario": {"greetings"},
    "probes": True,
    "gates": True,
}


def find_audience(field: FieldInfo) -> str | None:
    """`policy`, `judge` or `called_up`; None for a field that was not marked."""
    extra = field.json_schema_extra
    marked = extra.get("audience") if isinstance(extra, dict) else None
    return marked if isinstance(marked, str) else None


def _dump_visible(part: BaseModel) -> dict[str, JsonValue]:
    return {name: _to_json(getattr(part, name)) for name in _list_visible_fields(type(part))}


@cache
def _list_visible_fields(kind: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, field in kind.model_fields.items() if find_audience(field) == "policy")


def _to_json(value: object) -> JsonValue:
    if isinstance(value, BaseModel):
        return _dump_visible(value)
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"a sheet cannot show {type(value).__name__}")
