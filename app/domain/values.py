"""Values that everything shares: base types of all models, digests, comparisons of names, texts and proportions, and
caches.

Models are frozen, know all their fields, and hold finite numbers and encodable text. Their digests identify tasks,
texts, rules and judgements, so `canonical_json` never changes.
"""

import ast
import hashlib
import inspect
import json
import math
import re
import sys
import unicodedata
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache, update_wrapper
from itertools import pairwise
from threading import Lock
from types import FunctionType, MappingProxyType, NoneType
from typing import Annotated, Any, Final, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, JsonValue
from pydantic_core import CoreSchema, PydanticSerializationError, to_json

# Base types of models

Split = Literal["train", "test"]

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
"""An identifier that is safe in a path, a URL and a label."""

Unit = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A strict number: `true` and `"1"` are rejected."""
MOST_REWARD: Final = 1e9
"""A reward beyond this, in either direction, is a fault of whoever gave it."""
Reward = Annotated[float, Field(ge=-MOST_REWARD, le=MOST_REWARD, allow_inf_nan=False)]
"""Those of our own environments lie in [0, 1]; others' pass as they are."""
WholeNumber = Annotated[int, Field(strict=True)]
"""A strict integer: `true`, `1.0` and `"1"` are rejected."""

MAX_JSON_DEPTH: Final = 32


def _validate_json(value: JsonValue, depth: int, path: str) -> None:
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels at {path or 'the root'}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"not a finite number at {path or 'the root'}")
    if isinstance(value, str):
        require_encodable(value)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _validate_json(item, depth + 1, f"{path}[{position}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            require_encodable(key)
            _validate_json(item, depth + 1, f"{path}.{key}")


def utc_now() -> datetime:
    """The present, with its zone."""
    return datetime.now(UTC)


def is_absent(value: object) -> bool:
    """For `exclude_if`: what was not given is left out, so that digests of what is older stay the same."""
    return value is None or value == ()


def is_encodable(text: str) -> bool:
    """Whether the text has no lone surrogates, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_lone_surrogates(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot encode, with the replacement character U+FFFD. Two of them that make
    a pair become its character."""
    return text if is_encodable(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def replace_in_json(value: JsonValue) -> JsonValue:
    """The same in all texts and keys of a value."""
    if isinstance(value, str):
        return replace_lone_surrogates(value)
    if isinstance(value, list):
        return [replace_in_json(item) for item in value]
    if isinstance(value, dict):
        return {replace_lone_surrogates(name): replace_in_json(item) for name, item in value.items()}
    return value


@dataclass(frozen=True)
class ModelWords:
    """Marks a field of what a model wrote: `Annotated[str, ModelWords()]`. In a request its lone surrogates are read as
    U+FFFD. In every other field they are refused."""

    also: str = ""
    """Another name that requests may give the field."""


def require_encodable(text: str) -> str:
    """`text` itself; ValueError for lone surrogates."""
    if not is_encodable(text):
        raise ValueError("a lone surrogate is not text")
    return text


def _require_finite_json(value: JsonValue) -> JsonValue:
    _validate_json(value, 0, "")
    return value


FiniteJson = Annotated[JsonValue, AfterValidator(_require_finite_json)]
"""JSON without NaN, infinities, lone surrogates or depth beyond MAX_JSON_DEPTH."""


ValueT = TypeVar("ValueT")
# Copies and trusted models are most of what a score costs, so pydantic's own steps are made by hand below.
_make_object: Final = object.__new__
_set_values, _set_fields_set, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)
"""The parts of a model, which nothing looks up by their names."""


class SameObject(Generic[ValueT]):
    """The key of a cache by identity, for what is never changed and takes long to compare. It keeps its object, so that
    no other gets the same id."""

    __slots__ = ("value",)

    def __init__(self, value: ValueT) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Described(BaseModel):
    """The docstrings below its fields describe them in its JSON Schema. Validators are built at first use: those of
    all models took a fifth of the start."""

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, JsonValue]:
        """Adds the docstrings. They are read here, since reading all of them when the classes are made took a fifth of
        the start."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in describe_fields(cls).items():
            field = cls.model_fields.get(name)
            shown = properties.get(name if field is None else field.alias or name)
            if shown is not None:
                shown.setdefault("description", text)
        return schema


class Frozen(Described):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy as pydantic makes it, in a third of the time."""
        if deep or update is None or self.__pydantic_extra__ is not None or self.__private_attributes__:
            return super().model_copy(update=update, deep=deep)
        copied = _make_object(type(self))
        _set_values(copied, {**self.__dict__, **update})
        _set_fields_set(copied, self.__pydantic_fields_set__ | update.keys())
        _set_extra(copied, None)
        _set_private(copied, None)
        return copied

    @classmethod
    def build_trusted(cls, **values: Any) -> Self:
        """A model of values for all its fields, in their order, each made or checked by us before: to validate them
        again takes most of the time of a small model."""
        made = _make_object(cls)
        _set_values(made, values)
        _set_fields_set(made, _list_field_names(cls))
        _set_extra(made, None)
        _set_private(made, None)
        return made


