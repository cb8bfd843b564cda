#!/bin/sh
# The convener of a room, with curl. It creates the room, gives each team that joins a part of the work, and concludes.
#
#     sh examples/rooms/convener.sh http://127.0.0.1:7423 "Port the parser" "the lexer" "the grammar"
#
# The first line that it prints is the session's id: start a team with it for each part (team.py, team.sh).
# It needs curl, and python3 to read and write JSON. convener.py is the same convener over MCP.
set -eu

SESSION=$1/api/sessions TITLE=$2
shift 2
TEAM='' CURSOR=0 IDLE=0 DONE='' PARTS=$# LEFT=$#
TIMEOUT=${TIMEOUT:-30} IDLE_LIMIT=${IDLE_LIMIT:-10}

# get PATH, and post PATH with a body from standard input. If the server refuses, they fail with its words.
get() { call "$SESSION$1"; }
post() { call -H 'Content-Type: application/json' -d @- "$SESSION$1"; }
call() {
    body=$(curl -sS --fail-with-body --max-time 90 -H "X-Team-ID: $TEAM" "$@") || {
        printf '%s\n' "$body" >&2
        return 1
    }
    printf '%s\n' "$body"
}
# json NAME TEXT ...: writes an object.
json() { python3 -c 'import json, sys; a = sys.argv[1:]; print(json.dumps(dict(zip(a[::2], a[1::2]))))' "$@"; }
# field NAME: reads an object, and writes this field of it.
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
# messages: reads the answer of a wait, and writes what, from, team and text of each message, in one line with tabs.
messages() {
    python3 -c 'import json, sys
for each in json.load(sys.stdin)["messages"]:
    text = each.get("content", {}).get("text", "-")
    words = each.get("event", "chat"), each["from"], each.get("team", "-"), text
    print("\t".join(" ".join(word.split()) for word in words))'
}
TAB=$(printf '\t')

about="One team for each of:$(printf ' %s,' "$@")"
created=$(json title "$TITLE" description "${about%,}" creator_team_name Convener | post '')
TEAM=$(printf '%s\n' "$created" | field team_id)
CURSOR=$(printf '%s\n' "$created" | field cursor)
SESSION=$SESSION/$(printf '%s\n' "$created" | field session_id)
printf '# Session: %s\n\n## Goals\n\n%s\n\n## Notes\n' "$TITLE" "${about%,}" | python3 -c 'import json, sys
print(json.dumps({"content": sys.stdin.read(), "expected_version": 0}))' | post /doc >/dev/null
echo "${SESSION##*/}"

while [ "$LEFT" -gt 0 ] && [ "$IDLE" -lt "$IDLE_LIMIT" ]; do
    page=$(get "/messages/wait?since_cursor=$CURSOR&timeout=$TIMEOUT") || {
        # The server restarts: nothing is lost, the same cursor goes on.
        IDLE=$((IDLE + 1))
        sleep 2
        continue
    }
    if [ "$(printf '%s\n' "$page" | field session_closed)" = True ]; then
        echo "somebody else has concluded the session" >&2
        exit 1
    fi
    lines=$(printf '%s\n' "$page" | messages)
    if [ -z "$lines" ]; then IDLE=$((IDLE + 1)); else IDLE=0; fi
    while IFS=$TAB read -r what from team text; do
        case "$what $from $text" in
        "team_joined "*)
            if [ $# -gt 0 ]; then
                json content "$team: $1" | post /messages >/dev/null
                shift
            fi
            ;;
        "chat peer done: "*)
            LEFT=$((LEFT - 1))
            DONE="$DONE
- ${text#done: }: $team"
            ;;
        esac
    done <<END
$lines
END
    CURSOR=$(printf '%s\n' "$page" | field next_cursor)
done

if [ "$LEFT" -gt 0 ]; then
    echo "session idle: $((PARTS - LEFT)) of $PARTS parts are done, and it stays open" >&2
    echo '{}' | post /leave >/dev/null
    exit 1
fi
concluded=$(json summary_section "All parts are done; the notes have the results.
$DONE" | post /conclude)
echo "concluded with version $(printf '%s\n' "$concluded" | field doc_version) of the document"
