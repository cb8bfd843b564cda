"""agent-intercom for tests: `python program_with_faults.py [--home DIR] [--fault WISH] ...`.

DIR is the user's home as the system has it, which no environment says. Without it, the environment of the process is
the user's: its HOME is that home, and the directories that it names are the user's own.

What `--fault` or INTERCOM_FAULT asks for happens to the servers that it runs, and to those that its relays start. Run
as a program: a server that a relay starts is isolated, and knows of nothing but its command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(words: list[str]) -> int:
    if sys.path[0] == str(Path(__file__).resolve().parent):
        del sys.path[0]
    sys.path.insert(0, str(ROOT))
    from intercom.agents.shim import launch
    from intercom.cli import main as program
    from intercom.local import daemon, own_files, places

    if "INTERCOM_TEST_FORKS" in os.environ:
        daemon.spawn = _fork
    wish = os.environ.pop("INTERCOM_FAULT", "")
    if words[:1] == ["--home"]:
        places.STAND_IN_HOME, words = words[1], words[2:]
    else:
        places.STAND_IN_HOME = os.environ["HOME"]
        if "hook" not in words[:1]:
            where = places.places()
            own_files.record_directories(os.path.dirname(where.config_file), where.state_dir)
    if words[:1] == ["--fault"]:
        wish, words = words[1], words[2:]
    if words[:1] == ["init"] and (commands := Path(places.STAND_IN_HOME, "bin")).is_dir():
        from intercom.cli import init_clients

        # Clients find these, and no installed ones, which would take another home for the user's.
        init_clients.installed = lambda name: str(commands / name)
        init_clients.is_on_path = lambda name: True
    own = str(Path(__file__).resolve())
    launch.SERVER = (sys.executable, *launch.ISOLATED, own, "--home", places.STAND_IN_HOME, "--fault", wish, "serve")
    if words[:1] == ["serve"]:
        _install(wish)
    return program.main(words)


def _fork(command: Sequence[str], *, environ: Mapping[str, str], keep: Sequence[int]) -> None:
    # Only for a relay that starts a server.
    from tests.support import server_forks

    server_forks.spawn(command, environ=environ, keep=keep)


def _install(wish: str) -> None:
    from intercom.cli.main import load_server
    from tests.support import faults

    serve = load_server()
    build = serve.make_app

    def build_with_faults(*arguments: object, **options: object) -> object:
        app = build(*arguments, **options)  # type: ignore[arg-type]
        faults.arm(app.system, wish)
        return app

    serve.make_app = build_with_faults


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
