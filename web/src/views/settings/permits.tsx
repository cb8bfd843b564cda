/** Settings: what passes without a person, and the faults of policy files. */

import { Permitted } from "../permitted";
import { Heading } from "./marks";

export default function PermitSettings() {
  return (
    <>
      <Heading title="Rules and grants">
        What passes without you. “Always allow this…” on a request adds to it. A policy file with a fault lets nothing
        pass.
      </Heading>
      <div className="flex flex-col gap-5 text-[0.8125rem]">
        <Permitted heading="h2" />
      </div>
    </>
  );
}
