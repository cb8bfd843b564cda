/** What passes without a person, over the page. */

import { Button } from "@/components/ui/button";
import {
  Dialog,
  DialogContent,
  DialogDescription,
  DialogFooter,
  DialogHeader,
  DialogTitle,
} from "@/components/ui/dialog";
import { Permitted } from "./permitted";

export default function PermittedDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog open onOpenChange={(isOpen) => !isOpen && onClose()}>
      <DialogContent className="sm:max-w-2xl">
        <DialogHeader>
          <DialogTitle>Rules and grants</DialogTitle>
          <DialogDescription>
            What passes without you. “Always allow this…” on a request adds to it; key p.
          </DialogDescription>
        </DialogHeader>
        <div
          role="region"
          aria-label="What passes without you"
          className="-mx-1 flex min-h-0 flex-col gap-5 overflow-y-auto p-1 text-[0.8125rem]"
        >
          <Permitted />
        </div>
        <DialogFooter>
          <Button variant="outline" size="touch" onClick={onClose}>
            Close
          </Button>
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}
