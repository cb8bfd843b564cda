/** Takes pictures of the settings. */

import { takePictures } from "../support/pictures";
import { browserEntry, fillSettings, KEY, slackEntry, statusEntry } from "../support/settings-records";
import type { Standin } from "../support/standin";

const PLACES = {
  server: "",
  address: "/address",
  people: "/people",
  clients: "/clients",
  notifications: "/notifications",
  permits: "/permits",
};

function fill(server: Standin): void {
  const state = fillSettings(server);
  const phone = { ...KEY, key_id: "0c44", public: "http://localhost:4321,aa,bb", name: "phone" };
  state.url = "https://intercom.example.org";
  state.slack = slackEntry("up");
  state.keys = { required: true, keys: [KEY, phone], unsigned_settings: null };
  state.proposed = [{ key_id: "91c2d07be8456f3a", name: "tablet" }];
  state.status = statusEntry({ has_gateway: true });
  state.people = {
    public_url: "https://intercom.example.org",
    members: [
      { name: "kim@example.org", role: "admin" },
      { name: "sam@example.org", role: "viewer" },
    ],
    signed_in: [browserEntry("0".repeat(32), "alex", "admin"), browserEntry("1".repeat(32), "Zoe", "operator")],
    in_slack: ["U012AB3CD", "U045EF6GH"],
  };
  state.tokens = [
    { name: "nightly", role: "operator", created_by: "alex", created_at: "", expires_at: "2027-02-24T12:00:00Z" },
  ];
  server.answers.set("push-list", () => ({
    subscriptions: [
      {
        ...{ push_id: "p1", by: "alex", channel: "web", label: "Chrome on Android", service: "fcm.googleapis.com" },
        created_at: new Date(Date.now() - 86_400_000).toISOString(),
      },
    ],
  }));
  state.policies.push({ workspace_root: "/home/alex/old", status: "refused", grants: "nothing", fault: "line 3" });
}

takePictures("/settings", fill, async ({ page, shoot }) => {
  for (const [name, place] of Object.entries(PLACES)) {
    await page.goto(`/settings${place}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    if (name === "clients") {
      await page.getByRole("radio", { name: "HTTP" }).click();
      await page.getByRole("button", { name: /^Cursor/ }).click();
      await page.mouse.move(0, 0);
    }
    await shoot(`settings-${name}`);
  }
});
