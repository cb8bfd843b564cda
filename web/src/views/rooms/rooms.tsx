/** The rooms: their index, or the one that the address names. */

import { useAddress } from "@/lib/hooks";
import { RoomList } from "./room-list";
import { RoomView } from "./room";

export default function Rooms() {
  const address = useAddress();
  const id = /^\/rooms\/([0-9a-f-]{1,36})(?:#|$)/.exec(address)?.[1];
  return id === undefined ? <RoomList /> : <RoomView key={id} id={id} />;
}
