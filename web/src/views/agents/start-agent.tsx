/** Starts an agent on a task. */

import { useState } from "react";
import { Input } from "@/components/ui/input";
import { Textarea } from "@/components/ui/textarea";
import { addressOf, navigate } from "@/lib/hooks";
import { maybe, object } from "@/model/wire";
import { carryOut, whySigned } from "@/server/agents";
import { useDraft } from "@/server/inbox";
import { useSessions } from "../sessions";
import { Command, Question } from "./marks";

export default function StartAgent({ onClose }: { onClose: () => void }) {
  const sessions = useSessions().data ?? [];
  const workspaces = [...new Set(sessions.map((each) => each.workspaceRoot))].sort();
  const [text, setText, wasSent] = useDraft("start");
  const [workspace, setWorkspace] = useState(workspaces[0] ?? "");
  const [label, setLabel] = useState("");
  const [isBusy, setBusy] = useState(false);
  const why = whySigned();
  const start = async () => {
    setBusy(true);
    const fields = { text, workspace: workspace.trim(), ...(label.trim() ? { label: label.trim() } : {}) };
    const data = await carryOut("start", fields, "the agent starts");
    setBusy(false);
    if (data === undefined) return;
    wasSent(text);
    onClose();
    const id = maybe(object(data), "session_id");
    if (id !== null) navigate(addressOf("sessions", id));
  };
  return (
    <Question
      title="Start an agent"
      description={
        why ||
        "It runs on this machine, in the workspace, with what your configuration permits it; what it asks comes here."
      }
      action={isBusy ? "Starting…" : "Start"}
      isDisabled={isBusy || why !== "" || !text.trim() || !workspace.trim()}
      onAgree={() => void start()}
      onClose={onClose}
    >
      {why ? (
        <Command>agent-intercom-ctl start PROMPT --workspace DIR</Command>
      ) : (
        <>
          <label className="flex flex-col gap-1">
            Its task
            <Textarea autoFocus value={text} onChange={(event) => setText(event.target.value)} />
          </label>
          <label className="flex flex-col gap-1">
            Workspace (a directory of this machine)
            <Input
              list="workspaces"
              className="max-md:h-11"
              spellCheck={false}
              autoComplete="off"
              value={workspace}
              onChange={(event) => setWorkspace(event.target.value)}
            />
            <datalist id="workspaces">
              {workspaces.map((each) => (
                <option key={each} value={each} />
              ))}
            </datalist>
          </label>
          <label className="flex flex-col gap-1">
            Your name for it (may be empty)
            <Input className="max-md:h-11" value={label} onChange={(event) => setLabel(event.target.value)} />
          </label>
        </>
      )}
    </Question>
  );
}