@cache
def _list_field_names(model: type[BaseModel]) -> set[str]:
    """The names of all fields. All models share the set: what is frozen never adds to it."""
    return set(model.model_fields)


class NoParams(Frozen):
    """The environment takes no parameters."""


# Digests

_PIECE: Final = 256 * 1024
"""Characters, written in a few milliseconds."""

_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: object) -> str:
    """One text per JSON value: sorted keys, no spaces, ASCII only. TypeError or ValueError for what is not JSON."""
    return _CANONICAL.encode(value)


def digest_of_text(text: str) -> str:
    """32 hexadecimal digits of SHA-256."""
    return begin_digest(text).hexdigest()[:32]


def begin_digest(text: str) -> "hashlib._Hash":
    """The common beginning of digests of several texts, for `finish_digest`."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass"))


def finish_digest(begun: "hashlib._Hash", rest: str) -> str:
    """The same as `digest_of_text` of both parts together."""
    whole = begun.copy()
    whole.update(rest.encode("utf-8", "surrogatepass"))
    return whole.hexdigest()[:32]


def digest(value: object) -> str:
    return digest_of_text(canonical_json(value))


def digest_of_list(value: list[JsonValue]) -> str:
    """The same as `digest`, in a quarter of the time, for lists without objects and fractions."""
    try:
        written = to_json(value)
    except PydanticSerializationError:  # a lone surrogate
        return digest(value)
    if not written.isascii() or b"\x7f" in written:
        return digest(value)
    return hashlib.sha256(written).hexdigest()[:32]


def digest_in_pieces(value: JsonValue) -> str:
    """The same as `digest`, for long texts: other threads run between the pieces."""
    hasher = hashlib.sha256()
    for piece in _iterate_canonical_json(value):
        hasher.update(piece.encode("ascii"))
    return hasher.hexdigest()[:32]


def _iterate_canonical_json(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield '"'
        for start in range(0, len(value), _PIECE):
            yield canonical_json(value[start : start + _PIECE])[1:-1]
        yield '"'
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield "," if number else "["
            yield from _iterate_canonical_json(item)
        yield "]" if value else "[]"
    elif isinstance(value, dict):
        for number, name in enumerate(sorted(value)):
            yield f"{',' if number else '{'}{canonical_json(name)}:"
            yield from _iterate_canonical_json(value[name])
        yield "}" if value else "{}"
    else:
        yield canonical_json(value)


def digest_of_model(model: BaseModel) -> str:
    return digest(model.model_dump(mode="json"))


# Docstrings below fields


def describe_fields(model: type) -> dict[str, str]:
    """The docstrings below the fields of a class, read from its source. Those of base classes count but for fields that
    the class declares anew. A class without source, or inside a function, has none."""
    docstrings: dict[str, str] = {}
    for one in reversed(model.__mro__):
        inherited = {name: text for name, text in docstrings.items() if name not in inspect.get_annotations(one)}
        docstrings = {**inherited, **_docstrings_in(one.__module__).get(one.__qualname__, {})}
    return docstrings


@cache
def _docstrings_in(module: str) -> Mapping[str, Mapping[str, str]]:
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {name: dict(_iter_described(body)) for name, body in _classes(ast.parse(source), "")}


def _classes(inside: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    for node in inside.body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, node.body
            yield from _classes(node, f"{prefix}{node.name}.")


def _iter_described(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, inspect.cleandoc(below.value.value)


# Names


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: `; did you mean 'gsm8k'?`, or nothing where no name is near."""
    near = get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


