"""Routes that are built when they are first needed."""

from collections.abc import Callable, Iterable
from typing import Any, get_args, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import compile_path, get_name


class LazyRoute(APIRoute):
    """FastAPI reads the signature of each route and builds validators for it, a millisecond each, which was most of the
    time of a start. Here the path and the methods are known at once; the rest is built before the first request, or
    when the document is written."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint = path, endpoint
        self.name = options.get("name") or get_name(endpoint)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._options: dict[str, Any] | None = options

    def build(self) -> None:
        """Does what other routes do when they are made. The second time it does nothing."""
        options, self._options = self._options, None
        if options is not None:
            answers = (more.get("model") for more in (options.get("responses") or {}).values())
            _complete_models((*get_type_hints(self.endpoint).values(), options.get("response_model"), *answers))
            super().__init__(self.path, self.endpoint, **options)

    def __getattr__(self, name: str) -> Any:
        """Only what is not there yet is looked up here."""
        if self.__dict__.get("_options") is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
        self.build()
        return getattr(self, name)


def _complete_models(kinds: Iterable[Any]) -> None:
    """Of models that put off their validators FastAPI's fields would put off theirs, and warn of their aliases then."""
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind.model_config["defer_build"] = False
            kind.model_rebuild()
        _complete_models(get_args(kind))
