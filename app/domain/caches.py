"""Caches bounded by the bytes of what they keep, not by its number: texts of models and authors have no usual length.

`remember` is for functions of text that comes from outside. `lru_cache` stays for functions whose arguments and results
are small whatever is sent, and is quicker.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable
from functools import cache, update_wrapper
from threading import Lock
from types import FunctionType, NoneType
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast

from pydantic import BaseModel

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")
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
    total, seen, left = 0, set[int](), [value]
    getsizeof = sys.getsizeof
    while left:
        one = left.pop()
        kind = type(one)
        if kind in _PLAIN:  # by exact types: to ask for abstract classes takes ten times as long
            total += getsizeof(one)
            continue
        if id(one) in seen or kind is FunctionType or isinstance(one, type):
            continue
        seen.add(id(one))
        total += getsizeof(one)
        if kind in _ROWS:
            left += cast(Iterable[object], one)
        elif kind is dict:
            entries = cast(dict[object, object], one)
            left += entries
            left += entries.values()
        else:
            left += [getattr(one, name, None) for name in _list_holding(cast(Hashable, kind))]
    return total


@cache
def _list_holding(kind: Any) -> tuple[str, ...]:
    """The attributes in which objects of a class hold their parts; a class of C has none that could be named."""
    slots = [name for base in kind.__mro__ for name in vars(base).get("__slots__", ())]
    if issubclass(kind, BaseModel):
        return "__dict__", "__pydantic_fields_set__"
    return (*(["__dict__"] if kind.__dictoffset__ else []), *slots)


class ByteCache(Generic[KeyT, ValueT]):
    """What was used last, up to so many bytes; what alone is larger is not kept. Used by several threads."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
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
            if size > self.most_bytes:
                return
            self._kept[key] = value, size
            self.held_bytes += size
            while self.held_bytes > self.most_bytes:
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
    most_bytes: int, *, counts_arguments: bool = True
) -> Callable[[Callable[Parameters, ValueT]], Remembered[Parameters, ValueT]]:
    """As `lru_cache`, bounded by the bytes of arguments and results together; of results alone where arguments are held
    anyway, such as an environment with its data. What raises is not kept."""

    def decorate(make: Callable[Parameters, ValueT]) -> Remembered[Parameters, ValueT]:
        cache = ByteCache[tuple[Any, ...], tuple[ValueT]](most_bytes)

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
