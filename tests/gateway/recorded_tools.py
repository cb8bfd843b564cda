"""The lists of tools of real downstreams, as recorded, and queries that agents would write for them.

Recorded on 2026-11-25 at protocol version 2025-11-25 from the npm packages @modelcontextprotocol/server-everything
2026.8.31, server-filesystem 2026.8.31, server-memory 2026.8.31, @playwright/mcp 0.0.83, and the PyPI packages
mcp-server-fetch 2026.10.24, mcp-server-git 2026.10.19, mcp-server-time 2026.10.19. Only the fields of tools that agents
get are kept.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final

from intercom.gateway.catalog import Catalog, catalog_of
from intercom.model.json_types import JsonObject

DATA: Final = Path(__file__).parent / "data" / "recorded_tools.json"

#: 40 queries, and the tools of which one must be found. Written before the search was tuned.
QUERIES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("read the contents of a text file", ("filesystem__read_text_file",)),
    ("readMultipleFiles", ("filesystem__read_multiple_files",)),
    ("load an image as base64", ("filesystem__read_media_file",)),
    ("overwrite a file with new content", ("filesystem__write_file",)),
    ("replace lines in a file", ("filesystem__edit_file",)),
    ("make a new folder", ("filesystem__create_directory",)),
    ("rename a file", ("filesystem__move_file",)),
    ("find files by glob pattern", ("filesystem__search_files",)),
    ("file size and modification date", ("filesystem__get_file_info",)),
    ("which directories may I access", ("filesystem__list_allowed_directories",)),
    ("list files in a directory", ("filesystem__list_directory",)),
    ("create_entities", ("memory__create_entities",)),
    ("remember a fact about a person", ("memory__add_observations", "memory__create_entities")),
    ("remove relations from knowledge graph", ("memory__delete_relations",)),
    ("show the whole knowledge graph", ("memory__read_graph",)),
    ("connect two entities", ("memory__create_relations",)),
    ("forget an entity", ("memory__delete_entities",)),
    ("take a screenshot of the page", ("playwright__browser_take_screenshot",)),
    ("click a button on a web page", ("playwright__browser_click",)),
    ("open a url in the browser", ("playwright__browser_navigate",)),
    ("fill in a form", ("playwright__browser_fill_form",)),
    ("run javascript in the page", ("playwright__browser_evaluate",)),
    ("wait until text appears", ("playwright__browser_wait_for",)),
    ("console errors", ("playwright__browser_console_messages",)),
    ("http requests made by the page", ("playwright__browser_network_requests",)),
    ("dark mode", ("playwright__browser_emulate_media",)),
    ("choose a value from a dropdown", ("playwright__browser_select_option",)),
    ("close the tab", ("playwright__browser_tabs",)),
    ("uncommitted changes", ("git__git_diff_unstaged", "git__git_diff_staged", "git__git_status")),
    ("history of commits", ("git__git_log",)),
    ("stage files for commit", ("git__git_add",)),
    ("create a new branch", ("git__git_create_branch",)),
    ("switch to another branch", ("git__git_checkout",)),
    ("unstage changes", ("git__git_reset",)),
    ("what time is it in Tokyo", ("time__get_current_time",)),
    ("convert between time zones", ("time__convert_time",)),
    ("download a web page as markdown", ("fetch__fetch",)),
    ("add two numbers", ("everything__get-sum",)),
    ("environment variables", ("everything__get-env",)),
    ("compress a file", ("everything__gzip-file-as-resource",)),
)

#: The same, written after the search was tuned and not used for that.
HELD_OUT: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("get info about a file", ("filesystem__get_file_info",)),
    ("read all files at once", ("filesystem__read_multiple_files",)),
    ("hover the mouse over an element", ("playwright__browser_hover",)),
    ("press Enter key", ("playwright__browser_press_key",)),
    ("type text into an input", ("playwright__browser_type",)),
    ("drag and drop", ("playwright__browser_drag", "playwright__browser_drop")),
    ("upload file", ("playwright__browser_file_upload",)),
    ("resize window", ("playwright__browser_resize",)),
    ("accept a dialog", ("playwright__browser_handle_dialog",)),
    ("page snapshot", ("playwright__browser_snapshot",)),
    ("go back in browser history", ("playwright__browser_navigate_back",)),
    ("diff between branches", ("git__git_diff",)),
    ("show a commit", ("git__git_show",)),
    ("list branches", ("git__git_branch",)),
    ("working tree status", ("git__git_status",)),
    ("commit staged changes", ("git__git_commit",)),
    ("time in another timezone", ("time__get_current_time", "time__convert_time")),
    ("echo a message", ("everything__echo",)),
    ("add observations to an entity", ("memory__add_observations",)),
    ("open nodes by name", ("memory__open_nodes",)),
)


@cache
def recorded() -> dict[str, JsonObject]:
    """Return what was recorded of each downstream: `server`, `instructions` (the first line) and `tools`."""
    found: dict[str, JsonObject] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


@cache
def recorded_catalog() -> Catalog:
    """Return the catalog of all recorded tools."""
    tools = {name: each["tools"] for name, each in recorded().items()}
    return catalog_of(tools)  # type: ignore[arg-type]
