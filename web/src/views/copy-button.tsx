/** A button that copies a text. */

import { CheckIcon, CopyIcon } from "lucide-react";
import { useState, type ReactNode } from "react";
import { Button } from "@/components/ui/button";
import { inbox } from "@/server/inbox";

/** A button that copies a text, and says that it did. */
export function CopyButton(props: {
  text: string;
  children: ReactNode;
  variant?: "outline" | "default";
  /** What it copies, if its words do not say so. */
  label?: string;
}) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(props.text);
      setCopied(true);
      inbox.announce("Copied.");
      setTimeout(() => setCopied(false), 2_000);
    } catch {
      inbox.say("error", "not copied: this browser does not let the page use the clipboard; select the text instead");
    }
  };
  return (
    <Button
      variant={props.variant ?? "outline"}
      size="touch"
      aria-label={props.label}
      disabled={props.text === ""}
      onClick={() => void copy()}
    >
      {isCopied ? <CheckIcon aria-hidden /> : <CopyIcon aria-hidden />}
      {isCopied ? "Copied" : props.children}
    </Button>
  );
}
