"""The features of this service, and how they are found. A feature is its folder in `app.features` and its line here."""

import importlib
import importlib.util
from types import ModuleType
from typing import Final

# In the order in which they are added: a feature comes after those that it needs, and reasons why pruning keeps a group
# are given in this order.
FEATURES: Final = (
    "worlds",
    "labels",
    "health",
    "exports",
    "authoring",
    "play",
    "atropos",
)


def import_packages() -> list[ModuleType]:
    """The packages alone, which import nothing."""
    return [importlib.import_module(f"app.features.{feature}") for feature in FEATURES]


def import_modules(name: str) -> list[ModuleType]:
    """The modules of this name, such as `store`, of the features that have one."""
    paths = [f"app.features.{feature}.{name}" for feature in FEATURES]
    return [importlib.import_module(path) for path in paths if importlib.util.find_spec(path) is not None]
