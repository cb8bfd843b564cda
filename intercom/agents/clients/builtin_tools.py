"""What the clients' own built-in tools do, by their names; and the patch format of `apply_patch`.

One table serves all clients because they differ more in spelling than in kind. Unknown tools are of kind `other`, about
which a person is asked, so no new tool passes unnoticed.

It must be read as the client does. So only a line feed ends a line. A patch that clients might read differently is not
parsed, and a person sees all of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache

from intercom.agents.clients.client import (
    COMMAND,
    FETCH,
    INNER,
    MCP,
    OTHER,
    OWN,
    READ,
    SERVER_NAME,
    WRITE,
    Contradiction,
    Operation,
    canonical,
    one,
    one_text,
    rows,
    text,
)
from intercom.model.json_types import JsonObject

_BEGIN, _END, _LAST = "*** Begin Patch", "*** End Patch", "*** End of File"
_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
#: A patch may be wrapped in a shell heredoc.
_HEREDOC = ("<<EOF", "<<'EOF'", '<<"EOF"')


def touches(patch: str) -> tuple[JsonObject, ...]:
    """Return the files that a patch touches; empty if a line does not match the grammar, or there is no file."""
    lines = [line.removesuffix("\r") for line in patch.strip().split("\n")]
    if lines[0] in _HEREDOC and lines[-1] == "EOF":
        lines = lines[1:-1]
    if len(lines) < 2 or (lines[0].strip(), lines[-1].strip()) != (_BEGIN, _END):
        return ()
    found: list[_Touch] = []
    for line in lines[1:-1]:
        if _is_header(line):
            begun = _begun(line)
            if begun is None:
                return ()
            found.append(begun)
        elif not found or not found[-1].takes(line):
            return ()
    return tuple(touch.as_json() for touch in found)


class _Touch:
    """One file of the patch while its lines are read."""

    def __init__(self, mark: str, path: str) -> None:
        self._mark, self._path, self._target = mark, path, ""
        self._lines: list[str] = []

    def takes(self, line: str) -> bool:
        """Add a line. Returns False if it does not belong here."""
        if self._mark == _DELETE:
            return False
        if self._mark == _ADD:
            # Every line of a new file begins with a plus.
            self._lines.append(line[1:])
            return line.startswith("+")
        if line.startswith(_MOVE):
            begins = not self._lines and not self._target
            self._target = line.removeprefix(_MOVE)
            return begins and _is_plain(self._target)
        if line == _LAST:
            return True
        self._lines.append(line)
        if line.startswith(" "):
            return not line.strip().startswith((_MOVE.rstrip(), _BEGIN, _END))
        return line == "" or line.startswith(("+", "-", "@@"))

    def as_json(self) -> JsonObject:
        text = "".join(f"{line}\n" for line in self._lines)
        match self._mark:
            case "*** Delete File: ":
                return {"path": self._path, "delete": True}
            case "*** Add File: ":
                return {"path": self._path, "delete": False, "content": text}
        moved = {"move_to": self._target} if self._target else {}
        return {"path": self._path, "delete": False, **moved, "diff": text}


def _is_header(line: str) -> bool:
    """Whether some client could read this as a header: not all require it at the beginning of the line."""
    return line.strip().startswith((_ADD.rstrip(), _UPDATE.rstrip(), _DELETE.rstrip()))


def _begun(line: str) -> _Touch | None:
    """Return the file that begins with this header; None if that is not certain."""
    for mark in (_ADD, _UPDATE, _DELETE):
        path = line.removeprefix(mark)
        if path != line and _is_plain(path):
            return _Touch(mark, path)
    return None


def _is_plain(path: str) -> bool:
    """Whether every client reads this name alike: clients differ in what white space and line ends are."""
    return path != "" and path == path.strip() and path.isprintable()


#: What the shim answers by itself. It lists our server's tools, so their names need no second list here.
_SHIPPED_ANSWERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "handshake_and_lists.json")
#: The names that it does not list: the older ones, and the tool that Claude Code asks for permissions.
_UNLISTED = frozenset({
    "permission_prompt",
    "ask_approval", "accept_diff", "check_auto_approve", "forward_prompt", "remote_log", "recover_state",
    "set_operational_mode", "wait_for_instruction", "heartbeat",
})  # fmt: skip
#: How clients name our server. Codex replaces special characters in a server's name with underscores.
_OUR_PREFIXES = (
    f"mcp__{SERVER_NAME}__",
    f"mcp__{SERVER_NAME.replace('-', '_')}__",
    f"{SERVER_NAME}-",
    f"{SERVER_NAME}/",
)

_COMMANDS = frozenset({
    "bash", "shell", "powershell", "exec_command", "local_shell", "run_terminal_cmd", "run_in_terminal", "terminal",
    "unified_exec", "shell_command", "container.exec", "monitor",
})  # fmt: skip
_TYPED = frozenset({"write_bash", "write_powershell", "write_stdin"})
#: The arguments besides the text: the id of the running command, and how long to read its output.
_RUNNING = ("session_id", "sessionId", "shell_id", "shellId")
_LOOKING = frozenset({"yield_time_ms", "max_output_tokens", "delay"})
_READS = frozenset({
    "read", "glob", "grep", "ls", "view", "notebookread", "read_file", "list_dir", "list_directory", "list_files", "rg",
    "grep_search", "file_search", "search_files", "glob_file_search", "codebase_search", "semantic_search", "semsearch",
    "readlints", "read_lints", "view_image", "lsp", "readmcpresourcetool", "listmcpresourcestool", "list_mcp_resources",
    "list_mcp_resource_templates", "read_mcp_resource", "fetch_rules",
})  # fmt: skip
_FETCHES = frozenset({"webfetch", "websearch", "web_fetch", "web_search", "fetch", "fetch_webpage", "browser"})
_INNER = frozenset({
    "todowrite", "todoread", "task", "agent", "taskcreate", "taskupdate", "tasklist", "taskget", "taskoutput",
    "taskstop", "exitplanmode", "enterplanmode", "askuserquestion", "skill", "slashcommand", "toolsearch", "bashoutput",
    "killshell", "killbash", "sendmessage", "update_plan", "update_todo", "ask_user", "ask_question",
    "request_user_input", "report_intent", "read_bash", "stop_bash", "list_bash", "read_powershell", "stop_powershell",
    "list_powershell", "todo_write", "createplan", "switchmode", "structuredoutput",
})  # fmt: skip

#: The arguments that run a command outside its client's sandbox.
_FREE = ("dangerouslyDisableSandbox", "with_escalated_permissions", "sandbox_permissions")
#: The names for a command line.
_LINE = ("command", "cmd", "script", "input", "chars")

#: The names for a file, a notebook, inserted lines and the content of a cell.
_PATH = ("file_path", "path", "target_file", "filePath", "filename")
_NOTEBOOK = ("notebook_path", "target_notebook", "path")
_ADDED = ("new_str", "insert_text", "text")
_SOURCE = ("new_source", "new_string")

Reader = Callable[[JsonObject], tuple[JsonObject, ...]]


def operation(tool: str, given: JsonObject, cwd: str | None = None) -> Operation:
    """Return the operation of `tool` with the arguments `given`."""
    try:
        return _operation(tool, given, cwd)
    except Contradiction:
        # It is unknown which value the client uses, so a person sees all of them.
        return other(OTHER, tool, given)


def _operation(tool: str, given: JsonObject, cwd: str | None) -> Operation:
    name = tool.lower()
    if _is_own(tool):
        return Operation(OWN, tool)
    if name.startswith(("mcp__", "mcp:")):
        return mcp(tool, given)
    if name == "str_replace_editor" and text(given, "command") == "view":
        return _read(tool, given, cwd)
    if name in _WRITERS:
        return _write(tool, given, _WRITERS[name](given), cwd)
    if name in _COMMANDS:
        return command(tool, given, cwd)
    if name in _TYPED:
        return _type(tool, given, cwd)
    if name in _FETCHES:
        return _fetch(tool, given)
    if name in _READS:
        return _read(tool, given, cwd)
    if name in _INNER:
        return Operation(INNER, tool)
    return other(OTHER, tool, given)


def _is_own(tool: str) -> bool:
    """Whether a tool is one of Intercom's: asking for permission to ask would never end."""
    return any(tool.startswith(each) and tool.removeprefix(each) in own_tools() for each in _OUR_PREFIXES)


