"""Linux system calls by name. Standard library only.

The numbers are from the kernel's headers (`asm/unistd_64.h`; `asm-generic/unistd.h` for aarch64) and never change.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final

ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
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

OURS: Final = """
capset=126/91 landlock_create_ruleset=444/444 landlock_add_rule=445/445 landlock_restrict_self=446/446
"""
"""Used by us to confine processes."""


def detect_architecture() -> int | None:
    """The architecture's number in seccomp; None if it is not supported here."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    return ARCHITECTURES.get(platform.machine())


def look_up_numbers(table: str) -> dict[str, int]:
    """The numbers of the calls that this architecture has. Raises OSError if it is not supported."""
    if detect_architecture() is None:
        raise OSError(f"no system call numbers for {platform.machine()} on {sys.platform}")
    return _parse_table(table, list(ARCHITECTURES).index(platform.machine()))


@lru_cache
def _parse_table(table: str, column: int) -> dict[str, int]:
    calls = dict(entry.split("=") for entry in table.split())
    found = {name: both.split("/")[column] for name, both in calls.items()}
    return {name: int(number) for name, number in found.items() if number != "-"}


def call_kernel(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | None) -> int:
    """Makes a call of `OURS` or `FOREIGN` and returns its result. Raises OSError if it fails."""
    number = look_up_numbers(OURS + FOREIGN)[name]
    return check_result(name, _LIBC.syscall(ctypes.c_long(number), *(_to_word(argument) for argument in arguments)))


def prctl(option: int, *arguments: int | ctypes.Structure) -> None:
    """Calls `prctl`. Raises OSError if it fails."""
    prepare_prctl(option, *arguments)()


def prepare_call(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | ctypes.Structure) -> Callable[[], None]:
    """`call_kernel` with everything looked up and converted beforehand, for a process that has just been forked: each
    page of memory that it touches is copied."""
    words = (ctypes.c_long(look_up_numbers(OURS + FOREIGN)[name]), *(_to_word(argument) for argument in arguments))
    return partial(_call_prepared, name, partial(_LIBC.syscall, *words))


def prepare_prctl(option: int, *arguments: int | ctypes.Structure) -> Callable[[], None]:
    words = [_to_word(argument) for argument in (*arguments, 0, 0, 0, 0)][:4]
    return partial(_call_prepared, "prctl", partial(_LIBC.prctl, ctypes.c_int(option), *words))


def _call_prepared(name: str, call: Callable[[], int]) -> None:
    check_result(name, call())


def check_result(name: str, result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def _to_word(argument: object) -> object:
    if isinstance(argument, int):
        return ctypes.c_ulong(argument)
    return ctypes.byref(argument) if isinstance(argument, ctypes.Structure) else argument


_LIBC = ctypes.CDLL(None, use_errno=True)
