"""Namespaces for a process: no other processes, no network, a file tree with only Python's library.

Standard library only. Needs user namespaces or root. Failures are not rolled back, so the process must exit on failure.
"""

import contextlib
import errno
import os
import socket
from typing import Final

from app.sandbox.syscalls import call_kernel, prctl

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000,
    0x02000000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
OTHER_NAMESPACES: Final = NEWUTS | NEWIPC | NEWPID | NEWNET | NEWCGROUP
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
DETACH: Final = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
AT_RECURSIVE: Final = 0x8000
AT_FDCWD: Final = -100
PR_SET_DUMPABLE: Final = 4
NOBODY: Final = 65534
"""The user id of programs inside and, if root starts them, outside."""

WORK_DIRECTORY: Final = "/work"
"""The program's own directory in its tree."""
MOUNT_POINTS: Final = ("/tmp", "/mnt", "/run", "/dev", "/sys")  # noqa: S108  # only a place to mount on, in a view of its own
"""Candidates for the mount point of the new tree: an existing directory without any part of the library."""
THIRD_PARTY_FOLDERS: Final = ("site-packages", "dist-packages")


def enter_as_user(library: tuple[str, ...], processes: int) -> None:
    """Enters a user namespace, which needs no privileges. Root becomes nobody first. `processes` is a descriptor of
    /proc, which the new tree does not have."""
    rootly = os.geteuid() == 0
    if rootly:
        call_kernel("unshare", NEWNS)
        _build_tree(library)
        become_nobody()
        prctl(PR_SET_DUMPABLE, 1)  # else its own maps were not its own to write
    user, group = os.geteuid(), os.getegid()
    call_kernel("unshare", NEWUSER | NEWNS | OTHER_NAMESPACES)
    _hide_host_name()
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {user} 1"),
        ("gid_map", f"{NOBODY} {group} 1"),
    ):
        _write_file(processes, f"self/{name}", text)
    if not rootly:
        _build_tree(library)


def enter_namespaces_as_root(library: tuple[str, ...]) -> None:
    """Enters namespaces with root's privileges, where user namespaces are not available."""
    call_kernel("unshare", NEWNS | OTHER_NAMESPACES)
    _hide_host_name()
    _build_tree(library)


def become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def mount_room(size: int, owner: int) -> None:
    """Mounts an empty directory of at most `size` bytes over the program's directory."""
    options = f"size={max(size, 4096)},nr_inodes=256,mode=700,uid={owner},gid={owner}"
    call_kernel("mount", b"none", WORK_DIRECTORY.encode(), b"tmpfs", NOSUID | NODEV | NOEXEC, options.encode())


def unmount_room() -> None:
    call_kernel("umount2", WORK_DIRECTORY.encode(), DETACH)


def _build_tree(library: tuple[str, ...]) -> None:
    over = next(place for place in MOUNT_POINTS if os.path.isdir(place) and not _contains_library(place, library))  # noqa: PTH112
    call_kernel("mount", None, b"/", None, REC | PRIVATE, None)
    call_kernel("mount", b"none", over.encode(), b"tmpfs", NOSUID | NODEV, b"size=256k,nr_inodes=256,mode=755")
    for place in library:
        os.makedirs(over + place, 0o755, exist_ok=True)  # noqa: PTH103
        call_kernel("mount", place.encode(), (over + place).encode(), None, BIND | REC, None)
        for others in THIRD_PARTY_FOLDERS:
            if os.path.isdir(f"{over}{place}/{others}"):  # noqa: PTH112
                call_kernel("mount", b"none", f"{over}{place}/{others}".encode(), b"tmpfs", RDONLY | NOSUID, b"size=4k")
        _make_read_only(over + place)
    os.mkdir(over + WORK_DIRECTORY, 0o755)  # noqa: PTH102
    os.chdir(over)
    call_kernel("pivot_root", b".", b".")
    call_kernel("umount2", b".", DETACH)
    os.chdir("/")
    _make_read_only("/")


def _hide_host_name() -> None:
    """Hides the host name, which would identify the machine."""
    with contextlib.suppress(OSError):
        socket.sethostname("nowhere")


def _contains_library(place: str, library: tuple[str, ...]) -> bool:
    return any(one == place or one.startswith(place + "/") for one in library)


def _make_read_only(place: str) -> None:
    """Makes a mount read-only, with all mounts below it."""
    attributes = b"".join(
        value.to_bytes(8, "little") for value in (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, 0, 0)
    )
    try:
        call_kernel("mount_setattr", AT_FDCWD, place.encode(), AT_RECURSIVE, attributes, len(attributes))
    except OSError as error:
        if error.errno != errno.ENOSYS:  # which kernels before 5.12 say
            raise
        held = os.statvfs(place).f_flag & (RDONLY | NOSUID | NODEV | NOEXEC)
        call_kernel("mount", None, place.encode(), None, REMOUNT | BIND | RDONLY | NOSUID | NODEV | held, None)


def _write_file(directory: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY, dir_fd=directory)
    try:
        os.write(file, text.encode("ascii"))
    finally:
        os.close(file)