@cache
def own_tools() -> frozenset[str]:
    """Return the names of our server's tools."""
    with open(_SHIPPED_ANSWERS, "rb") as file:
        shipped = json.load(file)
    return _UNLISTED.union(tool["name"] for results in shipped.values() for tool in results["tools/list"]["tools"])


def command(tool: str, given: JsonObject, cwd: str | None = None) -> Operation:
    """Return the operation of a command line. Raises Contradiction."""
    line = _line(given)
    where = one_text(given, "working_directory", "workdir", "cwd")
    if where is not None and cwd is not None:
        # The server has the workspace, but not the client's directory in it.
        where = os.path.join(cwd, os.path.expanduser(where))
    if line is None:
        return other(OTHER, tool, given)
    why = text(given, "description", "justification", "explanation")
    free = {name: given[name] for name in _FREE if given.get(name) not in (None, False, "", "use_default")}
    title = f"Run outside of the sandbox: {_first(line)}" if free else f"Run: {_first(line)}"
    identity = canonical([COMMAND, line, free] if free else [COMMAND, line])
    found = Operation(COMMAND, tool, title, line, (), identity, where or cwd, unsandboxed=bool(free))
    return found if why is None else found._replace(why=_first(why))


def _type(tool: str, given: JsonObject, cwd: str | None) -> Operation:
    """Return the operation of text typed into a running command, whose effect depends on that command."""
    ids = {str(given[name]) for name in _RUNNING if given.get(name) is not None}
    line, into = _line(given), ", ".join(sorted(ids))
    rest = {name for name, value in given.items() if value not in (None, "")} - {*_RUNNING, *_LOOKING}
    if line is None and not rest:
        # Nothing is typed: only the output is read.
        return Operation(INNER, tool)
    if line is None or len(ids) > 1:
        return other(OTHER, tool, given)
    identity = canonical([COMMAND, tool.lower(), into, line])
    title = f"Type into command {into}: {_first(line)}" if into else f"Type into a command: {_first(line)}"
    return Operation(COMMAND, tool, title, line, (), identity, cwd, None, None, into)


