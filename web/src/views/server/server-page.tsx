/** The server: the tree of its actors, and the gateway. */

import { TabBar } from "../agents/marks";
import { Gateway } from "./gateway";
import { ActorTree } from "./tree";

export default function ServerPage({ names }: { names: readonly string[] }) {
  const isGateway = names[0] === "gateway";
  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <TabBar
        label="Parts of the server"
        tabs={[
          { to: "/server", name: "Actors", isCurrent: !isGateway },
          { to: "/server/gateway", name: "Gateway", isCurrent: isGateway },
        ]}
      />
      {isGateway ? <Gateway names={names.slice(1)} /> : <ActorTree />}
    </div>
  );
}
