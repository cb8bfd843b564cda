/** The rooms: their index, or the one that the address names. */

import { useAddress } from "@/lib/hooks";
import { useInbox } from "@/server/inbox";
import { NoRooms, RoomList } from "./room-list";
import { RoomView } from "./room";

export default function Rooms() {
  const address = useAddress();
  const { me } = useInbox();
  const id = /^\/rooms\/([0-9a-f-]{1,36})(?:#|$)/.exec(address)?.[1];
  // Nothing is asked for that is not there.
  if (me?.server.hasRooms === false) return <NoRooms />;
  return id === undefined ? <RoomList /> : <RoomView key={id} id={id} />;
}
