"""The convener of a room, over MCP. It creates the room, gives each team that joins a part of the work, and concludes.

    python examples/rooms/convener.py http://127.0.0.1:7423 "Port the parser" "the lexer" "the grammar"

The first line that it prints is the session's id: start a team with it for each part (team.py, team.sh).
convener.sh is the same convener with curl.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import anyio
from mcp import Client

#: How long one call waits for messages, in seconds, and after how many empty ones the convener gives up.
TIMEOUT = float(os.environ.get("TIMEOUT", "30"))
IDLE_LIMIT = int(os.environ.get("IDLE_LIMIT", "10"))


async def main(url: str, title: str, parts: list[str]) -> int:
    async with Client(f"{url}/api/mcp") as client:
        about = f"One team for each of: {', '.join(parts)}"
        created = await call(client, "create_session", title=title, description=about, creator_team_name="Convener")
        ask = partial(call, client, session_id=created["session_id"], team_id=created["team_id"])
        layout = f"# Session: {title}\n\n## Goals\n\n{about}\n\n## Notes\n"
        await ask("update_session_doc", content=layout, expected_version=0)
        print(created["session_id"], flush=True)

        cursor, idle = created["cursor"], 0
        waiting, done = list(parts), list[str]()
        while len(done) < len(parts) and idle < IDLE_LIMIT:
            page = await ask("wait_for_messages", since_cursor=cursor, timeout=TIMEOUT)
            if page["session_closed"]:
                print("somebody else has concluded the session", file=sys.stderr)
                return 1
            idle = 0 if page["messages"] else idle + 1
            for message in page["messages"]:
                if message.get("event") == "team_joined" and waiting:
                    await ask("post_message", content=f"{message['team']}: {waiting.pop(0)}")
                elif message["from"] == "peer" and message["content"]["text"].startswith("done: "):
                    done.append(f"- {message['content']['text'].removeprefix('done: ')}: {message['team']}")
            cursor = page["next_cursor"]

        if len(done) < len(parts):
            print(f"session idle: {len(done)} of {len(parts)} parts are done, and it stays open", file=sys.stderr)
            await ask("leave_session")
            return 1
        summary = "All parts are done; the notes have the results.\n\n" + "\n".join(done)
        concluded = await ask("conclude_session", summary_section=summary)
        print(f"concluded with version {concluded['doc_version']} of the document")
        return 0


async def call(client: Client, tool: str, **arguments: object) -> Any:
    """Call a tool, and return its answer. Raises RuntimeError with the server's words if it refuses."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise RuntimeError(f"{tool}: {result.structured_content}")
    return result.structured_content


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:]))
