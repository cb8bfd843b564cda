"""Build the bundles into dist/bundles, and let each client's own tool check them: `tox -e bundles`.

    python -m tests.bundles [--namespace io.github.NAME] [--release URL] [--only-build]

`--release` is the address of the directory where the .mcpb is published; server.json then names it with its SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from intercom._version import __version__
from intercom.agents.clients.client import SERVER_NAME
from tests.bundles import contents
from tests.clients import npm

OUT = contents.ROOT / "dist" / "bundles"
TOOLS = "INTERCOM_BUNDLE_TOOLS"
PACKAGES = Path(__file__).with_name("package.json")
ARCHIVE = "agent-intercom.mcpb"
#: The longest that one check may take, in seconds. The last one installs the package several times.
SECONDS = 2400

Run = Callable[[Sequence[str | Path]], str]


def build(out: Path, namespace: str, release: str | None) -> None:
    """Write all bundles into this directory, in place of what was there."""
    shutil.rmtree(out, ignore_errors=True)
    packed = contents.archive(contents.mcpb_files())
    digest = hashlib.sha256(packed).hexdigest()
    published = None if release is None else (f"{release.rstrip('/')}/{ARCHIVE}", digest)
    server = contents.text(contents.server_json(namespace, published))
    links = f"{contents.vscode_link()}\n{contents.cursor_link()}\n".encode()
    _write(out, {ARCHIVE: packed, "registry/server.json": server, "links.txt": links})
    _write(out / "claude-code", contents.plugin_files())
    _write(out / "gemini-cli", contents.extension_files())


def _write(where: Path, files: contents.Files) -> None:
    for name, data in files.items():
        file = where / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def check(out: Path, tools: Path) -> None:
    """Check the bundles in this directory. Raises CalledProcessError for the first one that its tool refuses, and
    AssertionError for one that does not start."""
    npm.install(tools, PACKAGES)
    with tempfile.TemporaryDirectory() as home:
        run: Run = partial(_run, home=home)
        programs = tools / "node_modules" / ".bin"
        unpacked = Path(home) / "unpacked"
        run([programs / "mcpb", "unpack", out / ARCHIVE, unpacked])
        run([programs / "mcpb", "validate", unpacked / "manifest.json"])
        run([programs / "claude", "plugin", "validate", "--strict", out / "claude-code"])
        run([programs / "claude", "plugin", "validate", "--strict", out / "claude-code" / SERVER_NAME])
        run([programs / "gemini", "extensions", "validate", out / "gemini-cli"])
        # It has the registry's schemas in it.
        run(["skillsaw", "lint", "--strict", out / "registry"])
        said = run(["uv", "tool", "run", "--from", unpacked, SERVER_NAME, "--version"])
        assert __version__ in said, f"the bundle did not say its version, but: {said}"
        _check_installed(run, Path(home))
        run([sys.executable, "-m", "pytest", "-q", "-o", "python_files=run_*.py", contents.ROOT / "tests/bundles"])


def _check_installed(run: Run, home: Path) -> None:
    """Check that a clone is installed as the README says, by either program: both of our commands are there then."""
    clone = home / "clone"
    shutil.copytree(contents.ROOT, clone, ignore=lambda where, names: {each for each in names if _is_no_source(each)})
    for words in (("uv", "tool", "install"), ("pipx", "install")):
        run([*words, clone])
        for program in (SERVER_NAME, f"{SERVER_NAME}-ctl"):
            # Where both put them: README says so.
            said = run([home / ".local/bin" / program, "--version"])
            assert said == f"{program} {__version__}\n", f"{' '.join(words)}: {program} said: {said}"
        run([*words[:-1], "uninstall", contents.metadata()["name"]])


def _is_no_source(name: str) -> bool:
    return name in ("node_modules", "dist", "build", "site") or (name.startswith(".") and name != ".ci")


def _run(command: Sequence[str | Path], home: str) -> str:
    """Run a command in a home directory of its own. Returns what it printed, and prints that if it fails."""
    print("$", *command, flush=True)
    environ = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": f"{home}/config"}
    # These say where uv and pipx put what they install.
    environ = {name: value for name, value in environ.items() if not name.startswith(("UV_TOOL_", "PIPX_", "XDG_DATA"))}
    done = subprocess.run(
        command,
        cwd=home,
        env=environ,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout)
    done.check_returncode()
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bundles")
    parser.add_argument("--namespace", default=contents.NAMESPACE, help="the namespace in the MCP registry")
    parser.add_argument("--release", metavar="URL", help="where the .mcpb is published")
    parser.add_argument("--only-build", action="store_true", help="build, and check nothing")
    options = parser.parse_args()
    if options.release and (fault := contents.fault_of_release(options.namespace)) is not None:
        parser.error(fault)
    build(OUT, options.namespace, options.release)
    if not options.only_build:
        if TOOLS not in os.environ:
            sys.exit(f"{TOOLS} is not set: run this with tox -e bundles, or with --only-build")
        check(OUT, Path(os.environ[TOOLS]))
    print(f"the bundles are in {OUT}")


if __name__ == "__main__":
    try:
        main()
    except npm.Missing as fault:
        sys.exit(str(fault))
