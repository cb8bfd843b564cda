import { join } from "node:path";
import { defineConfig } from "vitest/config";

/** The tests in Chromium, against a stand-in server and the built page. */
export default defineConfig({
  resolve: { alias: { "@": join(import.meta.dirname, "src") } },
  test: {
    include: process.env["PICTURES"] ? ["tests/pictures/*.ts"] : ["tests/browser/*.test.ts"],
    environment: "node",
    fileParallelism: false,
    testTimeout: 40_000,
    hookTimeout: 30_000,
  },
});
