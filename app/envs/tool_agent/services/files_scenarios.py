"""Scenarios of users with files."""

from typing import Final

from app.envs.tool_agent.services.files_builder import PEOPLE, PROJECTS, SHOPS, TOPICS, build_state
from app.envs.tool_agent.services.files_state import FilesState
from app.envs.tool_agent.services.simulated_service import ServiceScenario, UserWish, build_call
from app.envs.tool_agent.services.value_formats import format_euros
from app.toolkit.seeded import SeededRandom

DRAFTS: Final = ("outline", "figures", "sketch", "minutes", "cover", "annex", "glossary", "index")
THINGS: Final = (
    *("tent", "lamp oil", "matches", "rope", "compass", "first-aid box", "water filter", "tin opener", "sun hat"),
    *("wool socks", "sleeping bag", "stove", "pocket knife", "raincoat", "biscuits", "torch", "insect spray", "soap"),
)
PLACES: Final = ("lisbon", "tromso", "kyoto", "cusco", "zanzibar", "galway", "tbilisi", "hanoi", "quito", "malmo")
SIGHTS: Final = (
    *("Fishing boats at dawn", "The old tram on the hill", "A market under red awnings", "Goats on a stone bridge"),
    *("Two lighthouses in fog", "Children flying kites", "The long stairs to the fort", "Snow on the fig trees"),
)


def _draw_delete_temporary(draws: SeededRandom) -> ServiceScenario[FilesState]:
    """Delete the temporary files of a project except in a protected folder; then move a file."""
    owner, (project, other) = draws.one(PEOPLE), draws.some(PROJECTS, 2)
    root, names = f"/team/{owner}/{project}{10 + draws.below(90)}", draws.some(DRAFTS, 6)
    kept = f"{names[0]}{10 + draws.below(90)}.tmp"
    gone = (f"{root}/{names[1]}.tmp", f"{root}/drafts/{names[2]}.tmp", f"{root}/drafts/{names[3]}.tmp")
    moved = f"{names[4]}.md"
    texts = {
        **{path: ("half done",) for path in (*gone, f"{root}/legal/{kept}", f"/team/{owner}/{other}/{names[5]}.tmp")},
        **{f"{root}/{name}": (f"About {project}",) for name in (moved, "plan.md", "tmp-policy.md", "drafts/next.md")},
        f"{root}/legal/KEEP": ("Do not touch.",),
        f"{root}/legal/agreement.md": ("Signed.",),
    }
    asked = (
        f"Clean up {root}: delete every .tmp file in it and in its subfolders. If one has to stay, what is it called?",
        f"There are temporary files (.tmp) all over {root}, at every depth. Remove those that you may remove and name "
        "the one that you may not.",
        f"Please get rid of the .tmp files under {root}, subfolders included, as far as your rules let you. Which one "
        "is left?",
    )
    then = (
        f"Now move {moved} from the top of that folder to /team/{owner}/done.",
        f"Good. {moved}, which is right in {root}, belongs in /team/{owner}/done. Move it there.",
        f"And put {moved} of that project into /team/{owner}/done instead of where it is.",
    )
    return ServiceScenario(
        kind="temporary deleted",
        start=build_state(texts),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    build_call("search_files", text=".tmp", folder=root),
                    build_call("list_folder", path=f"{root}/legal"),
                    *(build_call("delete", path=path) for path in gone),
                ),
                reply=f"Deleted, except for {kept}: its folder is kept as it is.",
                answers=(kept,),
            ),
            UserWish(
                says=draws.one(then),
                calls=(build_call("move_file", path=f"{root}/{moved}", to=f"/team/{owner}/done/{moved}"),),
                reply="It is moved.",
            ),
        ),
    )


def _draw_file_invoice(draws: SeededRandom) -> ServiceScenario[FilesState]:
    """Find one of several scans by its text, which others mention too, and file it; then rename it."""
    owner, first, numbers = draws.one(PEOPLE), 100 + draws.below(800), draws.some(range(2000, 9999), 4)
    wanted, senders = numbers[0], draws.some(SHOPS, 4)
    amounts = [format_euros(draws.below(900) * 100 + 1000 + draws.one((15, 35, 85))) for _ in numbers]
    order = draws.shuffled(range(5))
    inbox = f"/users/{owner}/inbox"
    paths = [f"{inbox}/scan{first + place}.txt" for place in order]
    texts: dict[str, tuple[str, ...]] = {
        path: (f"Invoice {number}", f"From: {sender}", f"Amount: {amount}")
        for path, number, sender, amount in zip(paths, numbers, senders, amounts, strict=False)
    }
    texts[paths[4]] = (f"Reminder of invoice {wanted}", f"From: {senders[0]}", "Amount: see there")
    texts[f"/users/{owner}/invoices/paid.txt"] = ("Nothing yet.",)
    folder, source = f"/users/{owner}/invoices", paths[0]
    filed = f"{folder}/{source.rpartition('/')[2]}"
    asked = (
        f"One of the scans in {inbox} is invoice {wanted} (the invoice itself, no reminder). Move it to {folder} and "
        "tell me the amount.",
        f"Find invoice {wanted} in {inbox}. It belongs in {folder}, reminders stay where they are. How much is it for?",
        f"Please file invoice {wanted}: it is somewhere in {inbox} and should be moved to {folder}. Leave reminders "
        "alone. What amount does the invoice say?",
    )
    then = (
        f"Call it {wanted}.txt there, nobody understands the name that it has.",
        f"The name says nothing. Rename the file that you have moved to {wanted}.txt, same folder.",
        f"Better name it {wanted}.txt, but leave it in that folder.",
    )
    return ServiceScenario(
        kind="invoice filed",
        start=build_state(texts),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    build_call("search_files", text=f"invoice {wanted}", folder=inbox),
                    build_call("read_file", path=source),
                    build_call("move_file", path=source, to=filed),
                ),
                reply=f"It is moved. The amount is {amounts[0]}.",
                answers=(amounts[0],),
            ),
            UserWish(
                says=draws.one(then),
                calls=(build_call("move_file", path=filed, to=f"{folder}/{wanted}.txt"),),
                reply="It has that name now.",
            ),
        ),
    )


