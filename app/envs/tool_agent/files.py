"""The file service: a shared disk on which folders exist only through their files, so there are no empty ones.

Some folders are read-only for the tools. Others the rules alone protect, and the tools would change them: a model that
does so misses the end state.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.episodes import (
    Arguments,
    DrawnScenario,
    OperationRefused,
    SayWish,
    SimulatedService,
    UserWish,
    build_call,
    format_euros,
    read_service_texts,
)
from app.toolkit.seeded import SeededRandom

TEXTS: Final = read_service_texts(__file__)

_MOST_SHOWN: Final = 80
"""Characters of an unknown path that an error quotes."""
_MOST_TEXT: Final = 4_000
_MOST_FILES: Final = 200

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,60}")


class StoredFile(Frozen):
    path: str
    text: str


class FilesState(Frozen):
    files: tuple[StoredFile, ...] = ()
    frozen: tuple[str, ...] = ()
    """Read-only folders."""

    def find_file(self, path: str) -> StoredFile:
        for one in self.files:
            if one.path == path:
                return one
        raise OperationRefused(
            f"{path[:_MOST_SHOWN]} is a folder" if self.list_recursively(path) else f"no file {path[:_MOST_SHOWN]}"
        )

    def list_recursively(self, folder: str) -> tuple[StoredFile, ...]:
        """Files in a folder and its subfolders."""
        return tuple(one for one in self.files if one.path.startswith(_make_prefix(folder)))

    def has_file(self, path: str) -> bool:
        return any(one.path == path for one in self.files)

    def without_files(self, paths: frozenset[str]) -> "FilesState":
        return self.model_copy(update={"files": tuple(one for one in self.files if one.path not in paths)})

    def with_file(self, file: StoredFile) -> "FilesState":
        """Replaces the file at its path, if there is one."""
        if len(file.text) > _MOST_TEXT:
            raise OperationRefused(f"a file has at most {_MOST_TEXT} characters")
        if len(self.files) >= _MOST_FILES:
            raise OperationRefused("the disk is full")
        files = [*(one for one in self.files if one.path != file.path), file]
        return self.model_copy(update={"files": tuple(sorted(files, key=lambda one: one.path))})


def _make_prefix(folder: str) -> str:
    """The prefix of all paths in a folder."""
    return folder if folder.endswith("/") else f"{folder}/"


def _parse_path(text: str) -> str:
    """`/`, or names that each follow one slash. The call is refused for anything else, such as `..`."""
    names = [name for name in text.split("/") if name]
    if not text.startswith("/") or not all(_NAME.fullmatch(name) and name.strip(".") for name in names):
        raise OperationRefused("paths begin with / and are made of letters, digits and _ . -, without . and ..")
    return "/" + "/".join(names)


# The service and its tools.


def _canonicalise(state: FilesState) -> JsonValue:
    """Blank lines and blanks around lines are ignored."""
    return [
        [file.path, *(line.strip() for line in file.text.splitlines() if line.strip())]
        for file in sorted(state.files, key=lambda one: one.path)
    ]


_MOST_FOUND: Final = 20


def _list_folder(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    folder = _parse_path(arguments["path"])
    inside = [one.path.removeprefix(_make_prefix(folder)) for one in state.list_recursively(folder)]
    if not inside:
        raise OperationRefused(f"no folder {folder[:_MOST_SHOWN]}")
    names = sorted({f"{name.partition('/')[0]}/" if "/" in name else name for name in inside})
    return state, {"folder": folder, "entries": [*names]}


def _read_file(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file = state.find_file(_parse_path(arguments["path"]))
    return state, {"path": file.path, "text": file.text}


def _search_files(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    text = str(arguments["text"]).casefold().strip()
    lines: list[JsonValue] = [
        {"path": file.path, "line": line.strip()}
        for file in state.list_recursively(_parse_path(arguments.get("folder", "/")))
        for line in (file.path, *file.text.splitlines())
        if text and text in line.casefold()
    ]
    return state, {"found": lines[:_MOST_FOUND], "more": len(lines) > _MOST_FOUND}


def _create_file(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    path = _check_free_path(state, arguments["path"])
    return state.with_file(StoredFile(path=path, text=arguments["text"])), {"created": path}


def _replace_text(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file = state.find_file(_parse_path(arguments["path"]))
    _check_changeable(state, file.path)
    count = file.text.count(arguments["old"])
    if count != 1:
        raise OperationRefused(f"the old text is there {count} times; it must be there once")
    changed = file.model_copy(update={"text": file.text.replace(arguments["old"], arguments["new"])})
    return state.with_file(changed), {"changed": file.path}


def _append_line(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file = state.find_file(_parse_path(arguments["path"]))
    _check_changeable(state, file.path)
    text = "\n".join([*file.text.splitlines(), *arguments["line"].splitlines()]) + "\n"
    return state.with_file(file.model_copy(update={"text": text})), {"changed": file.path}


def _copy_file(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file, to = state.find_file(_parse_path(arguments["path"])), _check_free_path(state, arguments["to"])
    return state.with_file(StoredFile(path=to, text=file.text)), {"copied": file.path, "to": to}


def _move_file(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    file, to = state.find_file(_parse_path(arguments["path"])), _check_free_path(state, arguments["to"])
    _check_changeable(state, file.path)
    moved = state.without_files(frozenset({file.path})).with_file(StoredFile(path=to, text=file.text))
    return moved, {"moved": file.path, "to": to}


def _delete_path(state: FilesState, arguments: Arguments) -> tuple[FilesState, JsonValue]:
    path = _parse_path(arguments["path"])
    gone = [path] if state.has_file(path) else [one.path for one in state.list_recursively(path)]
    if not gone:
        raise OperationRefused(f"nothing is at {path[:_MOST_SHOWN]}")
    for one in gone:
        _check_changeable(state, one)
    return state.without_files(frozenset(gone)), {"deleted": [*gone[:_MOST_FOUND]], "files": len(gone)}


def _check_free_path(state: FilesState, text: str) -> str:
    """The path, if a file may be made there."""
    path = _parse_path(text)
    _check_changeable(state, path)
    if path == "/" or state.list_recursively(path):
        raise OperationRefused(f"{path[:_MOST_SHOWN]} is a folder; name the file in it")
    if state.has_file(path) or any(path.startswith(_make_prefix(one.path)) for one in state.files):
        raise OperationRefused(f"there is a file at {path[:_MOST_SHOWN]} already")
    return path


def _check_changeable(state: FilesState, path: str) -> None:
    for folder in state.frozen:
        if path.startswith(_make_prefix(folder)):
            raise OperationRefused(f"{folder} is read-only")


# Initial file trees.

_PEOPLE: Final = TEXTS.pools["people"]
_PROJECTS: Final = TEXTS.pools["projects"]
_TOPICS: Final = TEXTS.pools["topics"]
_SHOPS: Final = TEXTS.pools["shops"]
_SYSTEM: Final = ("/system",)


def _build_state(texts: Mapping[str, Sequence[str]]) -> FilesState:
    """A tree of these files (lines by path) and those that every tree has."""
    everywhere = {
        "/system/version.txt": ("4.2",),
        "/system/board/welcome.txt": ("Welcome to the shared disk.",),
        "/public/about.txt": ("Everybody can read what is in here.",),
        **{
            f"/public/notices/{day}.txt": (text, "Signed by the caretakers of the building.")
            for day, text in TEXTS.notices.items()
        },
    }
    files = [
        StoredFile(path=path, text="".join(f"{line}\n" for line in lines))
        for path, lines in {**everywhere, **texts}.items()
    ]
    return FilesState(files=tuple(sorted(files, key=lambda one: one.path)), frozen=_SYSTEM)


# Scenarios.

_DRAFTS: Final = TEXTS.pools["drafts"]
_THINGS: Final = TEXTS.pools["things"]
_PLACES: Final = TEXTS.pools["places"]
_SIGHTS: Final = TEXTS.pools["sights"]


def _draw_delete_temporary(draws: SeededRandom, say: SayWish) -> DrawnScenario[FilesState]:
    """Delete the temporary files of a project except in a protected folder; then move a file."""
    owner, (project, other) = draws.one(_PEOPLE), draws.some(_PROJECTS, 2)
    root, names = f"/team/{owner}/{project}{10 + draws.below(90)}", draws.some(_DRAFTS, 6)
    protected = f"{names[0]}{10 + draws.below(90)}.tmp"
    gone = (f"{root}/{names[1]}.tmp", f"{root}/drafts/{names[2]}.tmp", f"{root}/drafts/{names[3]}.tmp")
    moved = f"{names[4]}.md"
    texts = {
        **{
            path: ("half done",)
            for path in (*gone, f"{root}/legal/{protected}", f"/team/{owner}/{other}/{names[5]}.tmp")
        },
        **{f"{root}/{name}": (f"About {project}",) for name in (moved, "plan.md", "tmp-policy.md", "drafts/next.md")},
        f"{root}/legal/KEEP": ("Do not touch.",),
        f"{root}/legal/agreement.md": ("Signed.",),
    }
    return _build_state(texts), (
        UserWish(
            says=say("first", root=root),
            calls=(
                build_call("search_files", text=".tmp", folder=root),
                build_call("list_folder", path=f"{root}/legal"),
                *(build_call("delete", path=path) for path in gone),
            ),
            reply=f"Deleted, except for {protected}: its folder is kept as it is.",
            answers=(protected,),
        ),
        UserWish(
            says=say("then", moved=moved, owner=owner, root=root),
            calls=(build_call("move_file", path=f"{root}/{moved}", to=f"/team/{owner}/done/{moved}"),),
            reply="It is moved.",
        ),
    )


def _draw_file_invoice(draws: SeededRandom, say: SayWish) -> DrawnScenario[FilesState]:
    """Find one of several scans by its text, which others mention too, and file it; then rename it."""
    owner, first, numbers = draws.one(_PEOPLE), 100 + draws.below(800), draws.some(range(2000, 9999), 4)
    invoice, senders = numbers[0], draws.some(_SHOPS, 4)
    amounts = [format_euros(draws.below(900) * 100 + 1000 + draws.one((15, 35, 85))) for _ in numbers]
    order = draws.shuffled(range(5))
    inbox = f"/users/{owner}/inbox"
    paths = [f"{inbox}/scan{first + offset}.txt" for offset in order]
    texts: dict[str, tuple[str, ...]] = {
        path: (f"Invoice {number}", f"From: {sender}", f"Amount: {amount}")
        for path, number, sender, amount in zip(paths, numbers, senders, amounts, strict=False)
    }
    texts[paths[4]] = (f"Reminder of invoice {invoice}", f"From: {senders[0]}", "Amount: see there")
    texts[f"/users/{owner}/invoices/paid.txt"] = ("Nothing yet.",)
    folder, source = f"/users/{owner}/invoices", paths[0]
    filed = f"{folder}/{source.rpartition('/')[2]}"
    return _build_state(texts), (
        UserWish(
            says=say("first", inbox=inbox, invoice=invoice, folder=folder),
            calls=(
                build_call("search_files", text=f"invoice {invoice}", folder=inbox),
                build_call("read_file", path=source),
                build_call("move_file", path=source, to=filed),
            ),
            reply=f"It is moved. The amount is {amounts[0]}.",
            answers=(amounts[0],),
        ),
        UserWish(
            says=say("then", invoice=invoice),
            calls=(build_call("move_file", path=filed, to=f"{folder}/{invoice}.txt"),),
            reply="It has that name now.",
        ),
    )


def _draw_amend_list(draws: SeededRandom, say: SayWish) -> DrawnScenario[FilesState]:
    """Find a list, drop its first line and add one; then replace an item."""
    owner, (project, other) = draws.one(_PEOPLE), draws.some(_PROJECTS, 2)
    things = draws.some(_THINGS, 8)
    items, (added, better) = things[:6], things[6:]
    whose = owner.capitalize()
    replaced = draws.one(items[2:])
    path = f"/users/{owner}/{draws.one(('lists', 'trips', 'plans'))}/{project}-packing.txt"
    texts: dict[str, list[str]] = {
        path: items,
        f"/users/{owner}/lists/{other}-packing.txt": draws.shuffled(items),
        f"/users/{owner}/{project}.txt": [f"The trip called {project}.", "See the packing list."],
    }
    return _build_state(texts), (
        UserWish(
            says=say("first", whose=whose, project=project, dropped=items[0], added=added),
            calls=(
                build_call("search_files", text=f"{project}-packing", folder=f"/users/{owner}"),
                build_call("read_file", path=path),
                build_call("replace_text", path=path, old=f"{items[0]}\n", new=""),
                build_call("append_line", path=path, line=added),
            ),
            reply=f"First on the list is now: {items[1]}.",
            answers=(items[1],),
        ),
        UserWish(
            says=say("then", replaced=replaced, better=better),
            calls=(build_call("replace_text", path=path, old=replaced, new=better),),
            reply=f"It says {better} now.",
        ),
    )


def _draw_publish_newest(draws: SeededRandom, say: SayWish) -> DrawnScenario[FilesState]:
    """Publish the highest version, which is not the last by alphabet; then correct the copy."""
    owner, topic, project = draws.one(_PEOPLE), draws.one(_TOPICS), draws.one(_PROJECTS)
    name, newest = f"{project}-{topic}", 10 + draws.below(4)
    folder, to = f"/team/{owner}/{topic}", f"/public/{name}.txt"
    versions = (2, 8, 9, newest - 1, newest) if newest > 10 else (2, 7, 8, 9, newest)
    registered = draws.some(range(3000, 9999), len(versions))
    texts = {
        f"{folder}/{name}-v{version}.txt": (f"{project} {topic} 2025", f"Registered as G{number}", f"Version {version}")
        for version, number in zip(versions, registered, strict=True)
    }
    entry = f"G{registered[-1]}"
    return _build_state({**texts, f"{folder}/{name}-notes.txt": ("Version 99 is a joke.",)}), (
        UserWish(
            says=say("first", name=name, folder=folder, to=to),
            calls=(
                build_call("list_folder", path=folder),
                build_call("read_file", path=f"{folder}/{name}-v{newest}.txt"),
                build_call("copy_file", path=f"{folder}/{name}-v{newest}.txt", to=to),
            ),
            reply=f"It is at {to} and registered as {entry}.",
            answers=(entry,),
        ),
        UserWish(
            says=say("then"),
            calls=(build_call("replace_text", path=to, old="2025", new="2026"),),
            reply="The published copy says 2026 now.",
        ),
    )


def _draw_sum_receipts(draws: SeededRandom, say: SayWish) -> DrawnScenario[FilesState]:
    """Write the sum of several files to a new one; then move one of them and correct the sum."""
    owner, month = draws.one(_PEOPLE), f"{2023 + draws.below(3)}-{1 + draws.below(12):02d}"
    shops, folder = draws.some(_SHOPS, 4), f"/users/{owner}/receipts/{month}"
    cents = [draws.below(80) * 100 + 300 + draws.one((20, 45, 75, 95)) for _ in shops]
    texts = {
        f"{folder}/r{number}.txt": (shop, f"Paid: {format_euros(amount)}")
        for number, (shop, amount) in enumerate(zip(shops, cents, strict=True), 1)
    }
    texts[f"/users/{owner}/receipts/older/r1.txt"] = (shops[0], "Paid: 8.10")
    private = draws.below(len(shops))
    total, rest = format_euros(sum(cents)), format_euros(sum(cents) - cents[private])
    sum_file = f"{folder}/total.txt"
    receipt = f"r{private + 1}.txt"
    return _build_state(texts), (
        UserWish(
            says=say("first", folder=folder, sum_file=sum_file),
            calls=(
                build_call("list_folder", path=folder),
                *(build_call("read_file", path=path) for path in texts if path.startswith(folder)),
                build_call("create_file", path=sum_file, text=f"{total}\n"),
            ),
            reply=f"They come to {total}.",
            answers=(total,),
            beside=tuple(map(format_euros, cents)),
        ),
        UserWish(
            says=say("then", shop=shops[private], owner=owner),
            calls=(
                build_call("move_file", path=f"{folder}/{receipt}", to=f"/users/{owner}/private/{receipt}"),
                build_call("replace_text", path=sum_file, old=total, new=rest),
            ),
            reply=f"The total is {rest} now.",
            answers=(rest,),
        ),
    )


def _draw_remove_copies(draws: SeededRandom, say: SayWish) -> DrawnScenario[FilesState]:
    """Delete duplicate files of one folder, keeping the first by name; then rename another file."""
    owner, town, start = draws.one(_PEOPLE), draws.one(_PLACES), 10 + draws.below(50)
    sights = draws.some(_SIGHTS, 3)
    folder = f"/users/{owner}/photos/{town}{2008 + draws.below(18)}"
    names = [f"caption{number}.txt" for number in sorted(draws.some(range(start, start + 30), 5))]
    captions = draws.shuffled((sights[0], sights[0], sights[1], sights[1], sights[2]))
    texts = {f"{folder}/{name}": (sight,) for name, sight in zip(names, captions, strict=True)}
    texts[f"/users/{owner}/photos/best/caption1.txt"] = (sights[0],)
    gone = [name for number, name in enumerate(names) if captions[number] in captions[:number]]
    renamed, new = names[captions.index(sights[2])], f"{town}{start}.txt"
    return _build_state(texts), (
        UserWish(
            says=say("first", folder=folder),
            calls=(
                build_call("list_folder", path=folder),
                *(build_call("read_file", path=f"{folder}/{name}") for name in names),
                *(build_call("delete", path=f"{folder}/{name}") for name in gone),
            ),
            reply=f"Deleted: {', '.join(gone)}.",
            answers=tuple(gone),
            beside=tuple(name for name in names if name not in (*gone, renamed)),
        ),
        UserWish(
            says=say("then", sight=sights[2], new=new),
            calls=(build_call("move_file", path=f"{folder}/{renamed}", to=f"{folder}/{new}"),),
            reply=f"It is called {new} now.",
        ),
    )


FILES: Final = SimulatedService[FilesState](
    name="files",
    texts=TEXTS,
    does={
        "list_folder": _list_folder,
        "read_file": _read_file,
        "search_files": _search_files,
        "create_file": _create_file,
        "replace_text": _replace_text,
        "append_line": _append_line,
        "copy_file": _copy_file,
        "move_file": _move_file,
        "delete": _delete_path,
    },
    canonicalise=_canonicalise,
    kinds={
        "temporary deleted": _draw_delete_temporary,
        "invoice filed": _draw_file_invoice,
        "list amended": _draw_amend_list,
        "newest published": _draw_publish_newest,
        "receipts summed": _draw_sum_receipts,
        "copies removed": _draw_remove_copies,
    },
)