_WORD_SEPARATORS: Final = re.compile(r"[\s._-]+")
_LATEST_TAG: Final = ":latest"


def is_same_model(one: str, other: str) -> bool:
    """Compares model names regardless of provider, case and separators: `openai/GPT-4o` is `gpt-4o`,
    `/models/Qwen2.5_7B/` is `qwen2.5-7b`. Sizes, dates and other tags distinguish models."""
    return _normalise_name(one) == _normalise_name(other)


def find_same_model(model: str, others: Mapping[str, str]) -> str | None:
    """The first of `others`, models by judge, that is the same model."""
    return next((judge for judge, other in others.items() if is_same_model(model, other)), None)


def _normalise_name(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name).casefold().strip().replace("\\", "/").rstrip("/")
    return _WORD_SEPARATORS.sub("-", folded.rpartition("/")[2].removesuffix(_LATEST_TAG)).strip("-")


def take_evenly(items: Sequence[ValueT], most: int) -> tuple[ValueT, ...]:
    """All, or `most` of them at equal distances from the first one on: a sample without a seed."""
    count = min(most, len(items))
    return tuple(items[number * len(items) // count] for number in range(count))


# Tokens, estimated without a tokenizer, since the policy's own is unknown

_HALF_TOKEN_BYTES: Final = bytes(range(0x03, 0x2E))
"""Of UTF-16 units from U+0300 to U+2DFF: from Greek and Cyrillic to Thai, with marks beyond Latin script's."""
_WHOLE_TOKEN_BYTES: Final = bytes([*range(0x2F, 0xDC), *range(0xE0, 0x100)])
"""From U+2F00: Han, kana, Hangul syllables. Of emoji, which have two units, the first."""
_MIXED_BYTES: Final = b"\x02\x2e"
_MIXED_HALF_TOKENS: Final = re.compile("[\u0250-\u02ff\u2e00-\u2e7f]+")
_MIXED_WHOLE_TOKENS: Final = re.compile("[\u2e80-\u2eff]+")


def estimate_tokens(text: str) -> int:
    """About how many tokens: four characters per token in Latin script, two in other alphabets, one in Han, kana and
    Hangul. Rounded up. No bound: numbers and formulas have twice as many. Counted by bytes, which takes 0.3 ms for
    100,000 letters of any common script."""
    if text.isascii():
        return -(-len(text) // 4)
    firsts = text.encode("utf-16-le", "surrogatepass")[1::2]
    other, dense = (len(firsts) - len(firsts.translate(None, kind)) for kind in (_HALF_TOKEN_BYTES, _WHOLE_TOKEN_BYTES))
    if len(firsts.translate(None, _MIXED_BYTES)) < len(firsts):
        other += sum(map(len, _MIXED_HALF_TOKENS.findall(text)))
        dense += sum(map(len, _MIXED_WHOLE_TOKENS.findall(text)))
    return -(-(len(text) + other + 3 * dense) // 4)


_SMALL_LETTERS: Final = b" abcdefghijklmnopqrstuvwxyz"
_OTHER_SPACE: Final = re.compile(rb" (?![A-Za-z])")
"""A token by itself: between digits, for instance. That before a word belongs to it."""


def bound_tokens(text: str) -> int:
    """At least as many tokens as tokenizers make of a prompt: one for each byte, but one for two where these are small
    letters of English or a space before a word. About twice what English has. Only letters at random have more, by a
    quarter."""
    written = _OTHER_SPACE.sub(b"_", text.encode("utf-8", "surrogatepass"))
    others = len(written.translate(None, _SMALL_LETTERS))
    return others + -(-(len(written) - others) // 2)


# Confidence intervals, and the agreement of repeated measurements

Z_95: Final = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""
Z_99: Final = 2.5758293035489004
"""Two-sided 99 % quantile, for where many figures are looked at."""


def compute_t_95(freedom: int) -> float:
    """The same of Student's t, by its Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5); for some degrees of
    freedom, not one."""
    z = Z_95
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return t + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)


class Estimated(Protocol):
    """A figure with its interval; null where nothing was measured."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


@dataclass(frozen=True)
class Proportion:
    """`hits` of `trials`; a tie may count half a hit."""

    hits: float
    trials: int

    @property
    def value(self) -> float | None:
        return None if self.trials == 0 else self.hits / self.trials

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's score interval of 95 % (J. Am. Stat. Assoc. 22, 1927)."""
        return self.compute_interval(Z_95)

    def compute_interval(self, quantile: float) -> tuple[float, float] | None:
        if self.trials == 0:
            return None
        share, weight = self.hits / self.trials, quantile**2 / self.trials
        middle = share + weight / 2
        spread = quantile * math.sqrt(share * (1 - share) / self.trials + weight / (4 * self.trials))
        return max(0.0, (middle - spread) / (1 + weight)), min(1.0, (middle + spread) / (1 + weight))


def compute_quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile by linear interpolation (Hyndman and Fan's type 7)."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


Typical = tuple[FiniteNumber, FiniteNumber]
"""Median and 95th percentile."""


def find_typical(values: Iterable[float]) -> Typical | None:
    """None of no values."""
    ordered = sorted(values)
    return (compute_quantile(ordered, 0.5), compute_quantile(ordered, 0.95)) if ordered else None


def compute_mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean by the normal distribution, for some dozens of values. None below two."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    spread = Z_95 * math.sqrt(variance / len(values))
    return mean - spread, mean + spread


def compute_intraclass_correlation(repeats: Sequence[tuple[float, float]]) -> float | None:
    """ICC(1,1) of Shrout and Fleiss (1979): single ratings, one-way random effects, two ratings of each thing. None
    below two things, or where nothing differs at all."""
    if len(repeats) < 2:
        return None
    means = [(one + other) / 2 for one, other in repeats]
    grand = math.fsum(means) / len(means)
    between = 2 * math.fsum((mean - grand) ** 2 for mean in means) / (len(means) - 1)
    within = math.fsum((one - other) ** 2 / 2 for one, other in repeats) / len(repeats)
    return None if between + within == 0 else (between - within) / (between + within)


# Caches, bounded by bytes and not by numbers of entries: texts of models and authors have no usual length. `remember`
# is for functions of text that comes from outside. `lru_cache` stays, and is quicker, where arguments and results are
# small whatever is sent.

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT_co = TypeVar("ValueT_co", covariant=True)
Parameters = ParamSpec("Parameters")

MEBIBYTE: Final = 1024 * 1024
_ENTRY_BYTES: Final = 200
"""Of an entry in the table of a cache, beside its key and value."""
_PLAIN: Final = frozenset({str, bytes, int, float, bool, NoneType})
_ROWS: Final = frozenset({tuple, list, set, frozenset})


def measure_bytes(value: object) -> int:
    """What it holds, estimated: of strings, collections, models and objects of ours all parts, of anything else what
    Python says. What is in it twice counts once. Classes and functions count nothing: others hold them anyway."""
    total, seen = 0, set[int]()
    left: list[Any] = [value]
    while left:
        one = left.pop()
        kind: Any = type(one)
        if id(one) in seen or kind is FunctionType or isinstance(one, type):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        # By exact types: to ask for abstract classes takes ten times as long.
        if kind is str or kind in _PLAIN:
            continue
        if kind is dict:
            left += one
            left += one.values()
        elif kind in _ROWS:
            left += one
        else:
            holding = _find_holding(kind)
            left += [getattr(one, name, None) for name in holding.attributes]
            if holding.iterates:
                left += one
            if holding.maps:
                left += one.values()
    return total


@dataclass(frozen=True)
class _Holding:
    """Where objects of a class hold their parts; a class of C has none that could be named."""

    attributes: tuple[str, ...]
    iterates: bool
    """As named tuples do."""
    maps: bool
    """As counters do, and read-only views of mappings."""


@cache
def _find_holding(kind: Any) -> _Holding:
    maps = issubclass(kind, (dict, MappingProxyType))
    iterates = maps or issubclass(kind, (tuple, list, set, frozenset, deque))
    attributes = ["__dict__"] if kind.__dictoffset__ else []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        attributes += [_mangle(name, base) for name in ([slots] if isinstance(slots, str) else slots)]
    return _Holding(tuple(dict.fromkeys(attributes)), iterates, maps)


def _mangle(name: str, base: type) -> str:
    """The name under which Python keeps a slot: private names have that of their class before them."""
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{base.__name__.lstrip('_')}{name}" if is_private else name


class ByteCache(Generic[KeyT, ValueT]):
    """What was used last, up to so many bytes. What alone is larger is not kept, but for the last where it
    `keeps_last`. Used by several threads."""

    def __init__(self, most_bytes: int, *, keeps_last: bool = False) -> None:
        self.most_bytes = most_bytes
        self._keeps_last = keeps_last
        self.held_bytes = 0
        self._lock = Lock()
        self._kept: OrderedDict[KeyT, tuple[ValueT, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._kept

    def get(self, key: KeyT) -> ValueT | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
            return kept[0]

    def find_all(self, keys: Collection[KeyT]) -> dict[KeyT, ValueT]:
        """Those of them that are kept."""
        with self._lock:
            found = {key: self._kept[key][0] for key in keys if key in self._kept}
            for key in found:
                self._kept.move_to_end(key)
            return found

    def put(self, key: KeyT, value: ValueT, size: int | None = None) -> None:
        """In the place of an earlier value. `size`: its bytes, where the caller knows them."""
        size = _ENTRY_BYTES + (measure_bytes((key, value)) if size is None else size)
        with self._lock:
            earlier = self._kept.pop(key, None)
            self.held_bytes -= 0 if earlier is None else earlier[1]
            if size > self.most_bytes and not self._keeps_last:
                return
            self._kept[key] = value, size
            self.held_bytes += size
            while self.held_bytes > self.most_bytes and len(self._kept) > self._keeps_last:
                self.held_bytes -= self._kept.popitem(last=False)[1][1]

    def pop(self, key: KeyT) -> ValueT | None:
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is None:
                return None
            self.held_bytes -= kept[1]
            return kept[0]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.held_bytes = 0


class Remembered(Protocol[Parameters, ValueT_co]):
    """A function with a cache."""

    cache: ByteCache[tuple[Any, ...], Any]

    def __call__(self, *args: Parameters.args, **named: Parameters.kwargs) -> ValueT_co: ...


def remember(
    most_bytes: int, *, counts_arguments: bool = True, keeps_last: bool = False
) -> Callable[[Callable[Parameters, ValueT]], Remembered[Parameters, ValueT]]:
    """As `lru_cache`, bounded by the bytes of arguments and results together; of results alone where arguments are held
    anyway, such as an environment with its data. What raises is not kept. `keeps_last` is for results that take seconds
    and may be larger than all that should be kept of them."""

    def decorate(make: Callable[Parameters, ValueT]) -> Remembered[Parameters, ValueT]:
        cache = ByteCache[tuple[Any, ...], tuple[ValueT]](most_bytes, keeps_last=keeps_last)

        def call(*args: Parameters.args, **named: Parameters.kwargs) -> ValueT:
            key = (args, *named.items()) if named else args
            kept = cache.get(key)
            if kept is None:
                kept = (make(*args, **named),)  # a tuple, since what is kept may be None
                cache.put(key, kept, None if counts_arguments else measure_bytes(kept))
            return kept[0]

        call.cache = cache  # type: ignore[attr-defined]
        return cast(Remembered[Parameters, ValueT], update_wrapper(call, make))

    return decorate
