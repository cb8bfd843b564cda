/** Takes pictures of the views of agents: sessions, their stories, past requests, the log, the gateway and the actors. */

import { connected } from "../support/actions";
import { takePictures } from "../support/pictures";
import { fill, SESSION } from "../support/records";

const PLACES = {
  sessions: "/sessions",
  session: `/sessions/${SESSION}`,
  story: `/sessions/${SESSION}/story`,
  output: `/sessions/${SESSION}/output`,
  messages: `/sessions/${SESSION}/messages`,
  checkpoints: `/sessions/${SESSION}/checkpoints`,
  log: "/log",
  requests: "/log/requests",
  request: "/log/requests/r-1",
  actors: "/server",
  gateway: "/server/gateway",
  downstream: "/server/gateway/files",
};

takePictures("/sessions", fill, async ({ page, shoot }) => {
  for (const [name, place] of Object.entries(PLACES)) {
    await page.goto(place);
    await connected(page);
    await shoot(name);
  }
});