def mcp(tool: str, given: JsonObject, server: str | None = None) -> Operation:
    """Return the operation of another MCP server's tool. `server` identifies the server if `tool` does not."""
    title = f"Use {tool.removeprefix('mcp__').removeprefix('mcp:').replace('__', ' / ')}"
    title = title if server is None else f"{title} of {_first(server)}"
    return Operation(MCP, tool, title, _shown(given), (), canonical([MCP, server, tool, given]))


def _line(given: JsonObject) -> str | None:
    line = one_text(given, *_LINE)
    if line is not None:
        return line
    words = next((given[name] for name in _LINE if given.get(name) is not None), None)
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        import shlex

        return shlex.join(words)
    return None


def _fetch(tool: str, given: JsonObject) -> Operation:
    what = text(given, "url", "query", "search_term") or ""
    return other(FETCH, tool, given, f"{tool}: {_first(what)}" if what else "")


def _read(tool: str, given: JsonObject, cwd: str | None) -> Operation:
    path = _path(given)
    return other(READ, tool, given, f"{tool} {path or ''}".strip())._replace(path=path, cwd=cwd)


def other(kind: str, tool: str, given: JsonObject, title: str = "") -> Operation:
    """Return the operation of a tool of which only the arguments are known."""
    title = title or f"Use the tool {tool}"
    return Operation(kind, tool, title, _shown(given), (), canonical([kind, tool.lower(), given]))


def _write(tool: str, given: JsonObject, touches: tuple[JsonObject, ...], cwd: str | None) -> Operation:
    if not touches:
        # The change is unknown, so a person sees all arguments.
        return other(OTHER, tool, given)
    names = [os.path.basename(path) or path for path in (str(touch["path"]) for touch in touches)]
    shown = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    verb = "Delete" if all(touch.get("delete") for touch in touches) else "Change"
    # The server compares paths because it resolves them.
    plain = [{name: value for name, value in touch.items() if name not in ("path", "move_to")} for touch in touches]
    identity = canonical([WRITE, plain])
    return Operation(WRITE, tool, f"{verb} {shown}", None, touches, identity, cwd)


