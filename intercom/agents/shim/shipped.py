"""The shipped answers that need no server: the handshake and the lists.

They are used while no server is connected, so that a client's first turn has its tools. Anything unusual (a page of a
list, a malformed request, another protocol version) waits for the server.
"""

from __future__ import annotations

import json
import os
from typing import Any

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_KEY = "io.modelcontextprotocol/clientInfo"

_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "handshake.json")
_LISTS = ("tools/list", "resources/list", "resources/templates/list")

#: The results by protocol version and method.
Results = dict[str, dict[str, Any]]


def load(path: str = _FILE) -> Results:
    """Read the shipped results. Returns none if the package lacks them; every answer then waits for a server. Raises
    ValueError for a damaged file."""
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    return {version: found[version] for version in (HANDSHAKE_VERSIONS[-1], MODERN_VERSION) if version in found}


def answer(results: Results, method: str, params: object, *, greeted: bool) -> dict[str, Any] | None:
    """Answer a request from `results`, or return None to leave it to the server. `greeted` says that the connection
    began with the handshake (`initialize`) of older protocol versions."""
    if params is None:
        params = {}
    if not isinstance(params, dict):
        return None
    meta = params.get("_meta", {})
    if not isinstance(meta, dict):
        return None
    if VERSION_KEY in meta:
        return None if greeted else _modern(results, method, params, meta)
    if method == "initialize":
        return _initialize(results, params)
    if not greeted:
        return None
    if method == "ping":
        return {}
    if method in _LISTS and params.get("cursor") is None:
        return results.get(HANDSHAKE_VERSIONS[-1], {}).get(method)
    return None


def _initialize(results: Results, params: dict[str, Any]) -> dict[str, Any] | None:
    shipped: dict[str, Any] | None = results.get(HANDSHAKE_VERSIONS[-1], {}).get("initialize")
    version = params.get("protocolVersion")
    if shipped is None or not isinstance(version, str) or not isinstance(params.get("capabilities"), dict):
        return None
    if not _names_a_program(params.get("clientInfo")):
        return None
    agreed = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    answer = {**shipped, "protocolVersion": agreed}
    if agreed != HANDSHAKE_VERSIONS[-1] and "capabilities" in shipped:
        # Only the newest handshake version has tasks.
        answer["capabilities"] = {key: value for key, value in shipped["capabilities"].items() if key != "tasks"}
    return answer


def _modern(results: Results, method: str, params: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any] | None:
    if meta[VERSION_KEY] != MODERN_VERSION or not isinstance(meta.get(_CAPABILITIES_KEY), dict):
        return None
    if meta.get(_CLIENT_KEY) is not None and not _names_a_program(meta[_CLIENT_KEY]):
        return None
    if method == "server/discover" or (method in _LISTS and params.get("cursor") is None):
        return results.get(MODERN_VERSION, {}).get(method)
    return None


def _names_a_program(info: object) -> bool:
    return isinstance(info, dict) and isinstance(info.get("name"), str) and isinstance(info.get("version"), str)
