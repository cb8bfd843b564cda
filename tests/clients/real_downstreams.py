"""The MCP project's own servers, and Playwright's, behind the gateway of a real server."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from attrs import field, frozen

from tests.clients import npm, pypi
from tests.support.person_shell import the_person
from tests.support.server_process import CTL, TRUSTING, Home, user_home

CONFIG = f"http_port = 0\n{TRUSTING}\n[gateway]\nenabled = true\n"
#: Agents may do everything; a person is asked before a file is moved.
ROLES: Mapping[str, Any] = {
    "roles": [{"role": "all", "capabilities": ["*.*"], "ask": ["files.move_file"]}],
    "defaultRole": "all",
}
#: How long all downstreams may take to start on a busy machine (seconds).
START_SECONDS = 180
PAGE = "<html><head><title>A page</title></head><body><h1>Of this test</h1></body></html>"
PERSON = ("-c", "user.name=Kim", "-c", "user.email=kim@example.org")


@frozen
class Pages:
    """A web server on the loopback with one page; `asked` are the paths that were asked for."""

    url: str
    asked: list[str] = field(factory=list)


@frozen
class RealDownstreams:
    """A user's directories with the downstreams. What they work on is on this machine: the test can look."""

    home: Home
    pages: Pages

    @property
    def files(self) -> Path:
        """The directory of the downstream `files`."""
        return self.home.root / "files"

    @property
    def repository(self) -> Path:
        """The repository of the downstream `git`, with one commit."""
        return self.home.root / "repository"

    @property
    def memory(self) -> Path:
        """The file of the downstream `memory`."""
        return self.home.root / "memory.jsonl"

    def git(self, *words: str) -> str:
        """Run git in the repository, and return what it prints."""
        command = ["git", *PERSON, *words]
        done = subprocess.run(command, cwd=self.repository, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commands(self) -> dict[str, list[str]]:
        """The command of each downstream."""
        return {
            "everything": _node("mcp-server-everything"),
            "files": [*_node("mcp-server-filesystem"), str(self.files)],
            "memory": _node("mcp-server-memory"),
            "playwright": [*_node("playwright-mcp"), "--headless", "--isolated"],
            "fetch": [pypi.program("mcp-server-fetch"), "--allow-private-ips"],
            "git": [pypi.program("mcp-server-git"), "--repository", str(self.repository)],
            "time": [pypi.program("mcp-server-time"), "--local-timezone", "Europe/Berlin"],
        }

    def configure(self) -> None:
        """Write the files of all downstreams, and the roles."""
        directory = Path(self.home.places.gateway_directory)
        directory.mkdir(parents=True)
        for name, (command, *args) in self.commands().items():
            settings = {
                "name": name,
                "transport": "stdio",
                "command": command,
                "args": args,
                "env": {"MEMORY_FILE_PATH": str(self.memory)},
                "capabilities": [f"{name}.*"],
                "startupTimeout": "120s",
                "schemaVersion": "1.0.0",
            }
            (directory / f"{name}.json").write_text(json.dumps(settings))
        (directory / "roles.json").write_text(json.dumps(ROLES))

    def wait_until_ready(self) -> None:
        """Wait until all downstreams are connected, and their tools known."""
        until = time.monotonic() + START_SECONDS
        while True:
            done = the_person().run([*CTL, "gateway", "list"], self.home.environ)
            listed = json.loads(done.stdout)["downstreams"] if done.returncode == 0 else []
            if listed and all(each["status"] == "ready" and each["tools"] for each in listed):
                return
            assert time.monotonic() < until, f"the downstreams do not start: {done.stdout} {done.stderr}"
            time.sleep(0.2)


def _node(package_command: str) -> list[str]:
    return [npm.program("node"), npm.program(package_command)]


@contextmanager
def real_downstreams() -> Iterator[RealDownstreams]:
    """A server with all downstreams connected."""
    with user_home(CONFIG) as home, pages() as found:
        made = RealDownstreams(home, found)
        made.files.mkdir()
        made.repository.mkdir()
        made.git("init", "--quiet", "--initial-branch", "main")
        (made.repository / "a.txt").write_text("a\n")
        made.git("add", "a.txt")
        made.git("commit", "--quiet", "--message", "The first commit")
        made.configure()
        with home.serving():
            made.wait_until_ready()
            yield made


@contextmanager
def pages() -> Iterator[Pages]:
    """The web server, for as long as this lasts."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            has_page = self.path == "/page"
            body = PAGE.encode() if has_page else b""
            self.send_response(200 if has_page else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Pages(f"http://127.0.0.1:{server.server_address[1]}", asked)
        finally:
            server.shutdown()
            thread.join()
