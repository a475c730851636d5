"""What a program leaves: the next one in the same jail finds everything as the first one in a new jail does."""

import hashlib
from collections.abc import Iterator

import pytest

from tests.support.jailed import GUARDS, STRENGTHS, Jails, jails

LEAVES = """
import atexit, builtins, contextlib, ctypes, decimal, gc, json, locale, math, os, random, resource, signal, sys
import tempfile, threading, time, types, warnings

DEEDS = '''
open('left', 'w').write('left'); os.mkdir('folder'); os.rename('left', 'folder/left')
open('removed', 'w').close(); os.unlink('removed')
tempfile.TemporaryFile().write(b'left')
open('/tmp/left', 'w').write('left')
open('/dev/shm/left', 'w').write('left')
open('/left', 'w').write('left')
ctypes.CDLL(None).shmget(4711, 4096, 0o1666)
ctypes.CDLL(None).semget(4711, 1, 0o1666)
ctypes.CDLL(None).msgget(4711, 0o1666)
os.environ['LEFT'] = 'left'
ctypes.CDLL(None).setenv(b'LEFT', b'left', 1)
sys.modules['left'] = types.ModuleType('left'); sys.path.insert(0, '/work'); sys.meta_path.clear()
builtins.abs = lambda thing: 4711
builtins.left = json.dumps = math.floor = 'left'
sys.setrecursionlimit(4711); sys.setswitchinterval(1.5); sys.settrace(lambda *_: None); sys.argv.append('left')
threading.Thread(target=time.sleep, args=(600,)).start()
os.fork() or time.sleep(600)
atexit.register(lambda: open('left', 'w'))
[os.dup(0) for _ in range(20)]
os.dup2(0, 40)
os.chdir('/')
os.umask(0)
resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
[signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
signal.alarm(600)
random.seed(4711)
decimal.getcontext().prec = 3; decimal.DefaultContext.prec = 3
warnings.simplefilter('error'); gc.disable(); gc.set_threshold(1); locale.setlocale(locale.LC_ALL, 'C')
os.nice(5)
'''

def f():
    done = 0
    for deed in DEEDS.strip().splitlines():
        try: exec(deed, globals()); done += 1
        except (OSError, RuntimeError, ValueError): pass
    return done > 10
"""
LOOKS = """
import atexit, builtins, ctypes, decimal, gc, json, locale, math, os, resource, signal, sys, threading, warnings

def attempt(deed, *arguments):
    try: return deed(*arguments)
    except OSError as error: return type(error).__name__

def is_open(number):
    try: return bool(os.fstat(number))
    except OSError: return False

def f():
    libc = ctypes.CDLL(None)
    here = os.stat('.')
    return {
        'files': [attempt(os.listdir, place) for place in ('.', '/work', '/tmp', '/dev/shm')],
        'room': [here.st_mode, here.st_nlink, here.st_uid, os.getcwd()] if os.getcwd() == '/work' else os.getcwd(),
        'ipc': [libc.shmget(4711, 0, 0), libc.semget(4711, 0, 0), libc.msgget(4711, 0)],
        'environment': [sorted(os.environ), libc.getenv(b'LEFT')],
        'modules': [sorted(sys.modules), sys.path, len(sys.meta_path), sys.argv],
        'builtins': [sorted(vars(builtins)), builtins.abs(-1), callable(json.dumps), callable(math.floor)],
        'interpreter': [sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace() is None, atexit._ncallbacks()],
        'threads': [threading.active_count(), os.getpid() if os.getcwd() == '/work' else None],
        'children': attempt(os.waitpid, -1, os.WNOHANG),
        'descriptors': [number for number in range(64) if is_open(number)],
        'umask': os.umask(0),
        'limits': [resource.getrlimit(what) for what in range(16)],
        'signals': [str(signal.getsignal(number)) for number in (1, 2, 10, 14, 15, 17)],
        'masks': [sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), signal.alarm(0)],
        'numbers': [decimal.getcontext().prec, decimal.DefaultContext.prec, hash('left'), locale.setlocale(0)],
        'rest': [[str(one) for one in warnings.filters], gc.isenabled(), gc.get_threshold()],
    }
"""


@pytest.mark.parametrize("strength", GUARDS)
def test_the_next_program_finds_what_the_first_one_in_a_new_jail_finds(strength: str) -> None:
    with jails(strength) as jailed:
        first, did, second = jailed.said(LOOKS), jailed.said(LEAVES), jailed.said(LOOKS)
        process = jailed.programs.ids
    assert (did, second, len(process)) == (True, first, 1)


def test_without_seccomp_objects_of_system_v_are_not_passed_on_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRENGTHS, "no seccomp", (("user",), ("landlock",)))
    with jails("no seccomp") as weaker:
        made = weaker.said("import ctypes\ndef f(): return ctypes.CDLL(None).shmget(4711, 4096, 0o1666) >= 0")
        found = weaker.said("import ctypes\ndef f(): return ctypes.CDLL(None).shmget(4711, 0, 0) >= 0")
    assert (made, found) == (True, False)


@pytest.fixture(scope="module", params=GUARDS)
def jailed(request: pytest.FixtureRequest) -> Iterator[Jails]:
    with jails(request.param) as made:
        yield made


DRAWS = """
import random, secrets, uuid
def f(): return [random.random(), random.Random().random(), secrets.token_hex(8), str(uuid.uuid4())]
"""


def test_what_one_draws_tells_nothing_of_what_the_next_draws(jailed: Jails) -> None:
    drawn = [jailed.said(DRAWS) for _ in range(5)]
    values = [value for one in drawn if isinstance(one, list) for value in one]
    assert (len(values), len(set(map(str, values)))) == (20, 20)


def test_texts_hash_alike_in_every_program(jailed: Jails) -> None:
    """As with a fixed seed in an interpreter of their own: the order of a set is that of the run before."""
    seen = [jailed.said("def f(): return [hash('a text'), list({'a', 'b', 'c', 'd', 'e'})]") for _ in range(2)]
    assert seen[0] == seen[1]


READS_MEMORY = """
import ctypes, hashlib
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
PAGE, SPAN = 4096, 48 << 20
def pages():
    buffers = [ctypes.create_string_buffer(size) for size in (100, 9_000, 5_000_000)]
    for middle in (id(object()), libc.sbrk(0), *map(ctypes.addressof, buffers)):
        for address in range((middle - SPAN) // PAGE * PAGE, middle + SPAN, PAGE):
            if libc.access(ctypes.c_void_p(address), 0) == 0 or ctypes.get_errno() != 14:
                yield address
def f(digest, *rest):
    global libc
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    found = 0
    for address in pages():
        page = ctypes.string_at(address, PAGE)
        place = page.find(b'left-')
        while place >= 0:
            found += hashlib.sha256(page[place : place + 21]).hexdigest() == digest
            place = page.find(b'left-', place + 1)
    return found > 0
"""
LEFT = "left-0123456789abcdef"
DIGEST = hashlib.sha256(LEFT.encode("ascii")).hexdigest()


def test_memory_holds_nothing_of_another_program_and_of_a_later_call(jailed: Jails) -> None:
    """A program that reads all of its memory finds the argument that it was given, and no other."""
    before = jailed.said(READS_MEMORY, DIGEST, LEFT)
    later = jailed.run(READS_MEMORY, (DIGEST,), (DIGEST, LEFT))
    after = jailed.said(READS_MEMORY, DIGEST)
    assert (before, [one.value for one in later.returned], after) == (True, [False, True], False)
