"""The page on which people give their key, once for a browser."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse

from app.domain.errors import Conflict
from app.http.viewer.forms import pick_field, read_fields
from app.http.viewer.rendering import Renderer
from app.http.web.api_keys import COOKIE, KeyRing
from app.http.web.lazy_routes import LazyRoute
from app.service.key_admin import KeyAdmin

MAX_FORM: Final = 10_000
Next = Annotated[str, Query(max_length=4_000)]


def create_sign_in_router(ring: KeyRing, admin: KeyAdmin, renderer: Renderer, hours: float, most: int) -> APIRouter:
    """`most`: browsers that may be signed in with one key."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)

    @router.get("/sign-in")
    async def ask_for_key(request: Request, next: Next = "/") -> Response:  # noqa: A002  # the wire's word
        return renderer.render_page(request, "sign_in.html", {"next": choose_page(next), "problem": ""})

    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        form = await read_fields(request, MAX_FORM)
        secret, target = pick_field(form, "key").strip(), choose_page(pick_field(form, "next"))
        await ring.refresh()
        if ring.find_holder(secret) is None:
            shown = {"next": target, "problem": "This is no key of this service, or it is valid no more."}
            return renderer.render_page(request, "sign_in.html", shown, 403)
        try:
            value = await admin.begin_sign_in(secret, hours, most)
        except Conflict as error:
            shown = {"next": target, "problem": f"{error.detail}. Sign out in one of them first."}
            return renderer.render_page(request, "sign_in.html", shown, error.status)
        response = RedirectResponse(_place(request, target), 303)
        response.set_cookie(
            COOKIE,
            value,
            max_age=round(hours * 3600),
            path=_place(request, "") or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    @router.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        value = request.cookies.get(COOKIE)
        if value is not None:
            await admin.end_sign_in(value)
        response = RedirectResponse(_place(request, "/sign-in"), 303)
        response.delete_cookie(COOKIE, path=_place(request, "") or "/", httponly=True, samesite="strict")
        return response

    return router


def choose_page(target: str) -> str:
    """A page of this service; the first one for an address that leads elsewhere."""
    local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if local and "\\" not in target else "/"


def _place(request: Request, path: str) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/") + path
