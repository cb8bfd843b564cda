"""What a background process keeps, and what it leaves behind."""

from __future__ import annotations

import json
import os
import sys

import pytest

from intercom.local.daemon import allowed, spawn


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        *((name, True) for name in ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_TIME", "TZ", "TMPDIR")),
        *((name, True) for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")),
        *((name, False) for name in ("HTTPS_PROXY", "https_proxy", "no_proxy", "ALL_PROXY")),
        *((name, False) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")),
        *((name, False) for name in ("INTERCOM_FAULT", "INTERCOM_ANYTHING", "GLIBC_TUNABLES")),
        *((name, False) for name in ("DBUS_SESSION_BUS_ADDRESS", "PYTHON_KEYRING_BACKEND")),
        *((name, False) for name in ("INTERCOM_SESSION_ID", "INTERCOM_WORKSPACE_ROOT")),
        *((name, False) for name in ("INTERCOM_MCP_URL", "INTERCOM_HTTP_TOKEN")),
        *((name, False) for name in ("SLACK_BOT_TOKEN", "SLACK_MEMBER_IDS", "INTERCOM_SLACK_API")),
        *((name, False) for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH")),
        *((name, False) for name in ("PYTHONSTARTUP", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "GIT_DIR", "PWD")),
        *((name, False) for name in ("SSL_KEYLOGFILE", "path", "EVIL_PROXY", "LCX", "XSLACK_TOKEN")),
    ],
)
def test_the_environment_is_an_allowlist(name: str, kept: bool) -> None:
    assert allowed({name: "value"}) == ({name: "value"} if kept else {})


def test_a_spawned_process_has_a_life_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_DEBUG_OUTPUT", "/nowhere")
    code = """
import json, os, sys
mask = os.umask(0)
fds = [int(each) for each in os.listdir('/dev/fd')]
opened = [fd for fd in fds if fd < 200 and os.path.exists(f'/dev/fd/{fd}')]
said = dict(cwd=os.getcwd(), mask=mask, session=os.getsid(0), group=os.getpgid(0), pid=os.getpid(), opened=opened,
            env='LD_DEBUG_OUTPUT' in os.environ, streams=[os.readlink(f'/dev/fd/{fd}') for fd in range(3)])
os.write(int(sys.argv[1]), json.dumps(said).encode())
"""
    hear, tell = os.pipe()
    extra, kept = os.open("/", os.O_RDONLY), os.open("/", os.O_RDONLY)
    os.set_inheritable(extra, True)
    try:
        spawn([sys.executable, "-c", code, str(tell)], environ=os.environ, keep=(kept, tell))
        os.close(tell)
        said = json.loads(_until_closed(hear))
    finally:
        os.close(hear)
        os.close(extra)
        os.close(kept)
    assert said["cwd"] == "/"
    assert said["mask"] == 0o077
    assert said["session"] != os.getsid(0)
    assert said["pid"] != said["session"], "not the leader, so that it can never get a terminal"
    assert said["env"] is False
    assert said["streams"] == [os.devnull] * 3
    assert {tell, kept} <= set(said["opened"]) <= {0, 1, 2, tell, kept}


def test_a_program_that_can_not_be_run_shows_as_a_closed_end() -> None:
    hear, tell = os.pipe()
    spawn(["/no/such/program"], environ={}, keep=[tell])
    os.close(tell)
    assert _until_closed(hear) == b""
    os.close(hear)


def _until_closed(descriptor: int) -> bytes:
    found = b""
    while data := os.read(descriptor, 65536):
        found += data
    return found
