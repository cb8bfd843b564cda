/** Views and dialogs that are loaded when somebody goes there. */

import { TriangleAlertIcon } from "lucide-react";
import { Component, lazy, Suspense, type ComponentType, type ReactNode } from "react";
import { Button } from "@/components/ui/button";
import {
  Dialog,
  DialogContent,
  DialogDescription,
  DialogFooter,
  DialogHeader,
  DialogTitle,
} from "@/components/ui/dialog";
import { Skeleton } from "@/components/ui/skeleton";

const WHY = "The server may have been upgraded since this page was opened.";

/** Shows something else in the place of what could not be loaded, as after an upgrade of the server, or failed. */
class Failing extends Component<{ instead: ReactNode; children: ReactNode }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError(): { hasFailed: boolean } {
    return { hasFailed: true };
  }

  override render(): ReactNode {
    return this.state.hasFailed ? this.props.instead : this.props.children;
  }
}

function Reload() {
  return (
    <Button variant="outline" size="touch" onClick={() => location.reload()}>
      Load the page again
    </Button>
  );
}

function FailedView() {
  return (
    <div role="alert" className="flex flex-1 flex-col items-center justify-center gap-3 p-6 text-center">
      <TriangleAlertIcon className="size-8 stroke-[1.25] text-muted-foreground" aria-hidden />
      <p className="font-medium">This view cannot be shown</p>
      <p className="max-w-sm text-[0.8125rem] text-muted-foreground">{WHY}</p>
      <Reload />
    </div>
  );
}

function FailedDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog open onOpenChange={(isOpen) => !isOpen && onClose()}>
      <DialogContent role="alertdialog">
        <DialogHeader>
          <DialogTitle>This dialog cannot be shown</DialogTitle>
          <DialogDescription>{WHY}</DialogDescription>
        </DialogHeader>
        <DialogFooter>
          <Reload />
        </DialogFooter>
      </DialogContent>
    </Dialog>
  );
}

function Loading() {
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-3 p-4 md:px-6" role="status" aria-label="Loading">
      <Skeleton className="h-6 w-48" />
      <Skeleton className="h-24" />
      <Skeleton className="h-24" />
    </div>
  );
}

type Load<Props> = () => Promise<{ default: ComponentType<Props> }>;

/** Return a view that loads its module when it is first drawn. */
export function lazyView<Props extends object>(load: Load<Props>): ComponentType<Props> {
  return loadedBy(load, <Loading />, () => <FailedView />);
}

/** Return a dialog that loads its module when it is first opened. */
export function lazyDialog<Props extends { onClose: () => void }>(load: Load<Props>): ComponentType<Props> {
  return loadedBy(load, null, ({ onClose }) => <FailedDialog onClose={onClose} />);
}

function loadedBy<Props extends object>(
  load: Load<Props>,
  meanwhile: ReactNode,
  instead: (props: Props) => ReactNode,
): ComponentType<Props> {
  const Part = lazy(load) as unknown as ComponentType<Props>;
  return function LazyPart(props: Props) {
    return (
      <Failing instead={instead(props)}>
        <Suspense fallback={meanwhile}>
          <Part {...props} />
        </Suspense>
      </Failing>
    );
  };
}
