"""A downstream whose tools exercise all that passes through the gateway: JSON-RPC over stdio, without an SDK.

    python -I scripted_downstream.py NAME old|new [FILE]

`old` speaks 2025-11-25, `new` 2026-07-28. Each call of `write` is added to FILE, which so survives the process. A tool
is a generator: what it yields is asked of the client, and the answer comes back to it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

NAME, GENERATION, *_FILE = sys.argv[1:]
IS_NEW = GENERATION == "new"
FILE = _FILE[0] if _FILE else os.devnull
VERSION = "2026-07-28" if IS_NEW else "2025-11-25"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVEL = "io.modelcontextprotocol/logLevel"

Json = Any
Tool = Generator[Any, Any, Any]


class Failed(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}


class Hang(Exception):
    """The request stays open."""


def send(message: Json) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def notify(method: str, params: Json) -> None:
    send({"method": method, "params": params})


class State:
    """What the tools share."""

    def __init__(self) -> None:
        self.level = 0
        self.asked = 0
        #: What has happened, and the requests that wait for something to happen.
        self.events: set[str] = set()
        self.waiting: dict[str, list[Json]] = {}
        #: The generators that wait for an answer of the client, by the id of the question or by the state of the call.
        self.open: dict[Json, tuple[Json, Tool]] = {}
        #: The requests that hang, by their ids.
        self.hanging: dict[Json, str] = {}
        self.more: list[str] = []
        #: The resources of whose changes it tells, and in 2026-07-28 the id of the request on whose stream it does.
        self.watched: set[str] = set()
        self.listening: Json = None
        #: The progress token of the latest call.
        self.token: Json = None


STATE = State()


def happened(event: str) -> None:
    STATE.events.add(event)
    for id in STATE.waiting.pop(event, []):
        send({"id": id, "result": finished(text(event))})


def text(said: str, **more: Json) -> Json:
    return {"content": [{"type": "text", "text": said}], **more}


def finished(result: Json) -> Json:
    return {"resultType": "complete", **result} if IS_NEW else result


# --- tools -----------------------------------------------------------------------------------------------------------


def echo(params: Json, _id: Json) -> Tool:
    """Return everything that came, and fields that nobody knows."""
    yield from ()
    block = {
        "type": "text",
        "text": json.dumps(params["arguments"]),
        "xBlock": {"a": [1, 1.0, None]},
        "_meta": {"b": 2},
    }
    return {
        "content": [block, {"type": "x-unknown", "vendor": True}],
        "structuredContent": {"params": params},
        "_meta": {"vendor/trace": ["t", 1]},
        "xVendor": {"deep": [1, 2.5, None, "é\u2028"]},
    }


def write(params: Json, _id: Json) -> Tool:
    yield from ()
    with open(FILE, "a") as file:
        file.write(json.dumps(params["arguments"], sort_keys=True) + "\n")
    return text("written")


def big(params: Json, _id: Json) -> Tool:
    yield from ()
    return text("0123456789" * (params["arguments"]["size"] // 10))


def fail(_params: Json, _id: Json) -> Tool:
    yield from ()
    return text("it went wrong", isError=True, xWhy="because")


def refuse(_params: Json, _id: Json) -> Tool:
    yield from ()
    raise Failed(-32055, "not like this", {"try": ["that", 1.0]})


def progress(params: Json, id: Json) -> Tool:
    """Report progress, in order; once more under a foreign token, and once more after the answer."""
    yield from ()
    token = params.get("_meta", {}).get("progressToken")
    if token is None:
        return text("no token")
    for each in params["arguments"]["values"]:
        notify(
            "notifications/progress", {"progressToken": token, "progress": each, "total": 10, "message": f"at {each}"}
        )
    notify("notifications/progress", {"progressToken": "somebody-elses", "progress": 99})
    send({"id": id, "result": finished(text("done"))})
    notify("notifications/progress", {"progressToken": token, "progress": 100})
    raise Hang


def hang(params: Json, id: Json) -> Tool:
    """Note the call, and answer when `release` says so."""
    yield from ()
    tag = params["arguments"]["tag"]
    with open(FILE, "a") as file:
        file.write(f"hang {tag}\n")
    STATE.hanging[id] = tag
    happened(f"began {tag}")
    raise Hang


def release(params: Json, _id: Json) -> Tool:
    yield from ()
    for id in [id for id, tag in STATE.hanging.items() if tag == params["arguments"]["tag"]]:
        send({"id": id, "result": finished(text(f"released {STATE.hanging.pop(id)}"))})
    return text("ok")


def wait_for(params: Json, id: Json) -> Tool:
    """Answer when this event has happened."""
    yield from ()
    event = params["arguments"]["event"]
    if event in STATE.events:
        return text(event)
    STATE.waiting.setdefault(event, []).append(id)
    raise Hang


def seen(params: Json, _id: Json) -> Tool:
    yield from ()
    return text("yes" if params["arguments"]["event"] in STATE.events else "no")


def log(params: Json, _id: Json) -> Tool:
    """Log a message of each severity that is wanted."""
    yield from ()
    least = STATE.level
    if IS_NEW:
        wanted = params.get("_meta", {}).get(LOG_LEVEL)
        least = LEVELS.index(wanted) if wanted in LEVELS else len(LEVELS)
    for level in LEVELS[least:]:
        notify("notifications/message", {"level": level, "logger": NAME, "data": {"said": level}})
    return text("logged")


QUESTIONS = {
    "elicitation": (
        "elicitation/create",
        {
            "message": "Which colour?",
            "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}},
        },
    ),
    "sampling": (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10},
    ),
    "roots": ("roots/list", {}),
}


def ask(params: Json, _id: Json) -> Tool:
    """Ask the client what the argument says, one after the other, and return its answers."""
    given = params["arguments"]
    answers = []
    for what in given["what"]:
        answers.append((yield QUESTIONS[what]))
        # A call of 2026-07-28 that goes on is another request.
        if STATE.token is not None:
            notify("notifications/progress", {"progressToken": STATE.token, "progress": len(answers)})
    return text(json.dumps(answers), structuredContent={"answers": answers})


def grow(params: Json, _id: Json) -> Tool:
    """Offer one more resource."""
    yield from ()
    STATE.more.append(params["arguments"]["uri"])
    tell_change("notifications/resources/list_changed")
    return text("grown")


def touch(params: Json, _id: Json) -> Tool:
    """Change a resource, and say whether the gateway was told."""
    yield from ()
    uri = params["arguments"]["uri"]
    if uri not in STATE.watched:
        return text("nobody was told")
    tell_change("notifications/resources/updated", uri=uri)
    return text("told")


def tell_change(method: str, **params: Json) -> None:
    """Tell of a change: in 2026-07-28 only on the stream of somebody who listens."""
    if not IS_NEW:
        notify(method, params)
    elif STATE.listening is not None:
        notify(method, {**params, "_meta": {"io.modelcontextprotocol/subscriptionId": STATE.listening}})


def die(_params: Json, _id: Json) -> Tool:
    yield from ()
    os._exit(3)


def leak(_params: Json, _id: Json) -> Tool:
    yield from ()
    return text("the key is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")


TOOLS: dict[str, Callable[[Json, Json], Tool]] = {
    each.__name__: each
    for each in (
        echo,
        write,
        big,
        fail,
        refuse,
        progress,
        hang,
        release,
        wait_for,
        seen,
        log,
        ask,
        grow,
        touch,
        die,
        leak,
    )
}
#: The same, which the configuration calls read-only.
TOOLS["hang_read"] = hang


# --- lists -----------------------------------------------------------------------------------------------------------


def listed(key: str, items: list[Json]) -> Json:
    return {key: items, **({"ttlMs": 0, "cacheScope": "public"} if IS_NEW else {})}


def tools(_params: Json) -> Json:
    schema = {"type": "object", "properties": {}, "x-vendor": {"kept": True}}
    return listed(
        "tools", [{"name": name, "description": f"{name} of {NAME}", "inputSchema": schema} for name in TOOLS]
    )


def resources(_params: Json) -> Json:
    shared = {"uri": "demo://shared", "name": f"shared by {NAME}", "xVendor": 1}
    own = [{"uri": uri, "name": uri} for uri in (f"demo://{NAME}/own", *STATE.more)]
    return listed("resources", [shared, *own])


def templates(_params: Json) -> Json:
    return listed("resourceTemplates", [{"uriTemplate": f"demo://{NAME}/item/{{id}}", "name": "item"}])


def prompts(_params: Json) -> Json:
    return listed("prompts", [{"name": "greet", "arguments": [{"name": "who", "required": True}], "xVendor": 1}])


def read(params: Json) -> Json:
    uri = params["uri"]
    if uri.endswith("/missing"):
        raise Failed(-32002, "no such resource", {"uri": uri})
    return {"contents": [{"uri": uri, "text": f"{NAME} has {uri}", "xVendor": 1}], "xVendor": [1]}


def get_prompt(params: Json) -> Json:
    said = f"Greet {params['arguments']['who']} from {NAME}, {params['name']}"
    return {"messages": [{"role": "user", "content": {"type": "text", "text": said, "xVendor": 1}}], "xVendor": 1}


def complete(params: Json) -> Json:
    value = f"{params['argument']['value']}-{NAME}-{json.dumps(params['ref'], sort_keys=True)}"
    known = params.get("context", {}).get("arguments", {})
    return {"completion": {"values": ["-".join([value, *known.values()])], "hasMore": False}}


def set_level(params: Json) -> Json:
    STATE.level = LEVELS.index(params["level"])
    happened(f"level {params['level']}")
    return {}


def subscribe(params: Json) -> Json:
    STATE.watched.add(params["uri"])
    happened(f"watched {params['uri']}")
    return {}


def unsubscribe(params: Json) -> Json:
    STATE.watched.discard(params["uri"])
    happened(f"unwatched {params['uri']}")
    return {}


def listen(id: Json, params: Json) -> None:
    """Acknowledge a stream, which stays open. There is only one."""
    wanted = params["notifications"]
    before, STATE.watched = STATE.watched, {*wanted.get("resourceSubscriptions", ())}
    STATE.listening = id
    tell_change("notifications/subscriptions/acknowledged", notifications=wanted)
    for each in STATE.watched:
        happened(f"watched {each}")
    for each in before - STATE.watched:
        happened(f"unwatched {each}")


CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}
SERVER = {"name": NAME, "version": "1"}


def initialize(_params: Json) -> Json:
    if IS_NEW:
        raise Failed(-32022, "unsupported protocol version", {"supported": [VERSION], "requested": "2025-11-25"})
    return {
        "protocolVersion": VERSION,
        "capabilities": CAPABILITIES,
        "serverInfo": SERVER,
        "instructions": f"I am {NAME}.",
    }


def discover(_params: Json) -> Json:
    if not IS_NEW:
        raise Failed(-32601, "method not found")
    return {
        "supportedVersions": [VERSION],
        "capabilities": CAPABILITIES,
        "instructions": f"I am {NAME}.",
        "ttlMs": 0,
        "cacheScope": "public",
        "_meta": {"io.modelcontextprotocol/serverInfo": SERVER},
    }


METHODS: dict[str, Callable[[Json], Json]] = {
    "initialize": initialize,
    "server/discover": discover,
    "tools/list": tools,
    "resources/list": resources,
    "resources/templates/list": templates,
    "prompts/list": prompts,
    "resources/read": read,
    "prompts/get": get_prompt,
    "completion/complete": complete,
    **(
        {}
        if IS_NEW
        else {
            "logging/setLevel": set_level,
            "ping": lambda _params: {},
            "resources/subscribe": subscribe,
            "resources/unsubscribe": unsubscribe,
        }
    ),
}


# --- messages --------------------------------------------------------------------------------------------------------


def request(id: Json, method: str, params: Json) -> None:
    try:
        if method == "tools/call":
            call(id, params)
        elif method == "subscriptions/listen" and IS_NEW:
            listen(id, params)
        elif method in METHODS:
            send({"id": id, "result": finished(METHODS[method](params))})
        else:
            raise Failed(-32601, f"no method {method}")
    except Failed as failed:
        send({"id": id, "error": failed.error})


def call(id: Json, params: Json) -> None:
    STATE.token = params.get("_meta", {}).get("progressToken")
    if "requestState" in params:
        # The client has answered, and repeats the call.
        try:
            asked, tool = STATE.open.pop(params["requestState"])
        except KeyError:
            raise Failed(-32602, "the state is not known") from None
        step(id, tool, params["inputResponses"][asked])
        return
    begin = TOOLS.get(params["name"])
    if begin is None:
        raise Failed(-32602, f"no tool {params['name']}")
    step(id, begin({"arguments": {}, **params}, id), None)


def step(id: Json, tool: Tool, answer: Json) -> None:
    try:
        method, params = tool.send(answer)
    except StopIteration as over:
        send({"id": id, "result": finished(over.value)})
        return
    except Hang:
        return
    STATE.asked += 1
    if IS_NEW:
        key, state = f"q{STATE.asked}", f"state-{NAME}-{STATE.asked}"
        STATE.open[state] = (key, tool)
        wanted = {key: {"method": method, "params": params}}
        send({"id": id, "result": {"resultType": "input_required", "inputRequests": wanted, "requestState": state}})
    else:
        asked = f"ask-{STATE.asked}"
        STATE.open[asked] = (id, tool)
        send({"id": asked, "method": method, "params": params})
        happened(f"asked {STATE.asked}")


def answered(message: Json) -> None:
    found = STATE.open.pop(message["id"], None)
    if found is None:
        return
    id, tool = found
    try:
        step(id, tool, message.get("result", {"refused": message.get("error")}))
    except Failed as failed:
        send({"id": id, "error": failed.error})


def cancelled(params: Json) -> None:
    """Answer a cancelled request, as the SDK's servers do, although nobody waits for that."""
    id = params.get("requestId")
    tag = STATE.hanging.pop(id, None)
    if tag is not None:
        send({"id": id, "error": {"code": 0, "message": "Request cancelled"}})
    happened(f"cancelled {tag}" if tag is not None else "cancelled another")


def messages() -> Iterator[Json]:
    for line in sys.stdin:
        yield json.loads(line)


for each in messages():
    if "method" not in each:
        answered(each)
    elif "id" in each:
        request(each["id"], each["method"], each.get("params") or {})
    elif each["method"] == "notifications/cancelled":
        cancelled(each["params"])
