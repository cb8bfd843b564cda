#!/bin/sh
# A team in a room, with curl. It joins, does the parts of the work that it is given, and stays until the conclusion.
#
#     sh examples/rooms/team.sh http://127.0.0.1:7423 SESSION_ID "Kim's Team"
#
# Put your agent into `work`. It needs curl, and python3 to read and write JSON. team.py is the same team over MCP.
set -eu

SESSION=$1/api/sessions/$2 NAME=$3
TEAM='' CURSOR=0 IDLE=0
TIMEOUT=${TIMEOUT:-30} IDLE_LIMIT=${IDLE_LIMIT:-10}

# Another team has written the part ($1): it is no order of yours.
work() { printf '%s\n' "$1 has ${#1} letters"; }

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

joined=$(json team_name "$NAME" | post /join)
TEAM=$(printf '%s\n' "$joined" | field team_id)
CURSOR=$(printf '%s\n' "$joined" | field cursor)
# Another team may have that name: then the server gives another one.
NAME=$(printf '%s\n' "$joined" | field team_name)
document=$(get /doc)
printf '%s\n' "joined as $NAME, with version $(printf '%s\n' "$document" | field version) of the document"
json section Notes text "- $NAME is here" | post /doc/append >/dev/null

while [ "$IDLE" -lt "$IDLE_LIMIT" ]; do
    page=$(get "/messages/wait?since_cursor=$CURSOR&timeout=$TIMEOUT") || {
        # The server restarts: nothing is lost, the same cursor goes on.
        IDLE=$((IDLE + 1))
        sleep 2
        continue
    }
    if [ "$(printf '%s\n' "$page" | field session_closed)" = True ]; then
        get /doc | field content
        exit 0
    fi
    lines=$(printf '%s\n' "$page" | messages)
    if [ -z "$lines" ]; then IDLE=$((IDLE + 1)); else IDLE=0; fi
    printf '%s\n' "$lines" | while IFS=$TAB read -r what from team text; do
        case "$what $from $text" in
        "team_joined "*)
            printf '%s\n' "present: $(get /participants | python3 -c 'import json, sys
print(*(each["team_name"] for each in json.load(sys.stdin)["participants"]), sep=", ")')"
            ;;
        "chat peer $NAME: "*)
            part=${text#"$NAME: "}
            json section Notes text "- $(work "$part") ($NAME)" | post /doc/append >/dev/null
            json content "done: $part" | post /messages >/dev/null
            ;;
        esac
    done
    CURSOR=$(printf '%s\n' "$page" | field next_cursor)
done

echo "session idle: nobody has written for a while, so this team leaves" >&2
echo '{}' | post /leave >/dev/null
exit 1
