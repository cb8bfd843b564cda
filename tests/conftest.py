"""What holds for every test: a run that can be repeated, on a machine that may be busy.

`--hypothesis-profile=explore` looks where nobody has looked before.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import HealthCheck, settings

from intercom.local import places
from intercom.masking.masker import KNOWN
from tests.support import server_forks
from tests.support.async_tests import SECONDS, anyio_backend, clock, pytest_pyfunc_call
from tests.support.figures import PROPERTY
from tests.support.task_tree import within

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.support.server_process import Home
    from tests.support.virtual_server import AgentClient, VirtualServer

settings.register_profile(
    "steady", max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# A runner in the background is started with interrupts ignored, and whatever a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["anyio_backend", "clock", "pytest_pyfunc_call"]

#: Where this run's temporary directories are; a key of the configuration, which workers have not.
_ROOT = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep `tmp_path` short: sockets live below it, and a socket's path has at most 107 bytes.

    `--basetemp` keeps what tests leave there.
    """
    # Elsewhere servers are started as users start them: by real clients, and under attack.
    server_forks.enabled = "test_*.py" in config.getini("python_files")
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.stash[_ROOT] = config.option.basetemp = tempfile.mkdtemp(prefix="ic-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _ROOT in config.stash:
        shutil.rmtree(config.stash[_ROOT], ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the garbage collector, which would go through all that was collected so far again and again, and
    leave what is there now out of its later rounds: it stays until the end."""
    gc.disable()
    _rewrite_own_share(session.config)
    result = yield
    gc.enable()
    gc.collect()
    gc.freeze()
    return result


def _rewrite_own_share(config: pytest.Config) -> None:
    """In a worker of a whole run, import its share of the test modules first.

    To rewrite the assertions of all takes fifteen seconds. Each worker collects the same modules in the same order, so
    on a fresh checkout each would rewrite all of them. Now each rewrites some, and finds the others in the cache.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted((config.rootpath / "tests").rglob("test_*.py"))
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        # What is wrong with a module is told when it is collected.
        with contextlib.suppress(Exception):
            importlib.import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty workspace."""
    made = tmp_path / "ws"
    made.mkdir()
    return made


@pytest.fixture
async def server(root: Path, clock: MockClock, request: pytest.FixtureRequest) -> AsyncIterator[VirtualServer]:
    """The whole server in this process; the mark `server` holds what else `virtual_server` is given."""
    # Not every test needs a server, and to load one takes a while.
    from tests.support.virtual_server import virtual_server

    mark = request.node.get_closest_marker("server")
    given, named = (mark.args, mark.kwargs) if mark else ((), {})
    with ExitStack() as deadline:
        # In real time, as the test's own: this clock stands still, so no limit of the server's passes by itself.
        deadline.enter_context(within(SECONDS))
        async with virtual_server(root.parent, clock, *given, **named) as made:
            deadline.close()
            # A server that gives up cancels the block it runs in. It must not cancel the runner that waits in it: the
            # failure comes up when the block ends.
            with trio.CancelScope(shield=True):
                yield made
            deadline.enter_context(within(SECONDS))


@pytest.fixture
async def agent(server: VirtualServer, root: Path) -> AgentClient:
    """An agent at work in `root`."""
    with within(SECONDS):
        return await server.arrive(root)


@pytest.fixture
def real_starts() -> Iterator[None]:
    """Servers are started as users' are, and not forked: for tests of just that."""
    with server_forks.real_starts():
        yield


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    """A user's directories in which nothing runs yet; the mark `home` holds the configuration."""
    with _user_home(request) as made:
        yield made


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Home]:
    """The same for all tests of a module, with a server that runs."""
    with _user_home(request) as made, made.serving():
        yield made


def _user_home(request: pytest.FixtureRequest) -> AbstractContextManager[Home]:
    from tests.support.server_process import user_home

    mark = request.node.get_closest_marker("home")
    return user_home(*mark.args if mark else ())


@pytest.fixture(autouse=True, scope="session")
def own_state_directory() -> Iterator[None]:
    """What a server in this process keeps beside its database goes to a directory of the run's, not to the user's."""
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(prefix="ic-state-") as made:
        os.environ["XDG_STATE_HOME"] = made
        # Nor do the user's own operator keys count here.
        places.STAND_IN_HOME = made
        yield
        places.STAND_IN_HOME = None
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(autouse=True)
def own_secrets() -> Iterator[None]:
    """Forgets the secrets that a test's servers have added. A process knows its secrets until it ends and compiles one
    pattern of them all: with the tokens of a thousand servers each new one would take a fifth of a second."""
    before = KNOWN._kinds, KNOWN._pattern
    yield
    KNOWN._kinds, KNOWN._pattern = before


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of long runs, which a worker has nowhere to print to."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, text in report.user_properties:
            if name == PROPERTY:
                terminalreporter.write_line(f"\n{text}")
