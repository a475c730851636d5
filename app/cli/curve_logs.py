"""Where `runs log` writes: TensorBoard's event files, a run of W&B, or a class of one's own.

Each tells first what it holds, as its own files have it: that is where a killed command goes on.
"""

import importlib
import json
import re
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from app.domain.errors import UserError
from app.domain.values import digest, suggest

Held = tuple[Mapping[int, Mapping[str, float]], set[str]]
"""Values by step and name, and the ids of notes."""


class CurveLog(Protocol):
    """What a class of one's own has too. It is made with the run's name."""

    place: str
    """Where its curves are, for people."""
    rewrites: bool
    """Whether a step that is written again replaces the former one, and all steps after it, which then follow."""

    def read(self) -> Held:
        """What it holds, of whatever process wrote it. Called once, before the others."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Steps come in order, but for late ones."""

    def note(self, note_id: str, title: str, text: str, step: int) -> None:
        """An alarm of run health."""

    def close(self) -> None:
        """Everything is written when it returns."""


@dataclass(frozen=True)
class WandbChoice:
    """The trainer's own run, by its id; empty for one of the same name as ours."""

    project: str
    run: str


def open_log(to: str, run: str, folder: Path, wandb: WandbChoice) -> CurveLog:
    """UserError where a package is missing, or `to` names none."""
    if to == "tensorboard":
        return TensorBoardLog(folder / run)
    if to == "wandb":
        return WandbLog(run, folder, wandb)
    module, separator, name = to.partition(":")
    if not separator:
        near = suggest(to, ["tensorboard", "wandb"]) or "; wanted is tensorboard, wandb or MODULE:CLASS"
        raise UserError(f"`--to`: there is no logger {to!r}{near}")
    return _build_own_log(module, name, run)


def _build_own_log(module: str, name: str, run: str) -> CurveLog:
    """The folder of the command comes first, as for a program in it."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        build = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"`--to {module}:{name}`: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    built: CurveLog = build(run)
    return built


def _import_extra(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"the package {module.partition('.')[0]} is not installed: pip install 'atropos-environments[{extra}]'"
        ) from error


# TensorBoard: files of records, each of a length, its check sum, an event and its check sum. All figures of a step are
# one event, so a process that is killed leaves a step whole or not at all.

_EVENT_FILES: Final = "events.out.tfevents.*"
_OUR_SUFFIX: Final = ".atropos-envs"
_ALARMS: Final = "alarms"


def read_event_records(data: bytes) -> Iterator[bytes]:
    """Whole records. The last one may be cut off, where a process was killed."""
    at = 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        if at + 16 + size > len(data):
            return
        yield data[at + 12 : at + 12 + size]
        at += 16 + size


class TensorBoardLog:
    """A step that is written again begins a file, whose first event has readers forget that step and all later ones.
    Alarms are texts in a folder of their own, which no such event reaches."""

    rewrites = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place = str(folder)
        self._files = _import_extra("tensorboardX.event_file_writer", "tensorboard")
        self._summaries = _import_extra("tensorboardX.summary", "tensorboard")
        self._events = _import_extra("tensorboardX.proto.event_pb2", "tensorboard")
        self._summary = _import_extra("tensorboardX.proto.summary_pb2", "tensorboard").Summary
        self._writers: dict[Path, Any] = {}
        self._last: int | None = None
        """The latest step that is held."""

    def read(self) -> Held:
        """UserError where another program has written: its curves would be forgotten with ours."""
        held: dict[int, dict[str, float]] = {}
        for event in self._read_events(self._folder):
            if event.HasField("session_log"):
                held = {step: values for step, values in held.items() if step < event.step}
            elif event.HasField("summary"):
                held[event.step] = {value.tag: value.simple_value for value in event.summary.value}
        notes = {
            value.tag.partition("/")[2].removesuffix("/text_summary")
            for event in self._read_events(self._folder / _ALARMS)
            for value in event.summary.value
        }
        self._last = max(held, default=None)
        return held, notes

    def _read_events(self, folder: Path) -> Iterator[Any]:
        for path in sorted(folder.glob(_EVENT_FILES)):
            if not path.name.endswith(_OUR_SUFFIX):
                raise UserError(f"{path}: another program has written curves here; choose another --dir")
            for record in read_event_records(path.read_bytes()):
                yield self._events.Event.FromString(record)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._last is not None and step <= self._last:
            self._forget_from(step)
        shown = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(self._folder, step, summary=self._summary(value=shown))
        self._last = step

    def _forget_from(self, step: int) -> None:
        former = self._writers.pop(self._folder, None)
        if former is not None:
            former.close()
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self._add(self._folder, step, session_log=start)

    def note(self, note_id: str, title: str, text: str, step: int) -> None:
        self._add(self._folder / _ALARMS, step, summary=self._summaries.text(f"alarm/{note_id}", f"**{title}** {text}"))

    def _add(self, folder: Path, step: int, **what: Any) -> None:
        writer = self._writers.get(folder)
        if writer is None:
            folder.mkdir(parents=True, exist_ok=True)
            # Names have whole seconds. Readers take files in the order of their names.
            suffix = f".{time.time_ns()}{_OUR_SUFFIX}"
            writer = self._writers[folder] = self._files.EventsWriter(str(folder / "events"), suffix)
        writer.write_event(self._events.Event(wall_time=time.time(), step=step, **what))
        writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


# W&B: blocks of 32 KiB, in which records are whole or in parts, each of a check sum, a length, a kind and its bytes.

STEP: Final = "env/step"
"""The column that W&B draws our curves over: its own step goes up by one with each row, whoever writes it."""
_BLOCK: Final = 2**15
_WHOLE, _FIRST, _LAST = 1, 2, 4
_LONGEST_ID: Final = 64
_NOTE_ID: Final = re.compile(r"\(([^()]+)\)$")
_WANDB_SETTINGS: Final = {
    # The machine of this command is not the trainer's, and its arguments may hold a key.
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
    "x_transaction_log_flush_interval": 1.0,  # what is not in the file yet is lost with a killed process
}


def read_wandb_records(data: bytes) -> Iterator[bytes]:
    """Whole records of a `.wandb` file, after its head. The last one may be cut off, where a process was killed."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        if at + 7 + size > len(data):
            return
        piece = data[at + 7 : at + 7 + size]
        parts = piece if kind in (_WHOLE, _FIRST) else parts + piece
        if kind in (_WHOLE, _LAST):
            yield parts
        at += 7 + size


