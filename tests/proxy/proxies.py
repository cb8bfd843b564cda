"""The two web servers, each with its example as it stands in the docs but for ports and the certificate's place."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.generated import ROOT

NAME = "intercom.example.com"
_NGINX = """\
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log info;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
{example}
}}
"""


def nginx(directory: Path, port: int, behind: int, chain: Path, private: Path) -> list[str]:
    """Write nginx' configuration; the command that runs it."""
    example = _changed(
        "nginx.conf",
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("/etc/ssl/intercom/fullchain.pem", str(chain)),
        ("/etc/ssl/intercom/privkey.pem", str(private)),
        ("http://127.0.0.1:3000", f"http://127.0.0.1:{behind}"),
    )
    file = directory / "nginx.conf"
    file.write_text(_NGINX.format(directory=directory, example=example))
    return ["nginx", "-c", str(file), "-p", str(directory), "-e", str(directory / "nginx.log")]


def caddy(directory: Path, port: int, behind: int, chain: Path, private: Path) -> list[str]:
    """Write Caddy's configuration; the command that runs it."""
    example = _changed(
        "Caddyfile",
        (f"{NAME} {{", f"https://{NAME}:{port} {{\n\tbind 127.0.0.1\n\ttls {chain} {private}"),
        ("127.0.0.1:3000", f"127.0.0.1:{behind}"),
    )
    file = directory / "Caddyfile"
    file.write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{example}")
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


PROXIES: dict[str, Callable[[Path, int, int, Path, Path], list[str]]] = {"nginx": nginx, "caddy": caddy}


@contextmanager
def running(command: list[str], directory: Path) -> Iterator[None]:
    """The web server, until this is left."""
    environ = {"HOME": str(directory), "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/bin"}
    with (directory / "proxy.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        try:
            yield
            assert process.poll() is None, (directory / "proxy.log").read_text()
        finally:
            process.terminate()
            process.wait(10)


def _changed(name: str, *changes: tuple[str, str]) -> str:
    text = (ROOT / "examples/proxy" / name).read_text()
    for before, after in changes:
        assert text.count(before) == 1, f"{name} has {before!r} {text.count(before)} times"
        text = text.replace(before, after)
    return text
