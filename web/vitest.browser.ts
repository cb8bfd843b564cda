import { join } from "node:path";
import { defineConfig } from "vitest/config";

/** The tests in Chromium, against a stand-in server and the built page. */
export default defineConfig({
  resolve: { alias: { "@": join(import.meta.dirname, "src") } },
  test: {
    include: process.env["PICTURES"] ? ["tests/pictures/*.ts"] : ["tests/browser/*.test.ts"],
    environment: "node",
    fileParallelism: false,
    // Nothing is measured by these limits: a busy machine takes several times what an idle one does.
    testTimeout: 120_000,
    hookTimeout: 90_000,
  },
});
