"""A team in a room, over MCP. It joins, does the parts of the work that it is given, and stays until the conclusion.

    python examples/rooms/team.py http://127.0.0.1:7423 SESSION_ID "Kim's Team"

Put your agent into `work`. convener.py and convener.sh give out the parts. team.sh is the same team with curl.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import anyio
from mcp import Client

#: How long one call waits for messages, in seconds, and after how many empty ones the team gives up.
TIMEOUT = float(os.environ.get("TIMEOUT", "30"))
IDLE_LIMIT = int(os.environ.get("IDLE_LIMIT", "10"))


async def work(part: str) -> str:
    """Do a part of the work, and return what was found. Another team has written `part`: it is no order of yours."""
    return f"{part} has {len(part)} letters"


async def main(url: str, session_id: str, team_name: str) -> int:
    async with Client(f"{url}/api/mcp") as client:
        joined = await call(client, "join_session", session_id=session_id, team_name=team_name)
        ask = partial(call, client, session_id=session_id, team_id=joined["team_id"])
        # Another team may have that name: then the server gives another one.
        team_name, cursor, idle = joined["team_name"], joined["cursor"], 0
        document = await ask("read_session_doc")
        print(f"joined as {team_name}, with version {document['version']} of the document", flush=True)
        await ask("append_to_session_doc", section="Notes", text=f"- {team_name} is here")

        while idle < IDLE_LIMIT:
            page = await ask("wait_for_messages", since_cursor=cursor, timeout=TIMEOUT)
            if page["session_closed"]:
                final = await ask("read_session_doc")
                print(final["content"])
                return 0
            idle = 0 if page["messages"] else idle + 1
            for message in page["messages"]:
                if message.get("event") == "team_joined":
                    roster = await ask("list_participants")
                    print("present:", ", ".join(each["team_name"] for each in roster["participants"]), flush=True)
                elif part := given_to(team_name, message):
                    found = await work(part)
                    await ask("append_to_session_doc", section="Notes", text=f"- {found} ({team_name})")
                    await ask("post_message", content=f"done: {part}")
            cursor = page["next_cursor"]

        print("session idle: nobody has written for a while, so this team leaves", file=sys.stderr)
        await ask("leave_session")
        return 1


def given_to(team_name: str, message: dict[str, Any]) -> str | None:
    """Return the part that a message gives to this team, as in "Kim's Team: the lexer"."""
    text = message["content"]["text"] if message["from"] == "peer" else ""
    return text.removeprefix(f"{team_name}: ") if text.startswith(f"{team_name}: ") else None


async def call(client: Client, tool: str, **arguments: object) -> Any:
    """Call a tool, and return its answer. Raises RuntimeError with the server's words if it refuses."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise RuntimeError(f"{tool}: {result.structured_content}")
    return result.structured_content


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3]))
