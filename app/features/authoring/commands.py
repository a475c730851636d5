"""`atropos-envs sheets pull` and `push`: the sheets and scenes of a running gateway as a folder."""

import asyncio
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import httpx
import typer

from app.characters.archives import NUMBERS, read_numbers, write_archive
from app.characters.loading import SCENES, list_yaml_files, read_text
from app.domain.errors import Conflict
from app.domain.values import Frozen
from app.features.authoring.routes import SavedTexts
from app.terminal.client import GatewayClient, Url, open_gateway
from app.terminal.consoles import AsJson, output_console, print_json, stop_on_errors


class PulledFolder(Frozen):
    """What `sheets pull --json` prints."""

    files: int
    changed: tuple[str, ...]


AuthorKey = Annotated[
    str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key, with the scope `author`.")
]


def pull(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; created if missing.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    url: Url = "",
    api_key: AuthorKey = "",
    as_json: AsJson = False,
) -> None:
    """Download the sheets, scenes and lorebooks of a gateway to a folder."""
    with stop_on_errors(1):
        content = asyncio.run(_download(url, api_key))
        pulled = save_folder(folder, content, force=force)
    if as_json:
        print_json(pulled)
    else:
        output_console().print(f"{folder}: {pulled.files} files, {len(pulled.changed)} changed", highlight=False)


def push(
    folder: Annotated[Path, typer.Argument(help="Folder of sheets, with its folder `scenes`.")],
    note: Annotated[str, typer.Option(help="What changed and why.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace what others saved since the last pull.")] = False,
    url: Url = "",
    api_key: AuthorKey = "",
    as_json: AsJson = False,
) -> None:
    """Upload the sheets and scenes of a folder to a gateway: all or none.

    Lorebooks and worlds of the gateway stay unchanged; `worlds load` loads worlds."""
    with stop_on_errors(1):
        content = pack_folder(folder)
        saved = asyncio.run(_upload(url, api_key, content, note, force=force))
        _note_numbers(folder, {one.file: one.revision for one in saved.saved if one.revision})
    if as_json:
        print_json(saved)
        return
    console = output_console()
    for one in saved.saved:
        if one.is_new:
            warnings = f", {len(one.warnings)} warnings" if one.warnings else ""
            console.print(f"{one.file}: revision {one.revision}{warnings}", highlight=False, markup=False)
    new = sum(one.is_new for one in saved.saved)
    console.print(f"{new} of {len(saved.saved)} files are new and in force", highlight=False)


async def _download(url: str, api_key: str) -> bytes:
    async with open_gateway(url, api_key, 120) as gateway:
        return await _fetch_characters(gateway)


async def _upload(url: str, api_key: str, content: bytes, note: str, *, force: bool) -> SavedTexts:
    async with open_gateway(url, api_key, 120) as gateway:
        return await _store_characters(gateway, content, note, force=force)


def save_folder(folder: Path, content: bytes, *, force: bool) -> PulledFolder:
    """Conflict for a file that differs, unless forced. Nothing is written then."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        # the gateway names what it packs, but a path that leads out of the folder is never followed
        texts = {name: archive.read(name) for name in archive.namelist() if ".." not in name and name[0] != "/"}
    there = {name: (folder / name).read_bytes() for name in texts if (folder / name).is_file()}
    changed = [name for name in texts if there.get(name) != texts[name] and name != NUMBERS]
    differing = [name for name in changed if name in there]
    if differing and not force:
        raise Conflict(f"{folder / differing[0]}: differs from what the gateway serves; use --force to overwrite it")
    for name, body in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return PulledFolder(files=len(texts) - 1, changed=tuple(changed))


def pack_folder(folder: Path) -> bytes:
    """NotFound without sheets."""
    scenes = folder / SCENES
    files = [*list_yaml_files(folder), *(list_yaml_files(scenes) if scenes.is_dir() else ())]
    texts = {path.relative_to(folder).as_posix(): read_text(path) for path in files}
    return write_archive(texts, _read_numbers(folder))


def _read_numbers(folder: Path) -> dict[str, int]:
    path = folder / NUMBERS
    return read_numbers(path.read_bytes()) if path.is_file() else {}


def _note_numbers(folder: Path, numbers: Mapping[str, int]) -> None:
    revisions = {**_read_numbers(folder), **numbers}
    (folder / NUMBERS).write_text(json.dumps(revisions, indent=1, sort_keys=True) + "\n", encoding="utf-8")


async def _fetch_characters(gateway: GatewayClient) -> bytes:
    """A ZIP file."""
    return await gateway.send_request("GET", "/characters/archive")


async def _store_characters(gateway: GatewayClient, content: bytes, note: str, *, force: bool) -> SavedTexts:
    asked = httpx.QueryParams({"note": note, "force": str(force).lower()})
    reply = await gateway.send_request("POST", f"/characters/archive?{asked}", content=content)
    return SavedTexts.model_validate_json(reply)