def _draw_amend_list(draws: SeededRandom) -> ServiceScenario[FilesState]:
    """Find a list, drop its first line and add one; then replace an item."""
    owner, (project, other) = draws.one(PEOPLE), draws.some(PROJECTS, 2)
    things = draws.some(THINGS, 8)
    held, (added, better) = things[:6], things[6:]
    whose = owner.capitalize()
    replaced = draws.one(held[2:])
    path = f"/users/{owner}/{draws.one(('lists', 'trips', 'plans'))}/{project}-packing.txt"
    texts: dict[str, list[str]] = {
        path: held,
        f"/users/{owner}/lists/{other}-packing.txt": draws.shuffled(held),
        f"/users/{owner}/{project}.txt": [f"The trip called {project}.", "See the packing list."],
    }
    asked = (
        f"In {whose}'s packing list for {project}, cross out {held[0]} and put {added} at the end. What is "
        "on top of the list then?",
        f"Somewhere in the files of {whose} is a packing list for {project}. The {held[0]} can come off "
        f"it; add {added} as the last line. Which thing comes first now?",
        f"Please change the {project} packing list of {whose}: no {held[0]} any more, and {added} below everything "
        "else. Tell me the first line after that.",
    )
    then = (
        f"And where it says {replaced}, write {better} instead.",
        f"One more change there: {better} in place of {replaced}, on the same line.",
        f"Oh, and replace {replaced} by {better}, where it stands.",
    )
    return ServiceScenario(
        kind="list amended",
        start=build_state(texts),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    build_call("search_files", text=f"{project}-packing", folder=f"/users/{owner}"),
                    build_call("read_file", path=path),
                    build_call("replace_text", path=path, old=f"{held[0]}\n", new=""),
                    build_call("append_line", path=path, line=added),
                ),
                reply=f"First on the list is now: {held[1]}.",
                answers=(held[1],),
            ),
            UserWish(
                says=draws.one(then),
                calls=(build_call("replace_text", path=path, old=replaced, new=better),),
                reply=f"It says {better} now.",
            ),
        ),
    )


def _draw_publish_newest(draws: SeededRandom) -> ServiceScenario[FilesState]:
    """Publish the highest version, which is not the last by alphabet; then correct the copy."""
    owner, topic, project = draws.one(PEOPLE), draws.one(TOPICS), draws.one(PROJECTS)
    name, newest = f"{project}-{topic}", 10 + draws.below(4)
    folder, to = f"/team/{owner}/{topic}", f"/public/{name}.txt"
    versions = (2, 8, 9, newest - 1, newest) if newest > 10 else (2, 7, 8, 9, newest)
    registered = draws.some(range(3000, 9999), len(versions))
    texts = {
        f"{folder}/{name}-v{version}.txt": (f"{project} {topic} 2025", f"Registered as G{number}", f"Version {version}")
        for version, number in zip(versions, registered, strict=True)
    }
    entry = f"G{registered[-1]}"
    asked = (
        f"Publish the highest version of {name} from {folder}: copy it to /system/board/{name}.txt, or if that folder "
        f"is read-only, to {to}. Under what number is that version "
        "registered?",
        f"I need the latest version (highest number) of {name}, it is in {folder}. Copy it to {to} and tell me the "
        "number it is registered as.",
        f"Take the version of {name} in {folder} with the highest number and put a copy at {to}. What is "
        "its number in the register?",
    )
    then = (
        "The year in it is wrong. Make it 2026 in the published copy, not in the drafts.",
        "I see 2025 in the published file; that must read 2026. Leave the versions in the folder as they are.",
        "Correct the year of the published copy to 2026, please. Only there.",
    )
    return ServiceScenario(
        kind="newest published",
        start=build_state({**texts, f"{folder}/{name}-notes.txt": ("Version 99 is a joke.",)}),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    build_call("list_folder", path=folder),
                    build_call("read_file", path=f"{folder}/{name}-v{newest}.txt"),
                    build_call("copy_file", path=f"{folder}/{name}-v{newest}.txt", to=to),
                ),
                reply=f"It is at {to} and registered as {entry}.",
                answers=(entry,),
            ),
            UserWish(
                says=draws.one(then),
                calls=(build_call("replace_text", path=to, old="2025", new="2026"),),
                reply="The published copy says 2026 now.",
            ),
        ),
    )


