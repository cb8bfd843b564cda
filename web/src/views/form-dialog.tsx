/** A dialog with one form, for whatever is asked of a person at once. */

import { useId, type ReactNode } from "react";
import { Button } from "@/components/ui/button";
import {
  Dialog,
  DialogContent,
  DialogDescription,
  DialogFooter,
  DialogHeader,
  DialogTitle,
} from "@/components/ui/dialog";

/** Shows a title, what it is for, the fields, and the button that sends them. Ctrl or ⌘ with Enter sends them too, where
 *  Enter alone is a new line. */
export function FormDialog(props: {
  isOpen?: boolean;
  title: ReactNode;
  about: string;
  button: string;
  isGrave?: boolean;
  isDisabled: boolean;
  className?: string;
  onSubmit: () => void;
  onClose: () => void;
  children: ReactNode;
}) {
  const id = useId();
  const send = () => {
    if (!props.isDisabled) props.onSubmit();
  };
  return (
    <Dialog open={props.isOpen ?? true} onOpenChange={(isOpen) => !isOpen && props.onClose()}>
      <DialogContent className={props.className}>
        <DialogHeader>
          <DialogTitle>{props.title}</DialogTitle>
          <DialogDescription>{props.about}</DialogDescription>
        </DialogHeader>
        <form
          id={id}
          className="-mx-1 flex min-h-0 flex-col gap-4 overflow-y-auto p-1 text-[0.8125rem]"
          onSubmit={(event) => {
            event.preventDefault();
            send();
          }}
          onKeyDown={(event) => {
            // Elsewhere the browser does that itself.
            const isText = event.target instanceof HTMLTextAreaElement;
            if (isText && event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
          }}
        >
          {props.children}
        </form>
        <DialogFooter>
          <Button variant="outline" size="touch" onClick={props.onClose}>
            Cancel
          </Button>
          <Button
            type="submit"
            size="touch"
            form={id}
            variant={props.isGrave ? "destructive" : "default"}
            disabled={props.isDisabled}
          >
            {props.button}
          </Button>
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}

/** A field of the form under its name. */
export function Field({ name, children }: { name: string; children: ReactNode }) {
  return (
    <label className="flex flex-col gap-1 font-medium">
      {name}
      {children}
    </label>
  );
}
