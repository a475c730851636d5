"""Pictures of every page of a gateway that has the demo's data: light and dark, at a desk and on a phone.

python -m docs.screenshots http://127.0.0.1:8000 docs/pictures/viewer        the ones of these pages
python -m docs.screenshots http://127.0.0.1:8000 /tmp/pictures --all         all four of each, to look at
"""

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import httpx
from playwright.sync_api import Browser, Page

from tests.support.chromium import chromium

Variant = tuple[Literal["light", "dark"], int]
OF_DOCS: Final[Variant] = ("light", 1280)
VARIANTS: Final[tuple[Variant, ...]] = (OF_DOCS, ("dark", 1280), ("light", 390), ("dark", 390))
HEIGHT: Final = 800
WEBP: Final = """async ([picture, quality]) => {
  const image = new Image();
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", quality).split(",")[1];
}"""
"""Playwright takes PNG alone, ten times as large."""


def list_pages(url: str) -> Iterator[tuple[str, str]]:
    """Names and paths. Groups are of those that differ most."""
    yield from (
        ("home", "/"),
        ("groups", "/view/groups"),
        ("runs", "/view/runs"),
        ("run", "/view/runs/demo"),
        ("run-npc-arena", "/view/runs/demo?environment=npc_arena"),
        ("characters", "/view/characters"),
        ("character", "/view/characters/hob_tarrant"),
        ("editor", "/view/characters/hob_tarrant/edit"),
        ("talk", "/view/talk?character=hob_tarrant"),
        ("compare", "/view/compare?first=demo"),
        ("worlds", "/view/worlds"),
        ("world", "/view/worlds/reedgate"),
        ("knowledge", "/view/worlds/reedgate/why?character=hob_tarrant&q=Is+the+ferry+running%3F"),
        ("judges", "/view/judges"),
        ("queues", "/view/atropos"),
        ("begin-labelling", "/view/label?labeller=ada"),
        ("export", "/view/export?environment=npc_arena&shape=dpo&offline_judge=true"),
        ("wrong-address", "/view/grups"),
    )
    for name, environment in (("group", "npc_arena"), ("trace", "tool_agent")):
        asked = {"env": environment, "limit": "500"}
        listed = httpx.get(f"{url}/groups", params=asked, timeout=60).raise_for_status().json()["groups"]
        found = sorted(listed, key=lambda one: -(one["std"] or 0.0))[:1]
        yield from ((name, f"/view/groups/{one['group_id']}") for one in found)
        if name == "group":
            yield from (("label", f"/view/label?labeller=ada&group={one['group_id']}") for one in found)


def take_pictures(browser: Browser, url: str, folder: Path, variants: tuple[Variant, ...]) -> list[str]:
    """Names of pages that are wider than their window."""
    folder.mkdir(parents=True, exist_ok=True)
    wide = []
    for scheme, width in variants:
        viewport = {"width": width, "height": HEIGHT}
        with browser.new_context(viewport=viewport, color_scheme=scheme) as context:  # type: ignore[arg-type]
            page, converting = context.new_page(), context.new_page()
            for name, path in list_pages(url):
                page.goto(url + path)
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    wide.append(f"{name} {scheme} {width}")
                suffix = "" if variants == (OF_DOCS,) else f"-{scheme}-{width}"
                _write(converting, page.screenshot(full_page=width < 1000), folder / f"{name}{suffix}.webp")
    return wide


def _write(page: Page, picture: bytes, file: Path) -> None:
    written = page.evaluate(WEBP, [base64.b64encode(picture).decode(), 0.8])
    file.write_bytes(base64.b64decode(written))


if __name__ == "__main__":
    address, target = sys.argv[1].rstrip("/"), Path(sys.argv[2])
    with chromium() as running:
        too_wide = take_pictures(running, address, target, VARIANTS if "--all" in sys.argv else (OF_DOCS,))
    sys.exit(f"wider than the window: {', '.join(too_wide)}" if too_wide else 0)
