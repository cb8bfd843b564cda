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

const NOT_LOADED = "It could not be loaded. The server may have been upgraded since this page was opened.";
const NOT_DRAWN = "It ended with an error. The browser’s console says which.";

/** A module could not be loaded. */
class LoadError extends Error {}

interface Boundary {
  /** Returns what is drawn if the children cannot be; `why` is a sentence. */
  fallback: (why: string) => ReactNode;
  children: ReactNode;
}

/** Draws something else in the place of children that could not be loaded or drawn. */
class ErrorBoundary extends Component<Boundary, { why: string | null }> {
  override state: { why: string | null } = { why: null };

  static getDerivedStateFromError(fault: unknown): { why: string } {
    return { why: fault instanceof LoadError ? NOT_LOADED : NOT_DRAWN };
  }

  override render(): ReactNode {
    const { why } = this.state;
    return why === null ? this.props.children : this.props.fallback(why);
  }
}

function Reload() {
  return (
    <Button variant="outline" size="touch" onClick={() => location.reload()}>
      Load the page again
    </Button>
  );
}

function FailedView({ why }: { why: string }) {
  return (
    <div role="alert" className="flex flex-1 flex-col items-center justify-center gap-3 p-6 text-center">
      <TriangleAlertIcon className="size-8 stroke-[1.25] text-muted-foreground" aria-hidden />
      <p className="font-medium">This view cannot be shown</p>
      <p className="max-w-sm text-[0.8125rem] text-muted-foreground">{why}</p>
      <Reload />
    </div>
  );
}

function FailedDialog({ why, onClose }: { why: string; onClose: () => void }) {
  return (
    <Dialog open onOpenChange={(isOpen) => !isOpen && onClose()}>
      <DialogContent role="alertdialog">
        <DialogHeader>
          <DialogTitle>This dialog cannot be shown</DialogTitle>
          <DialogDescription>{why}</DialogDescription>
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
  return loadedBy(load, <Loading />, (_, why) => <FailedView why={why} />);
}

/** Return a dialog that loads its module when it is first opened. */
export function lazyDialog<Props extends { onClose: () => void }>(load: Load<Props>): ComponentType<Props> {
  return loadedBy(load, null, ({ onClose }, why) => <FailedDialog why={why} onClose={onClose} />);
}

function loadedBy<Props extends object>(
  load: Load<Props>,
  pending: ReactNode,
  fallback: (props: Props, why: string) => ReactNode,
): ComponentType<Props> {
  const loaded = () =>
    load().catch((fault: unknown) => {
      throw new LoadError(String(fault), { cause: fault });
    });
  const Part = lazy(loaded) as unknown as ComponentType<Props>;
  return function LazyPart(props: Props) {
    return (
      <ErrorBoundary fallback={(why) => fallback(props, why)}>
        <Suspense fallback={pending}>
          <Part {...props} />
        </Suspense>
      </ErrorBoundary>
    );
  };
}
