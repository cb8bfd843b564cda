/** Views that are loaded when somebody goes there. */

import { TriangleAlertIcon } from "lucide-react";
import { Component, lazy, Suspense, type ComponentType, type ReactNode } from "react";
import { Button } from "@/components/ui/button";
import { Skeleton } from "@/components/ui/skeleton";

/** Stands in for a view that could not be loaded, as after an upgrade of the server, or that failed. */
class Failing extends Component<{ children: ReactNode }, { fault: Error | null }> {
  override state: { fault: Error | null } = { fault: null };

  static getDerivedStateFromError(fault: unknown): { fault: Error } {
    return { fault: fault instanceof Error ? fault : new Error(String(fault)) };
  }

  override render(): ReactNode {
    if (this.state.fault === null) return this.props.children;
    return (
      <div role="alert" className="flex flex-1 flex-col items-center justify-center gap-3 p-6 text-center">
        <TriangleAlertIcon className="size-8 stroke-[1.25] text-muted-foreground" aria-hidden />
        <p className="font-medium">This view cannot be shown</p>
        <p className="max-w-sm text-[0.8125rem] text-muted-foreground">
          The server may have been upgraded since this page was opened.
        </p>
        <Button variant="outline" size="touch" onClick={() => location.reload()}>
          Load the page again
        </Button>
      </div>
    );
  }
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

/** Return a component that loads its module when it is first drawn. */
export function lazyView<Props extends object>(
  load: () => Promise<{ default: ComponentType<Props> }>,
): ComponentType<Props> {
  const View = lazy(load) as unknown as ComponentType<Props>;
  return function LazyView(props: Props) {
    return (
      <Failing>
        <Suspense fallback={<Loading />}>
          <View {...props} />
        </Suspense>
      </Failing>
    );
  };
}