def _whole(given: JsonObject) -> tuple[JsonObject, ...]:
    path, content = _path(given), one(given, "content", "contents", "file_text", "text")
    return ({"path": path, "content": content},) if path is not None and content is not None else ()


def _edit(given: JsonObject) -> tuple[JsonObject, ...]:
    path = _path(given)
    if path is None:
        return ()
    edits, alone, whole = rows(given, "edits"), _replacement(given), _whole(given)
    if "edits" in given and given["edits"] != edits:
        raise Contradiction
    replaced = [_replacement(part) for part in edits] or [alone]
    if all(each is not None for each in replaced):
        if whole or (edits and alone is not None):
            raise Contradiction
        return ({"path": path, "replacements": replaced},)
    return whole if not edits else ()


def _replacement(part: JsonObject) -> JsonObject | None:
    old = one(part, "old_string", "old_str", "old_text")
    new = one(part, "new_string", "new_str", "new_text")
    if old is None:
        return None
    every = part.get("replace_all")
    if not (every is None or isinstance(every, bool)):
        # Some clients read a text as true or false.
        raise Contradiction
    return {"old": old, "new": new or "", **({"every": True} if every else {})}


def _editor(given: JsonObject) -> tuple[JsonObject, ...]:
    """Return the files that `str_replace_editor` changes; it is several tools in one."""
    path = _path(given)
    match text(given, "command"):
        case "create":
            return _whole(given)
        case "str_replace":
            return _edit(given)
        case "insert" if path is not None:
            added = one(given, *_ADDED) or ""
            lines = "".join(f"+{line}\n" for line in added.splitlines())
            return ({"path": path, "diff": _rest(given, "command", *_PATH, *_ADDED) + lines},)
        case _:
            return ()


def _notebook(given: JsonObject) -> tuple[JsonObject, ...]:
    path = one_text(given, *_NOTEBOOK)
    if path is None:
        return ()
    old, new = one(given, "old_string") or "", one(given, *_SOURCE) or ""
    lines = [f"-{line}\n" for line in old.splitlines()] + [f"+{line}\n" for line in new.splitlines()]
    return ({"path": path, "diff": _rest(given, "old_string", *_NOTEBOOK, *_SOURCE) + "".join(lines)},)


def _rest(given: JsonObject, *known: str) -> str:
    """Return the other arguments of a change as a hunk header: which lines change, and how."""
    rest = {name: value for name, value in given.items() if name not in known and value is not None}
    return f"@@ {canonical(rest)} @@\n" if rest else ""


def _patched(given: JsonObject) -> tuple[JsonObject, ...]:
    found = one_text(given, "patch", "input", "command", "diff")
    return touches(found) if found is not None else ()


def _deleted(given: JsonObject) -> tuple[JsonObject, ...]:
    path = _path(given)
    return ({"path": path, "delete": True},) if path is not None else ()


def _path(given: JsonObject) -> str | None:
    return one_text(given, *_PATH)


def _first(line: str, width: int = 100) -> str:
    """Return the first line of a text, with an ellipsis if anything was cut."""
    lines = line.strip().splitlines() or [""]
    return lines[0][: width - 2] + " …" if len(lines) > 1 or len(lines[0]) > width else lines[0]


def _shown(given: JsonObject) -> str | None:
    import json

    return json.dumps(given, indent=2, ensure_ascii=False) if given else None


_WRITERS: dict[str, Reader] = {
    **dict.fromkeys(("write", "create", "create_file", "write_file"), _whole),
    **dict.fromkeys(("edit", "multiedit", "strreplace", "str_replace", "search_replace", "edit_file"), _edit),
    **dict.fromkeys(("apply_patch", "applypatch"), _patched),
    **dict.fromkeys(("notebookedit", "editnotebook", "edit_notebook"), _notebook),
    **dict.fromkeys(("delete", "delete_file"), _deleted),
    "str_replace_editor": _editor,
}
