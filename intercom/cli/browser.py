"""The person's browser: whether one can be opened from this terminal, and what is opened in it.

`agent-intercom-ctl web` opens the page with a link that signs in the first browser that opens it. So no command line
may show the link, because every process of the machine could read it there. The browser opens a private file instead.
The server has written it, it leads to the link, and the server removes it once the link is too old.
"""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from intercom.cli.ctl_text import clean
from intercom.local.places import Places
from intercom.model.json_types import JsonObject
from intercom.operators.ctl.client import request

#: How long a link is good, in seconds, as the server says in its documentation.
_SECONDS = 60
#: Browsers in a terminal: they would take over this one, and run no scripts, so they cannot show the page.
_IN_TERMINAL = frozenset({"www-browser", "links", "elinks", "lynx", "w3m"})


def has_screen(environ: Mapping[str, str], platform: str) -> bool:
    """Return whether a browser that is opened here would be on the person's screen. BROWSER says so itself: editors set
    it on remote machines."""
    if environ.get("BROWSER"):
        return True
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return False
    return platform in ("darwin", "win32") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def open_in_browser(address: str) -> str | None:
    """Open an address in the person's browser. Returns None if a browser took it, otherwise why none did. Some browsers
    return only when they are closed."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return "no browser was found on this machine (the variable BROWSER can name one)"
    if os.path.basename(getattr(browser, "name", "")) in _IN_TERMINAL:
        return "the only browser that was found is one in a terminal, which cannot show the page"
    try:
        is_open = browser.open(address)
    except (OSError, webbrowser.Error):
        is_open = False
    return None if is_open else "the browser could not be started"


def web(where: Places, fields: JsonObject, *, prints: bool, as_json: bool) -> int:
    """Carry out ctl's `web`: open the page, or print its link, with `prints` or if the link is for somebody else. The
    link is then alone on standard output, and what to do with it on standard error. Returns 0. Raises what `request`
    raises."""
    prints = prints or "name" in fields
    opens = not prints and not as_json
    link = request(where, "web", {**fields, "format": "file"} if opens else fields)
    if as_json:
        print(json.dumps(link))
        return 0
    url = clean(str(link["url"]))
    if prints:
        print(url)
        print(f"open it within {_SECONDS} s; it signs in one browser, once", file=sys.stderr)
        return 0
    if has_screen(os.environ, sys.platform):
        why = open_in_browser(Path(str(link["file"])).as_uri())
    else:
        why = "a browser that is opened from this terminal would not be on your screen"
    if why is None:
        print("the page is opened in your browser; if nothing appears: agent-intercom-ctl web --print")
        return 0
    print(f"{why}; open this link within {_SECONDS} s, in a browser on this machine, once:", file=sys.stderr)
    print(url)
    print(f"from another machine, first: {_tunnel(url)}", file=sys.stderr)
    return 0


def _tunnel(url: str) -> str:
    """Return the command that makes this machine's port reachable at the same address of another machine."""
    port = url.partition("//")[2].partition("/")[0].rpartition(":")[2]
    return f"ssh -L {port}:127.0.0.1:{port} THIS_MACHINE"