def _draw_sum_receipts(draws: SeededRandom) -> ServiceScenario[FilesState]:
    """Write the sum of several files to a new one; then move one of them and correct the sum."""
    owner, month = draws.one(PEOPLE), f"{2023 + draws.below(3)}-{1 + draws.below(12):02d}"
    shops, folder = draws.some(SHOPS, 4), f"/users/{owner}/receipts/{month}"
    cents = [draws.below(80) * 100 + 300 + draws.one((20, 45, 75, 95)) for _ in shops]
    texts = {
        f"{folder}/r{place}.txt": (shop, f"Paid: {format_euros(amount)}")
        for place, (shop, amount) in enumerate(zip(shops, cents, strict=True), 1)
    }
    texts[f"/users/{owner}/receipts/older/r1.txt"] = (shops[0], "Paid: 8.10")
    private = draws.below(len(shops))
    total, rest = format_euros(sum(cents)), format_euros(sum(cents) - cents[private])
    sum_file = f"{folder}/total.txt"
    asked = (
        f"Add up the receipts in {folder} and write the sum, nothing else, to {sum_file}. What is it?",
        f"What do the receipts in {folder} come to? Save the amount as the only line of {sum_file} as well.",
        f"I need a file {sum_file} with one line: the total of all receipts in {folder}. Tell me the total, too.",
    )
    then = (
        f"The one from {shops[private]} was private. Move it to /users/{owner}/private and correct the total in the "
        "file. What is it now?",
        f"Sorry, {shops[private]} should not count. Put that receipt into /users/{owner}/private and bring the total "
        "file up to date; what does it say then?",
        f"Take out the receipt from {shops[private]}, it goes to /users/{owner}/private, and mend the total in its "
        "file accordingly. Which amount is left?",
    )
    receipt = f"r{private + 1}.txt"
    return ServiceScenario(
        kind="receipts summed",
        start=build_state(texts),
        wishes=(
            UserWish(
                says=draws.one(asked),
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
                says=draws.one(then),
                calls=(
                    build_call("move_file", path=f"{folder}/{receipt}", to=f"/users/{owner}/private/{receipt}"),
                    build_call("replace_text", path=sum_file, old=total, new=rest),
                ),
                reply=f"The total is {rest} now.",
                answers=(rest,),
            ),
        ),
    )


def _draw_remove_copies(draws: SeededRandom) -> ServiceScenario[FilesState]:
    """Delete duplicate files of one folder, keeping the first by name; then rename another file."""
    owner, place, start = draws.one(PEOPLE), draws.one(PLACES), 10 + draws.below(50)
    sights = draws.some(SIGHTS, 3)
    folder = f"/users/{owner}/photos/{place}{2008 + draws.below(18)}"
    names = [f"caption{number}.txt" for number in sorted(draws.some(range(start, start + 30), 5))]
    held = draws.shuffled((sights[0], sights[0], sights[1], sights[1], sights[2]))
    texts = {f"{folder}/{name}": (sight,) for name, sight in zip(names, held, strict=True)}
    texts[f"/users/{owner}/photos/best/caption1.txt"] = (sights[0],)
    gone = [name for number, name in enumerate(names) if held[number] in held[:number]]
    renamed, new = names[held.index(sights[2])], f"{place}{start}.txt"
    asked = (
        f"In {folder} some captions are there twice under different names. Of each pair keep the one with the lower "
        "number and delete the other. Which files did you delete?",
        f"Please remove duplicate captions (same text) in {folder}; the file with the lowest number stays. Name those "
        "that are gone.",
        f"Look for files with identical text in {folder} and delete all but the one with the lowest number each time. "
        "I want the names of the deleted ones.",
    )
    then = (
        f'Now rename the one that says "{sights[2]}" to {new}, same folder.',
        f'Then give the caption "{sights[2]}" the file name {new}; it stays in that folder.',
        f'The file with "{sights[2]}" should be called {new} from now on, in the same place.',
    )
    return ServiceScenario(
        kind="copies removed",
        start=build_state(texts),
        wishes=(
            UserWish(
                says=draws.one(asked),
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
                says=draws.one(then),
                calls=(build_call("move_file", path=f"{folder}/{renamed}", to=f"{folder}/{new}"),),
                reply=f"It is called {new} now.",
            ),
        ),
    )


KINDS: Final = (
    *(_draw_delete_temporary, _draw_file_invoice, _draw_amend_list),
    *(_draw_publish_newest, _draw_sum_receipts, _draw_remove_copies),
)
