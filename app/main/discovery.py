"""What lies in a folder or behind an entry point, by name."""

import importlib
import importlib.util
import pkgutil
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import app.envs
import app.envs.community
from app.ports.environment import Environment
from app.ports.retrieval import Retriever

RETRIEVERS = "atropos_environments.retrievers"
ENVIRONMENT_MODULE = "environment"
"""In the folder of an environment, the module that holds its class."""


def discover() -> dict[str, type[Environment]]:
    """Every environment in `app.envs`, `app.envs.community` and the entry-point group, by name: a folder with a module
    `environment`, or a single file."""
    modules = [*_import_modules(app.envs), *_import_modules(app.envs.community)]
    classes = [found for module in modules for found in _find_environments(module)]
    classes += [point.load() for point in entry_points(group="atropos_environments.envs")]
    named: dict[str, type[Environment]] = {}
    for environment in classes:
        if environment.name in named:
            raise ValueError(f"two environments are called {environment.name!r}")
        named[environment.name] = environment
    return named


def load_environment(file: Path) -> type[Environment]:
    """The one environment of a Python file, wherever it lies. FileNotFoundError without the file; ValueError when it
    holds none or several, or breaks while it is read."""
    try:
        module = _import_file(file.resolve(strict=True))
    except FileNotFoundError:
        raise
    except Exception as error:  # another's code may raise whatever it likes
        raise ValueError(f"{file} cannot be read: {type(error).__name__}: {error}") from error
    found = _find_environments(module)
    if len(found) != 1:
        names = ", ".join(one.__name__ for one in found) or "none"
        raise ValueError(f"{file} should hold one environment, a class that inherits from Environment; it has {names}")
    if not isinstance(getattr(found[0], "name", None), str):
        raise ValueError(f"{file}: {found[0].__name__} has no name: set `name`, the word by which it is asked for")
    return found[0]


def load_retriever(name: str) -> Retriever:
    """Made by the entry point of that name in `atropos_environments.retrievers`, which is called without arguments.
    ValueError when there is none, or nothing comes of it."""
    points = {point.name: point for point in entry_points(group=RETRIEVERS)}
    if name not in points:
        brought = ", ".join(sorted(points)) or "none"
        raise ValueError(f"rag.retriever is {name!r}: no installed package brings it (brought: {brought})")
    try:
        made: Retriever = points[name].load()()
    except Exception as error:  # another's code may raise whatever it likes
        raise ValueError(f"rag.retriever is {name!r}, which broke: {type(error).__name__}: {error}") from error
    if not callable(getattr(made, "retrieve", None)):
        raise ValueError(f"rag.retriever is {name!r}, which is no retriever: it has no method retrieve")
    return made


def _import_file(file: Path) -> ModuleType:
    """Imported by the name that it has in its package, where workers find its functions; else by a name of its own."""
    packages = [file.stem] if file.stem != "__init__" else []
    folder = file.parent
    while (folder / "__init__.py").is_file():
        packages.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(packages)
    if (len(packages) > 1 or file.stem == "__init__") and _find_origin(name) == file:
        return importlib.import_module(name)
    own = file.parent.name if file.stem == ENVIRONMENT_MODULE else packages[-1]
    spec = importlib.util.spec_from_file_location(f"environment_of_{own}", file)
    if spec is None or spec.loader is None:
        raise ValueError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _find_origin(name: str) -> Path | None:
    """The file that Python would import by that name."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # of the package that it would be in
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _import_modules(package: ModuleType) -> list[ModuleType]:
    found = pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    names = [f"{module.name}.{ENVIRONMENT_MODULE}" if module.ispkg else module.name for module in found]
    return [importlib.import_module(name) for name in names if importlib.util.find_spec(name) is not None]


def _find_environments(module: ModuleType) -> list[type[Environment]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and Environment in value.__mro__[1:] and value.__module__ == module.__name__
    ]
