"""Functions that run in a worker and are not imported here: sympy takes a second and a hundred megabytes."""

import importlib
from typing import cast

from pydantic import JsonValue


class LazyFunction:
    """A function that is imported where it is called. A worker receives only its name."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__ = module
        self.__qualname__ = name

    def __call__(self, *arguments: JsonValue) -> JsonValue:
        """Imports and calls the function, for workers in this process."""
        function = getattr(importlib.import_module(self.__module__), self.__qualname__)
        return cast("JsonValue", function(*arguments))


ALL_EQUAL = LazyFunction("app.toolkit.math_answers.symbolic", "all_equal")
