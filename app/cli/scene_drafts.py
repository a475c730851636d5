"""`atropos-envs sheets scenes`, where a model drafts and a person approves.

Nothing that a model proposed is served before a person has approved it: drafts lie in a folder of their own, which
nothing reads but this command. A proposal is dropped where it gives a secret away, has control characters, or is nearly
a scene that exists."""

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, get_args

import typer
import yaml
from pydantic import AfterValidator, Field, ValidationError

from app.characters.loading import SCENES, parse_model, read_scenes, read_sheet, read_text
from app.characters.lorebooks import mentions, normalise_spelling, split_spoken_words
from app.characters.scenes import Scene, SceneKind, SceneSet
from app.characters.schema import CharacterSheet
from app.cli.policies import PolicyPrices
from app.domain.errors import InvalidRequest, UserError
from app.domain.faults import explain_faults
from app.domain.tasks import Message
from app.domain.values import Frozen, Name, bound_tokens, digest
from app.envs.npc_arena.environment import PACKAGED_SCENES
from app.inference.policies import ChatPolicy, SamplingParameters
from app.inference.wire import Usage
from app.settings import read_settings
from app.terminal.client import check_url
from app.terminal.consoles import AsJson, errors, output_console, print_outcome, require_consent, stop_on_errors
from app.toolkit.templates import Template
from app.toolkit.texts import escape_invisible
from app.toolkit.thoughts import strip_thinking

_DRAFTS: Final = "drafts"
"""The folder within that of scenes. Nothing in it is served."""
_SAME_FROM: Final = 0.8
"""Share of runs of three words (Jaccard) from which on two lines count as the same."""
_MOST_KNOWN: Final = 60
"""Lines that exist and are shown to the model."""
_TOKENS_A_SCENE: Final = 200
"""Completion tokens that a proposal may take."""
_PROPOSAL: Final = Template.read(PACKAGED_SCENES.with_name("proposal.j2"))
_MOST_READ: Final = 200_000
"""Characters of a model's reply that are looked at."""
_NOT_PROPOSED: Final = ("action", "memory", "company")
"""Kinds of scenes that need more than a proposal has."""
_OBJECT: Final = re.compile(r"\{.*\}", re.DOTALL)


def _require_proposable(kind: SceneKind) -> SceneKind:
    if kind in _NOT_PROPOSED:
        raise ValueError(f"a scene of kind `{kind}` needs more than a proposal has")
    return kind


class _ProposedScene(Frozen):
    player: Annotated[str, Field(min_length=1, max_length=600)]
    turns: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=400)], ...], Field(max_length=3)] = ()
    probe: Annotated[str, Field(min_length=1, max_length=120)]
    kind: Annotated[SceneKind, AfterValidator(_require_proposable)] = "conversation"
    notes: Annotated[str, Field(max_length=400)] = ""


class SceneDraft(Frozen):
    """`approved` is a person's word: written into the file, or said to `--approve`."""

    approved: bool = False
    scene: Scene


class DraftFile(Frozen):
    character: Name
    model: str
    drafts: tuple[SceneDraft, ...]


