"""Forms that the pages send: their fields, and the page that one is led to afterwards."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, urlencode

from fastapi import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from app.domain.errors import InvalidRequest, TooLarge
from app.http.viewer.rendering import build_link
from app.http.web.lazy_routes import LazyRoute
from app.toolkit.display import escape_invisible

MOST_FIELDS: Final = 2_000
FORMER: Final = "was."
"""Before the name of a visible field: the hidden one with the value that the visible one shows."""
FormFields = Mapping[str, Sequence[str]]
"""What was filled in, by field; never empty."""


async def read_fields(request: Request, most_bytes: int) -> FormFields:
    """With line ends as texts have them: browsers send their own. Fields that nobody changed are what they were, with
    the signs that pages spell out. TooLarge; InvalidRequest for what is no form."""
    body = await request.body()
    if len(body) > most_bytes:
        raise TooLarge(f"the form is larger than {most_bytes} bytes")
    try:
        fields = parse_qs(body.decode(), max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise InvalidRequest("the form cannot be read") from None
    return _restore_fields({name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()})


class FilterRoute(LazyRoute):
    """A page whose form sends its fields in the address. They are restored as those of a body are."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"]
        if FORMER.encode() in query:
            fields = parse_qs(query.decode("latin-1"), keep_blank_values=True)
            scope["query_string"] = urlencode(_restore_fields(fields), doseq=True).encode()
        await super().handle(scope, receive, send)


def _restore_fields(sent: FormFields) -> FormFields:
    return {
        name: [_restore(value, sent.get(FORMER + name, ())) for value in values]
        for name, values in sent.items()
        if not name.startswith(FORMER)
    }


def _restore(value: str, former: Sequence[str]) -> str:
    return next((was for was in former if escape_invisible(was) == value), value)


def pick_field(fields: FormFields, name: str) -> str:
    """The first value; empty without one."""
    return next(iter(fields.get(name, ())), "")


def redirect(request: Request, path: str, **named: object) -> Response:
    root = str(request.scope.get("root_path", "")).rstrip("/")
    return RedirectResponse(root + build_link(path, **named), 303)
