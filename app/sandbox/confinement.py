"""The walls of a jail: namespaces, Landlock, seccomp and limits, each given up for good. Standard library only.

Each layer has holes that another one closes. Landlock knows no Unix sockets and no `chmod`; seccomp knows no paths;
namespaces open kernel interfaces that only seccomp closes again. The layers are entered in this order, because each
step takes away what the steps before it need:

1. The supervisor enters the namespaces once (`enter_namespaces_as_user` or `..._as_root`): no other processes, no
   network, and a file tree with only Python's library. A failed step is not undone, so the process must exit.
2. A forked process restricts its files with Landlock, closes every descriptor but its channel, and lowers its limits.
3. It becomes nobody, and then gives up all capabilities: becoming somebody else needs one.
4. It installs the seccomp filter last, which refuses most of these calls. Only then is the program loaded.

Workers install a filter of their own, which lists what is refused instead of what is allowed, since they import
modules late and use libraries with calls of their own.
"""

import contextlib
import ctypes
import errno
import os
import platform
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

CHANNEL: Final = 3
"""The only open descriptor besides the standard ones, which are /dev/null."""
OPEN_FILES: Final = 64
MEBIBYTE: Final = 1024 * 1024
_CAPABILITIES: Final = 64
"""More than any kernel has."""
_CAPABILITY_VERSION: Final = 0x20080522
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 22, 24, 47, 4
_LIMITED: Final = (
    resource.RLIMIT_CPU,
    resource.RLIMIT_AS,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_CORE,
    resource.RLIMIT_MEMLOCK,
)


@dataclass(frozen=True)
class ConfinementPlan:
    """The protections that work on this machine. Each is applied to every program, or the program is not run."""

    namespaces: str = ""
    """`user`, `root` or none."""
    landlock: bool = False
    seccomp: bytes = b""
    """The seccomp filter, if it works."""
    nobody: bool = False
    """Whether the process runs as root and can become `nobody` and still read the library."""
    library: tuple[str, ...] = ()
    """Paths that programs may read."""
    rules: int = -1
    """A descriptor of the Landlock ruleset, if it is the same for all programs."""

    @property
    def owner(self) -> int:
        """The user id of programs inside the namespace."""
        return NOBODY if self.nobody else os.geteuid()

    @property
    def writing(self) -> bool:
        """Whether programs have a writable directory of limited size."""
        return bool(self.namespaces)


class Confinement:
    """Confines processes that are forked for programs. Whatever can be is made ready before the fork, since each page
    of memory that a new process touches is copied."""

    def __init__(self, plan: ConfinementPlan) -> None:
        self._plan = plan
        self._rules = plan.rules
        self._room_bytes = -1
        self._hard_limits = {what: resource.getrlimit(what)[1] for what in _LIMITED}
        self._restrict = _prepare_restriction(plan.rules) if plan.rules >= 0 else _do_nothing
        self._install_filter = _prepare_filter(plan.seccomp) if plan.seccomp else _do_nothing
        self._drops = _prepare_drops() if sys.platform == "linux" else []

    def make_room(self, file_bytes: int) -> None:
        """Sees to it that there is an empty directory of this size, which no program has had."""
        if self._plan.writing and file_bytes != self._room_bytes:
            self._replace_room(file_bytes)

    def clear_room(self) -> None:
        """Replaces the directory that a program has had."""
        if self._plan.writing:
            self._replace_room(self._room_bytes)

    def _replace_room(self, file_bytes: int) -> None:
        # A new directory, not an emptied one: times and numbers of files and blocks would tell what was there.
        if self._room_bytes >= 0:
            _unmount_room()
        mount_room(_WORK_DIRECTORY, file_bytes, self._plan.owner)
        self._room_bytes = file_bytes
        # A Landlock rule belongs to the directory, not to its path, so a new directory needs a new ruleset.
        if self._plan.landlock:
            if self._rules >= 0:
                os.close(self._rules)
            self._rules = create_ruleset(self._plan.library, (_WORK_DIRECTORY,))
            self._restrict = _prepare_restriction(self._rules)

    def apply(self, channel: int, cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
        """Confines this process. Raises OSError or ValueError if a step fails."""
        writing = self._plan.writing
        self._restrict()  # while the descriptor of its ruleset is still open
        _close_other_descriptors(channel)
        os.chdir(_WORK_DIRECTORY if writing else "/")
        self._set_limits(cpu_seconds, memory_bytes, file_bytes if writing else 0)
        if self._plan.nobody:
            become_nobody()  # while it still has the capability for it
        for drop in self._drops:
            drop()
        self._install_filter()  # last: it refuses what the steps above call

    def _set_limits(self, cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
        """Sets soft and hard limits, so that the kernel kills at once instead of sending a signal that can be
        handled."""
        for what, bound in zip(_LIMITED, (cpu_seconds, memory_bytes, file_bytes, OPEN_FILES, 0, 0, 0), strict=True):
            hard = self._hard_limits[what]
            lower = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
            resource.setrlimit(what, (lower, lower))


def _do_nothing() -> None:
    pass


def _prepare_drops() -> list[Callable[[], None]]:
    """No capabilities; nobody of the same user may look into it; it dies with its parent. The last two in this order
    and after becoming another user, which may undo them."""
    last = [_prepare_prctl(PR_SET_DUMPABLE, 0), _prepare_prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))]
    return last if detect_architecture() is None else [prepare_to_drop_capabilities(), *last]