class WandbLog:
    """Rows of history with a step of their own. W&B keeps every row, so what changes later is told and not written.
    Whether it is offline, and where its server is, W&B's own variables say."""

    rewrites = False

    def __init__(self, run: str, folder: Path, choice: WandbChoice) -> None:
        self._wandb = _import_extra("wandb", "wandb")
        self._records = _import_extra("wandb.proto.wandb_internal_pb2", "wandb")
        self._folder, self._choice = folder, choice
        own = f"atropos-envs-{run}"
        self._id = choice.run or (own if len(own) <= _LONGEST_ID else f"{own[:55]}-{digest([run])[:8]}")
        self._name = None if choice.run else run
        self._run: Any = None
        self.place = str(folder / "wandb")

    def read(self) -> Held:
        held: defaultdict[int, dict[str, float]] = defaultdict(dict)
        notes: set[str] = set()
        for path in sorted(self._folder.glob(f"wandb/*run-*-{self._id}/run-{self._id}.wandb")):
            for data in read_wandb_records(path.read_bytes()):
                record = self._records.Record.FromString(data)
                if found := _NOTE_ID.search(record.alert.text):
                    notes.add(found[1])
                row = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                if STEP in row:
                    values = {name: json.loads(row[name]) for name in row if name.startswith("env/") and name != STEP}
                    held[int(row[STEP])].update(values)
        return held, notes

    def _begin(self) -> Any:
        """With the first row: each start of W&B makes a folder."""
        known = self._wandb.Settings.model_fields
        chosen = {**_WANDB_SETTINGS, "x_update_finish_state": not self._choice.run}
        settings = self._wandb.Settings(**{name: value for name, value in chosen.items() if name in known})
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            run = self._wandb.init(
                project=self._choice.project or None,
                id=self._id,
                name=self._name,
                resume="allow",
                dir=str(self._folder),
                settings=settings,
            )
        except self._wandb.Error as error:
            raise UserError(f"W&B: {error}") from error
        self.place = str(Path(run.dir).parent) if run.offline else run.url
        run.define_metric(STEP)
        run.define_metric("env/*", step_metric=STEP)
        return run

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run = self._run or self._begin()
        self._run.log({STEP: step, **values})

    def note(self, note_id: str, title: str, text: str, step: int) -> None:
        self._run = self._run or self._begin()
        self._run.alert(title[:63], f"Step {step}. {text} ({note_id})", level="WARN")

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