def scenes(
    sheet: Annotated[Path, typer.Argument(help="Sheet file.")],
    propose: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Let a model draft this many scenes. None is used before it is approved."),
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Review the drafts one by one, and use those that you approve.")
    ] = False,
    policy: Annotated[
        str | None, typer.Option(help="URL of the OpenAI-compatible server that drafts.", callback=check_url)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name on that server.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable with the server's API key.")] = None,
    input_price: Annotated[
        float | None, typer.Option(min=0, help="Price in US dollars per million prompt tokens.")
    ] = None,
    output_price: Annotated[
        float | None, typer.Option(min=0, help="Price in US dollars per million completion tokens.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count a character's scenes; let a model draft more (`--propose`), and approve drafts (`--approve`).

    Drafts lie in `scenes/drafts` beside the sheet, each with `approved: false`. They are used once a person has
    approved them, here or in the file."""
    with stop_on_errors():
        character = read_sheet(sheet)
        if propose is not None:
            if policy is None or model is None:
                raise UserError("--propose needs --policy and --model")
            key = None if api_key_env is None else read_settings().read_secret(api_key_env)
            if api_key_env is not None and key is None:
                raise UserError(f"--api-key-env: the environment variable {api_key_env} is not set")
            sampling = SamplingParameters(max_tokens=_TOKENS_A_SCENE * propose)
            drafter = ChatPolicy(policy, model, api_key=key, sampling=sampling, timeout_seconds=600)
            _propose(character, sheet, propose, drafter, (input_price, output_price), yes)
        if approve:
            _approve(character, sheet)
        if propose is None and not approve:
            _print_counts(character, sheet, as_json=as_json)


def _propose(
    sheet: CharacterSheet,
    path: Path,
    count: int,
    drafter: ChatPolicy,
    prices: tuple[float | None, float | None],
    yes: bool,
) -> None:
    served = [scene.opening for scene in _list_own(sheet, path)]
    stored = _read_drafts(sheet, path)
    drafted = [draft.scene.opening for draft in stored.drafts] if stored else []
    prompt = _PROPOSAL.render(
        sheet=sheet.model_dump_json(exclude_none=True),
        lines=[" ".join(line.split())[:200] for line in (*served, *drafted)[-_MOST_KNOWN:]],
        count=count,
        language=sheet.voice.language,
        kinds=", ".join(kind for kind in get_args(SceneKind) if kind not in _NOT_PROPOSED),
    )
    usd = _tell_cost(bound_tokens(prompt), drafter.sampling.max_tokens, prices)
    require_consent(usd, yes=yes, question="Ask the model?")
    reply = asyncio.run(drafter.complete([Message(role="user", content=prompt)]))
    made, left_out = _choose_proposals(reply, sheet, (*served, *drafted), count)
    if made:
        drafts = (*(stored.drafts if stored else ()), *(SceneDraft(scene=scene) for scene in made))
        _write(_draft_path(path), DraftFile(character=sheet.id, model=drafter.model, drafts=drafts))
    reasons = "".join(f", {number} left out: {reason}" for reason, number in left_out.items())
    errors.print(f"{len(made)} drafts in {_draft_path(path)}{reasons}", markup=False, highlight=False, soft_wrap=True)
    if not made:
        raise InvalidRequest("the model proposed no scene that could be used")


def _tell_cost(prompt: int, completion: int, prices: tuple[float | None, float | None]) -> float | None:
    usd = PolicyPrices(*prices).compute_cost(Usage(prompt_tokens=prompt, completion_tokens=completion))
    cost = "" if usd is None else f", at most {usd:.4f} USD"
    words = f"one request: at most {prompt} prompt tokens and {completion} completion tokens{cost}"
    errors.print(words, soft_wrap=True, highlight=False)
    return usd


def _choose_proposals(
    reply: str, sheet: CharacterSheet, known: Sequence[str], most: int
) -> tuple[list[Scene], Counter[str]]:
    """The scenes of a reply that can be drafts, and why others are left out. Nothing of the reply is trusted."""
    left_out: Counter[str] = Counter()
    proposed = _read_reply(reply)
    if proposed is None:
        return [], Counter({"the reply is no JSON object with `scenes`": 1})
    if len(proposed) > most:
        left_out["more than were asked for"] = len(proposed) - most
    shingles = [_cut_shingles(line) for line in known]
    terms = [*sheet.probes.must_not_mention, *(term for one in sheet.secrets for term in one.leak_terms)]
    made: list[Scene] = []
    for each in proposed[:most]:
        try:
            one = _ProposedScene.model_validate(each)
        except ValidationError as error:
            left_out[explain_faults(error, _ProposedScene, quotes=False)[0].sentence] += 1
            continue
        lines = (one.player, *one.turns, one.probe, one.notes)
        own = _cut_shingles(one.player)
        if any(escape_invisible(line) != line for line in lines):
            left_out["it has control characters"] += 1
        # The player must not say a secret. The probe and the notes are for judges, and may.
        elif any(mentions(normalise_spelling(line), term) for line in lines[:-2] for term in terms):
            left_out["it gives a secret away"] += 1
        elif any(_overlap(own, other) >= _SAME_FROM for other in shingles):
            left_out["it is nearly the same as another"] += 1
        else:
            shingles.append(own)
            made.append(_build_scene(one, sheet))
    return made, left_out


def _read_reply(reply: str) -> list[object] | None:
    match = _OBJECT.search(strip_thinking(reply[:_MOST_READ]).text)
    try:
        value = json.loads(match[0]) if match else None
    except (ValueError, RecursionError):
        return None
    listed = value.get("scenes") if isinstance(value, dict) else None
    return listed if isinstance(listed, list) else None


def _build_scene(one: _ProposedScene, sheet: CharacterSheet) -> Scene:
    name = digest([sheet.id, one.player, list(one.turns)])[:12]
    return Scene.model_validate(
        {
            "id": f"{sheet.id[:36]}-draft-{name}",
            "kind": one.kind,
            "split": "test" if sheet.meta.held_out else "train",
            "player": one.player,
            "turns": [{"say": turn} for turn in one.turns],
            "probe": one.probe,
            "probes": {"notes": one.notes},
        }
    )


def _cut_shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = split_spoken_words(text)
    return frozenset(tuple(words[at : at + 3]) for at in range(max(1, len(words) - 2)))


def _overlap(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    return len(one & other) / (len(one | other) or 1)


def _approve(sheet: CharacterSheet, path: Path) -> None:
    stored = _read_drafts(sheet, path)
    if stored is None or not stored.drafts:
        raise InvalidRequest(f"there are no drafts of {sheet.id}: --propose makes some")
    if not sys.stdin.isatty():
        raise InvalidRequest(
            f"a person approves drafts: use a terminal, or write `approved: true` into {_draft_path(path)}"
        )
    chosen = [draft for draft in stored.drafts if draft.approved]
    later: list[SceneDraft] = []
    dropped = 0
    for position, draft in enumerate(stored.drafts):
        if draft.approved:
            continue
        answer = _ask(draft.scene, position + 1, len(stored.drafts))
        if answer == "q":
            later += [one for one in stored.drafts[position:] if not one.approved]
            break
        chosen += [draft] if answer == "y" else []
        later += [draft] if answer == "l" else []
        dropped += answer == "n"
    _serve(sheet, path, [draft.scene for draft in chosen])
    _write(_draft_path(path), stored.model_copy(update={"drafts": tuple(later)}))
    errors.print(f"{len(chosen)} approved, {dropped} dropped, {len(later)} kept for later")


def _ask(scene: Scene, number: int, count: int) -> str:
    console = output_console()
    for line in (
        f"{number} of {count}  {scene.probe} ({scene.kind})",
        *(f"  {spoken}" for spoken in _list_lines(scene)),
    ):
        console.print(escape_invisible(line), markup=False, highlight=False, soft_wrap=True)
    if scene.probes.notes:
        console.print(f"  for judges: {escape_invisible(scene.probes.notes)}", markup=False, highlight=False)
    answer = ""
    while answer not in {"y", "n", "l", "q"}:
        answer = typer.prompt("serve it? y yes, n drop it, l later, q stop", err=True).strip().lower()[:1]
    return answer


def _list_lines(scene: Scene) -> Iterable[str]:
    return (scene.opening, *(turn.say for turn in scene.turns))


def _serve(sheet: CharacterSheet, path: Path, approved: Sequence[Scene]) -> None:
    if not approved:
        return
    file = path.parent / SCENES / f"{sheet.id}-approved.yaml"
    before = parse_model(read_text(file), file.name, SceneSet).scenes if file.exists() else ()
    ids = {scene.id for scene in before}
    new = tuple(scene for scene in approved if scene.id not in ids)
    _write(file, SceneSet(character=sheet.id, language=sheet.voice.language, scenes=(*before, *new)))


def _print_counts(sheet: CharacterSheet, path: Path, *, as_json: bool) -> None:
    own = Counter(scene.split for scene in _list_own(sheet, path))
    stored = _read_drafts(sheet, path)
    drafts = len(stored.drafts) if stored else 0
    words = f"{sheet.id}: {own['train']} scenes for training, {own['test']} for testing, {drafts} drafts"
    print_outcome(words, as_json=as_json, sheet=sheet.id, train=own["train"], test=own["test"], drafts=drafts)


def _list_own(sheet: CharacterSheet, path: Path) -> list[Scene]:
    folder = path.parent / SCENES
    files = read_scenes(folder) if folder.is_dir() and any(folder.glob("*.yaml")) else ()
    return [scene for one in files if one.character == sheet.id for scene in one.scenes]


def _draft_path(path: Path) -> Path:
    return path.parent / SCENES / _DRAFTS / path.name


def _read_drafts(sheet: CharacterSheet, path: Path) -> DraftFile | None:
    file = _draft_path(path)
    stored = parse_model(read_text(file), f"{_DRAFTS}/{file.name}", DraftFile) if file.exists() else None
    if stored is not None and stored.character != sheet.id:
        raise InvalidRequest(f"{_DRAFTS}/{file.name}: character: is {stored.character!r}, not {sheet.id!r}")
    return stored


def _write(file: Path, content: Frozen) -> None:
    """Whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True)
    fresh = file.with_suffix(".tmp")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)