def _close_other_descriptors(channel: int) -> None:
    """Moves the channel to CHANNEL, where the parent has its socket, and closes all other descriptors."""
    os.dup2(channel, CHANNEL, inheritable=False)
    os.closerange(CHANNEL + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def prepare_to_drop_capabilities() -> Callable[[], None]:
    """An empty set of capabilities, of each kind."""
    head = ctypes.create_string_buffer(_CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4))
    return prepare_call("capset", head, ctypes.create_string_buffer(24))


def bar_capabilities() -> None:
    """Empties the bounding set: no program that this process or its children start can gain capabilities."""
    for capability in range(_CAPABILITIES):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:  # there are no more, or this process may not, and then has none
            break
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


# Namespaces

_NEWNS, _NEWCGROUP, _NEWUTS, NEWIPC, _NEWUSER, NEWPID, _NEWNET = (
    0x00020000,
    0x02000000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_OTHER_NAMESPACES: Final = _NEWUTS | NEWIPC | NEWPID | _NEWNET | _NEWCGROUP
_ALL_NAMESPACES: Final = _OTHER_NAMESPACES | _NEWNS | _NEWUSER
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH: Final = 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_AT_RECURSIVE: Final = 0x8000
_AT_FDCWD: Final = -100
NOBODY: Final = 65534
"""The user id of programs inside and, if root starts them, outside."""

_WORK_DIRECTORY: Final = "/work"
"""The program's own directory in its tree."""
_MOUNT_POINTS: Final = ("/tmp", "/mnt", "/run", "/dev", "/sys")  # noqa: S108  # only a place to mount on, in a view of its own
"""Candidates for the mount point of the new tree: an existing directory without any part of the library."""
THIRD_PARTY_FOLDERS: Final = ("site-packages", "dist-packages")


def enter_namespaces_as_user(build_tree: Callable[[], None], processes: int) -> None:
    """Enters a user namespace and, with it, all others, which needs no privileges. Root becomes nobody first.
    `build_tree` replaces the file tree; `processes` is a descriptor of /proc, which the new one does not have."""
    is_root = os.geteuid() == 0
    if is_root:
        _call_kernel("unshare", _NEWNS)
        build_tree()
        become_nobody()
        prctl(PR_SET_DUMPABLE, 1)  # else its own maps were not its own to write
    user, group = os.geteuid(), os.getegid()
    _call_kernel("unshare", _NEWUSER | _NEWNS | _OTHER_NAMESPACES)
    _hide_host_name()
    for name, text in (  # in this order: the kernel takes a gid_map from an ordinary user only after the refusal
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {user} 1"),
        ("gid_map", f"{NOBODY} {group} 1"),
    ):
        _write_file(processes, f"self/{name}", text)
    if not is_root:
        build_tree()


def enter_namespaces_as_root(build_tree: Callable[[], None]) -> None:
    """Enters namespaces with root's privileges, where user namespaces are not available."""
    _call_kernel("unshare", _NEWNS | _OTHER_NAMESPACES)
    _hide_host_name()
    build_tree()


def can_do(attempt: Callable[[], None]) -> bool:
    """Whether it works, tried in a process of its own: none of it can be undone."""
    child = os.fork()
    if child == 0:
        try:
            attempt()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def become_nobody() -> None:
    """Groups first and the user last: afterwards neither could be changed."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def mount_room(directory: str, size: int, owner: int, *, files: int = 256, executable: bool = False) -> None:
    """Mounts an empty directory of at most `size` bytes and `files` files over this one."""
    # The kernel takes a size of 0 for no limit at all.
    options = f"size={max(size, 4096)},nr_inodes={files},mode=700,uid={owner},gid={owner}"
    flags = _NOSUID | _NODEV | (0 if executable else _NOEXEC)
    _call_kernel("mount", b"none", directory.encode(), b"tmpfs", flags, options.encode())


def _unmount_room() -> None:
    _call_kernel("umount2", _WORK_DIRECTORY.encode(), _DETACH)


def build_library_tree(library: tuple[str, ...]) -> None:
    """Replaces the file tree by one with the library and an empty directory for the program, all read-only."""
    root = begin_tree(library)
    for path in library:
        show_path(root, path, hidden=THIRD_PARTY_FOLDERS)
    os.mkdir(root + _WORK_DIRECTORY, 0o755)  # noqa: PTH102
    end_tree(root)


def begin_tree(paths: Iterable[str]) -> str:
    """An empty tree, and where it lies until `end_tree`. `paths` are those that will be shown in it."""
    paths = tuple(paths)
    root = next(path for path in _MOUNT_POINTS if os.path.isdir(path) and not _contains_library(path, paths))  # noqa: PTH112
    # Private, else the machine's own tree would get every mount that is made here.
    _call_kernel("mount", None, b"/", None, _REC | _PRIVATE, None)
    _call_kernel("mount", b"none", root.encode(), b"tmpfs", _NOSUID | _NODEV, b"size=256k,nr_inodes=512,mode=755")
    return root


def show_path(root: str, path: str, hidden: Sequence[str] = (), *, device: bool = False) -> None:
    """Shows a file or folder of the machine at the same place, read-only, but for folders in it called as in `hidden`.
    A device may be written to."""
    if os.path.isdir(path):  # noqa: PTH112
        os.makedirs(root + path, 0o755, exist_ok=True)  # noqa: PTH103
    else:
        os.makedirs(os.path.dirname(root + path), 0o755, exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(root + path, os.O_CREAT | os.O_WRONLY, 0o644))
    _call_kernel("mount", path.encode(), (root + path).encode(), None, _BIND | _REC, None)
    for folder in hidden:
        if os.path.isdir(f"{root}{path}/{folder}"):  # noqa: PTH112
            _call_kernel("mount", b"none", f"{root}{path}/{folder}".encode(), b"tmpfs", _RDONLY | _NOSUID, b"size=4k")
    if not device:
        _make_read_only(root + path)


def end_tree(root: str) -> None:
    """Makes the tree that of this process, and itself read-only."""
    os.chdir(root)
    # Onto itself: the old tree then lies over the new one and is unmounted, without a directory to put it in.
    _call_kernel("pivot_root", b".", b".")
    _call_kernel("umount2", b".", _DETACH)
    os.chdir("/")
    _make_read_only("/", recursive=False)


def _hide_host_name() -> None:
    """Hides the host name, which would identify the machine."""
    with contextlib.suppress(OSError):
        socket.sethostname("nowhere")


def _contains_library(path: str, library: tuple[str, ...]) -> bool:
    return any(one == path or one.startswith(path + "/") for one in library)


def _make_read_only(path: str, *, recursive: bool = True) -> None:
    """Makes a mount read-only, with all mounts below it or alone."""
    attributes = b"".join(
        value.to_bytes(8, "little") for value in (_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV, 0, 0, 0)
    )
    try:
        _call_kernel(
            "mount_setattr", _AT_FDCWD, path.encode(), _AT_RECURSIVE if recursive else 0, attributes, len(attributes)
        )
    except OSError as error:
        if error.errno != errno.ENOSYS:  # kernels before 5.12 do not have the call
            raise
        # In a user namespace a mount keeps the flags that it came with: a remount without them is refused.
        flags = os.statvfs(path).f_flag & (_RDONLY | _NOSUID | _NODEV | _NOEXEC)
        _call_kernel("mount", None, path.encode(), None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV | flags, None)


def _write_file(directory: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY, dir_fd=directory)
    try:
        os.write(file, text.encode("ascii"))
    finally:
        os.close(file)


# Landlock: rules allow access below a directory, and all other rights that the kernel's version knows are refused. It
# also prevents tracing of other processes and, in newer versions, TCP, abstract sockets and signals to others.

_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_READ: Final = _READ_FILE | _READ_DIR
_WRITE_FILE, _REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _REFER, _TRUNCATE = (
    1 << bit for bit in (1, 4, 5, 7, 8, 13, 14)
)
_WRITE: Final = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE

_VERSION_ONLY: Final = 1
_BENEATH: Final = 1
_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file rights by version; later versions have at least the last."""
_TCP: Final = 0b11
"""Bind and connect, since version 4."""
_SCOPES: Final = 0b11
"""Abstract sockets and signals outside the domain, since version 6."""


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _read_landlock_version() -> int:
    """The kernel's Landlock version. Raises OSError if it has none or it is disabled."""
    return _call_kernel("landlock_create_ruleset", None, 0, _VERSION_ONLY)


def create_ruleset(readable: Iterable[str], writable: Iterable[str] = ()) -> int:
    """Creates a ruleset and returns its descriptor for `restrict_files`. Missing paths are skipped."""
    version = _read_landlock_version()
    rights = (1 << _RIGHTS.get(version, max(_RIGHTS.values()))) - 1
    attributes = _Attributes(rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    # An older kernel knows only the first fields, so it is given no more of them.
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _call_kernel("landlock_create_ruleset", attributes, size, 0)
    for paths, access in ((readable, _READ), (writable, _WRITE)):
        for path in paths:
            _allow(ruleset, path, access & rights)
    return ruleset


def restrict_files(ruleset: int) -> None:
    """Applies the ruleset to this thread and everything that it starts."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prepare_restriction(ruleset)()


def _prepare_restriction(ruleset: int) -> Callable[[], None]:
    """`restrict_files`, for a process that may gain no privileges any more."""
    return prepare_call("landlock_restrict_self", ruleset, 0)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # The kernel refuses rights of directories for a file.
        of_a_file = _READ_FILE | _WRITE_FILE | _TRUNCATE
        allowed = access if os.path.isdir(path) else access & of_a_file  # noqa: PTH112
        _call_kernel("landlock_add_rule", ruleset, _BENEATH, _Beneath(allowed, parent), 0)
    finally:
        os.close(parent)


# Seccomp: a filter is a classic BPF program that reads the architecture, number and arguments of each call and answers
# allow, fail or kill. It sees no memory, so a call whose flags lie behind a pointer cannot be judged by them.

_SECCOMP_MODE_FILTER: Final = 2

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
FAIL: Final = 0x00050000
_REFUSE: Final = FAIL | errno.EPERM
UNKNOWN: Final = FAIL | errno.ENOSYS
"""The answer of a kernel without the call, so that the C library falls back to an older one."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
X32: Final = 0x40000000
"""Numbers from here on are the x32 table of the same calls."""

CLONE_THREAD: Final = 0x00010000
_NEW_CONTENT: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | 0o20000000
"""Without these flags a file is opened only for reading; the last one is O_TMPFILE."""
_PLAIN_FCNTL: Final = (0, 1, 2, 3, 4, 1030)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; no locks or leases, by which programs could
communicate."""
_PLAIN_IOCTL: Final = (0x5401, 0x541B, 0x5450, 0x5451)
"""TCGETS, by which Python asks whether it writes to a terminal; FIONREAD, FIONCLEX, FIOCLEX."""


_PLAIN_SOCKETS: Final = (int(socket.AF_UNIX), int(socket.AF_INET), int(socket.AF_INET6))
_COMPANY: Final = """
socket socketpair connect bind listen accept accept4 execve execveat fork vfork rt_sigqueueinfo rt_tgsigqueueinfo
pidfd_open pidfd_send_signal
"""
"""Calls of FOREIGN that foreign programs may make: their processes see one another alone, and their network is a
loopback of their own."""


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


@dataclass(frozen=True)
class _SyscallRule:
    """The answer to one call. With `argument`, `answer` applies if that argument is one of `values` or has one of
    `bits`, else `otherwise`. Only the lower 32 bits are checked; the kernel uses no more of these arguments.
    `otherwise` also applies if the pointer in the argument `null` is not null."""

    answer: int
    argument: int | None = None
    values: tuple[int, ...] = ()
    bits: int = 0
    null: int | None = None
    otherwise: int = _REFUSE

    def compile_steps(self) -> list[bytes]:
        if self.argument is None:
            return [_pack_step(ANSWER, self.answer)]
        tests = [_pack_step(EQUAL, value, 0, 1) + _pack_step(ANSWER, self.answer) for value in self.values]
        if self.bits:
            tests.append(_pack_step(ANY_BIT, self.bits, 0, 1) + _pack_step(ANSWER, self.answer))
        choice = [_pack_step(LOAD, _ARGUMENTS + 8 * self.argument), *tests, _pack_step(ANSWER, self.otherwise)]
        return [*self._compile_null_tests(), *choice]

    def _compile_null_tests(self) -> list[bytes]:
        """Tests both halves of the pointer: a program can choose an address whose lower half is zero."""
        halves = () if self.null is None else (_ARGUMENTS + 8 * self.null, _ARGUMENTS + 8 * self.null + 4)
        refusal = _pack_step(ANY_BIT, 0xFFFFFFFF, 0, 1) + _pack_step(ANSWER, self.otherwise)
        return [_pack_step(LOAD, half) + refusal for half in halves]


def build_program_filter(*, writing: bool) -> bytes:
    """The filter for programs: everything that is not listed fails (and does not kill: a program that asks for a thread
    should see Python's own error), such as sockets, processes, threads, signals and
    new resource limits, by which a program could have itself killed. Without `writing`, files can be opened only for
    reading. Raises OSError on other architectures."""
    allowed = {
        number: _SyscallRule(ALLOW) for number in look_up_numbers(NEEDED + (WRITING if writing else "")).values()
    }
    special = look_up_numbers(CHECKED)
    opening = _SyscallRule(ALLOW) if writing else _SyscallRule(_REFUSE, argument=2, bits=_NEW_CONTENT, otherwise=ALLOW)
    allowed[special["openat"]] = opening
    if "open" in special:
        allowed[special["open"]] = (
            opening if writing else _SyscallRule(_REFUSE, argument=1, bits=_NEW_CONTENT, otherwise=ALLOW)
        )
    allowed[special["fcntl"]] = _SyscallRule(ALLOW, argument=1, values=_PLAIN_FCNTL)
    allowed[special["ioctl"]] = _SyscallRule(ALLOW, argument=1, values=_PLAIN_IOCTL)
    allowed[special["prlimit64"]] = _SyscallRule(ALLOW, argument=0, values=(0,), null=2)  # reading its own
    allowed[special["clone3"]] = _SyscallRule(UNKNOWN)  # its flags lie behind a pointer; libraries fall back to clone
    return _build_filter(allowed, _REFUSE)


def build_warden_filter() -> bytes:
    """The filter for wardens: reading, writing and handing over sockets that have no address. Raises OSError on other
    architectures."""
    return _build_filter(
        {number: _SyscallRule(ALLOW) for number in look_up_numbers(NEEDED + TALKING).values()}, _REFUSE
    )


def build_worker_filter() -> bytes:
    """The filter for workers: refuses new sockets and processes, exec, access to other processes, and system
    management. Contains the id of the calling process. Raises OSError on other architectures."""
    rules = {number: _SyscallRule(_REFUSE) for number in look_up_numbers(FOREIGN).values()}
    special = look_up_numbers(CHECKED)
    own = (os.getpid(),)
    rules[special["clone"]] = _SyscallRule(ALLOW, argument=0, bits=CLONE_THREAD)
    rules[special["clone3"]] = _SyscallRule(UNKNOWN)
    for signalling in ("kill", "tkill", "tgkill"):
        rules[special[signalling]] = _SyscallRule(ALLOW, argument=0, values=own)
    rules[special["prlimit64"]] = _SyscallRule(ALLOW, argument=0, values=(0, *own))
    return _build_filter(rules, ALLOW)


def build_child_filter() -> bytes:
    """The filter for foreign programs: as that of workers, but they may start processes and talk over sockets, and
    enter no namespaces. Raises OSError on other architectures."""
    refused = look_up_numbers(FOREIGN).keys() - set(_COMPANY.split())
    rules = {look_up_numbers(FOREIGN)[name]: _SyscallRule(_REFUSE) for name in refused}
    special = look_up_numbers(CHECKED)
    rules[look_up_numbers(FOREIGN)["socket"]] = _SyscallRule(ALLOW, argument=0, values=_PLAIN_SOCKETS)
    rules[special["clone"]] = _SyscallRule(_REFUSE, argument=0, bits=_ALL_NAMESPACES, otherwise=ALLOW)
    rules[special["clone3"]] = _SyscallRule(UNKNOWN)
    return _build_filter(rules, ALLOW)


def install_filter(code: bytes) -> None:
    """Installs a filter for this thread and everything that it starts. Raises OSError if the kernel refuses."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _prepare_filter(code)()


def _prepare_filter(code: bytes) -> Callable[[], None]:
    """`install_filter`, for a process that may gain no privileges any more."""
    return _prepare_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _FilterProgram(len(code) // 8, code))


def _build_filter(rules: dict[int, _SyscallRule], default: int) -> bytes:
    architecture = detect_architecture()
    assert architecture is not None  # noqa: S101  # else there were no numbers
    # The same number is another call in another architecture's table, or in the one of x32, so these go first.
    start = [
        _pack_step(LOAD, _ARCHITECTURE),
        _pack_step(EQUAL, architecture, 1, 0),
        _pack_step(ANSWER, KILL),
        _pack_step(LOAD, _NUMBER),
        _pack_step(AT_LEAST, X32, 0, 1),
        _pack_step(ANSWER, UNKNOWN),
    ]
    return b"".join([*start, _compile_choice(_list_ranges(rules, _SyscallRule(default)))])


def _list_ranges(rules: Mapping[int, _SyscallRule], default: _SyscallRule) -> list[tuple[int, _SyscallRule]]:
    """Where each range of numbers with the same rule begins."""
    edges = sorted({0} | {edge for number in rules for edge in (number, number + 1)})
    begun: list[tuple[int, _SyscallRule]] = []
    for edge in edges:
        rule = rules.get(edge, default)
        if not begun or begun[-1][1] != rule:
            begun.append((edge, rule))
    return begun


def _compile_choice(ranges: Sequence[tuple[int, _SyscallRule]]) -> bytes:
    """A search by halves: the kernel tries a filter with every number when a process installs it."""
    if len(ranges) == 1:
        return b"".join(ranges[0][1].compile_steps())
    middle = len(ranges) // 2
    lower, upper = _compile_choice(ranges[:middle]), _compile_choice(ranges[middle:])
    return _pack_step(AT_LEAST, ranges[middle][0], len(lower) // 8, 0) + lower + upper


def _pack_step(what: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", what, if_so, if_not, value)


# System calls: their numbers are from the kernel's headers (`asm/unistd_64.h`; `asm-generic/unistd.h` for aarch64) and
# never change. A table names a call with its number on x86_64 and on aarch64; `-` where there is none.

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Architectures by seccomp's numbers."""

NEEDED: Final = """
read=0/63 write=1/64 readv=19/65 writev=20/66 pread64=17/67 pwrite64=18/68 close=3/57 close_range=436/436
lseek=8/62 fstat=5/80 newfstatat=262/79 statx=332/291 stat=4/- lstat=6/- readlink=89/- readlinkat=267/78
access=21/- faccessat=269/48 faccessat2=439/439 getdents64=217/61 getcwd=79/17 chdir=80/49 dup=32/23 dup2=33/-
dup3=292/24 mmap=9/222 mprotect=10/226 munmap=11/215 mremap=25/216 madvise=28/233 brk=12/214 rt_sigaction=13/134
rt_sigprocmask=14/135 rt_sigreturn=15/139 rt_sigpending=127/136 rt_sigtimedwait=128/137 rt_sigsuspend=130/133
sigaltstack=131/132 futex=202/98 set_robust_list=273/99 rseq=334/293 clock_gettime=228/113 clock_getres=229/114
clock_nanosleep=230/115 nanosleep=35/101 gettimeofday=96/169 time=201/- times=100/153 getrusage=98/165
getpid=39/172 gettid=186/178 getppid=110/173 getuid=102/174 geteuid=107/175 getgid=104/176 getegid=108/177
getresuid=118/148 getresgid=120/150 getgroups=115/158 getpgrp=111/- getpgid=121/155 getsid=124/156 uname=63/160
sysinfo=99/179 sched_yield=24/124 sched_getaffinity=204/123 getrandom=318/278 exit=60/93 exit_group=231/94
poll=7/- ppoll=271/73 select=23/- pselect6=270/72 pause=34/- setitimer=38/103 getitimer=36/102 alarm=37/-
umask=95/166 getrlimit=97/163 getcpu=309/168 restart_syscall=219/128
"""
"""Allowed for programs with any arguments: own memory, descriptors, clocks and signal handlers."""

WRITING: Final = """
ftruncate=77/46 fsync=74/82 fdatasync=75/83 fadvise64=221/223 unlink=87/- unlinkat=263/35 mkdir=83/-
mkdirat=258/34 rmdir=84/- rename=82/- renameat=264/38 renameat2=316/276
"""
"""Also allowed if the program has a writable directory."""

CHECKED: Final = """
open=2/- openat=257/56 fcntl=72/25 ioctl=16/29 prlimit64=302/261 clone=56/220 clone3=435/435 kill=62/129
tkill=200/130 tgkill=234/131
"""
"""Allowed depending on the arguments."""

FOREIGN: Final = """
socket=41/198 socketpair=53/199 connect=42/203 bind=49/200 listen=50/201 accept=43/202 accept4=288/242
execve=59/221 execveat=322/281 fork=57/- vfork=58/- ptrace=101/117 process_vm_readv=310/270
process_vm_writev=311/271 process_madvise=440/440 kcmp=312/272 mount=165/40 umount2=166/39 unshare=272/97
setns=308/268 pivot_root=155/41 chroot=161/51 mount_setattr=442/442 move_mount=429/429 open_tree=428/428
fsopen=430/430 fsmount=432/432 fspick=433/433 fsconfig=431/431 bpf=321/280 io_uring_setup=425/425
io_uring_enter=426/426 io_uring_register=427/427 keyctl=250/219 add_key=248/217 request_key=249/218
rt_sigqueueinfo=129/138 rt_tgsigqueueinfo=297/240 pidfd_open=434/434 pidfd_send_signal=424/424
pidfd_getfd=438/438 userfaultfd=323/282 perf_event_open=298/241 init_module=175/105 finit_module=313/273
delete_module=176/106 kexec_load=246/104 kexec_file_load=320/294 open_by_handle_at=304/265 quotactl=179/60
swapon=167/224 swapoff=168/225 reboot=169/142 settimeofday=164/170 clock_settime=227/112 adjtimex=159/171
clock_adjtime=305/266 acct=163/89 syslog=103/116
"""
"""Refused for programs and workers: other processes, networks, the kernel."""

TALKING: Final = """
socketpair=53/199 sendto=44/206 recvfrom=45/207 sendmsg=46/211 recvmsg=47/212 getsockname=51/204
setsockopt=54/208
"""
"""Also allowed for wardens, which hand over sockets and open no others."""

_OURS: Final = """
capset=126/91 landlock_create_ruleset=444/444 landlock_add_rule=445/445 landlock_restrict_self=446/446
"""
"""Used by us to confine processes."""


def detect_architecture() -> int | None:
    """The architecture's number in seccomp; None if it is not supported here."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    return _ARCHITECTURES.get(platform.machine())


def look_up_numbers(table: str) -> dict[str, int]:
    """The numbers of the calls that this architecture has. Raises OSError if it is not supported."""
    if detect_architecture() is None:
        raise OSError(f"no system call numbers for {platform.machine()} on {sys.platform}")
    return _parse_table(table, list(_ARCHITECTURES).index(platform.machine()))


@lru_cache
def _parse_table(table: str, column: int) -> dict[str, int]:
    calls = dict(entry.split("=") for entry in table.split())
    numbers = {name: both.split("/")[column] for name, both in calls.items()}
    return {name: int(number) for name, number in numbers.items() if number != "-"}


def _call_kernel(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | None) -> int:
    """Makes a call of `_OURS` or `FOREIGN` and returns its result. Raises OSError if it fails."""
    number = look_up_numbers(_OURS + FOREIGN)[name]
    return _check_result(name, _LIBC.syscall(ctypes.c_long(number), *(_to_word(argument) for argument in arguments)))


def prctl(option: int, *arguments: int | ctypes.Structure) -> None:
    """Calls `prctl`. Raises OSError if it fails."""
    _prepare_prctl(option, *arguments)()


def prepare_call(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | ctypes.Structure) -> Callable[[], None]:
    """`_call_kernel` with everything looked up and converted beforehand, for a process that has just been forked: each
    page of memory that it touches is copied."""
    words = (ctypes.c_long(look_up_numbers(_OURS + FOREIGN)[name]), *(_to_word(argument) for argument in arguments))
    return partial(_call_prepared, name, partial(_LIBC.syscall, *words))


def _prepare_prctl(option: int, *arguments: int | ctypes.Structure) -> Callable[[], None]:
    words = [_to_word(argument) for argument in (*arguments, 0, 0, 0, 0)][:4]
    return partial(_call_prepared, "prctl", partial(_LIBC.prctl, ctypes.c_int(option), *words))


def _call_prepared(name: str, call: Callable[[], int]) -> None:
    _check_result(name, call())


def _check_result(name: str, result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def _to_word(argument: object) -> object:
    if isinstance(argument, int):
        return ctypes.c_ulong(argument)
    return ctypes.byref(argument) if isinstance(argument, ctypes.Structure) else argument


_LIBC = ctypes.CDLL(None, use_errno=True)
