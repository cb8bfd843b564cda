/** What other tools find here: shadcn/ui's CLI, with which whoever carries on adds a component, and the tests' browser. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { chromiumPath } from "./support/browser";

afterEach(() => vi.unstubAllEnvs());

const WEB = join(import.meta.dirname, "..");
const read = (name: string) => readFileSync(join(WEB, name), "utf8");

test("components.json leads to the files that there are, and each component is as the CLI writes it", () => {
  const { aliases, tailwind, tsx } = JSON.parse(read("components.json")) as {
    aliases: Record<string, string>;
    tailwind: { css: string; cssVariables: boolean };
    tsx: boolean;
  };
  expect(tsx && tailwind.cssVariables).toBe(true);
  expect(read(tailwind.css)).toMatch(/@import "tailwindcss"/);
  const { paths } = (JSON.parse(read("tsconfig.json")) as { compilerOptions: { paths: Record<string, string[]> } })
    .compilerOptions;
  expect(paths["@/*"]).toEqual(["./src/*"]);
  const placeOf = (alias: string) => join(WEB, alias.replace(/^@\//, "src/"));
  for (const name of ["components", "ui", "lib"]) expect(existsSync(placeOf(aliases[name] ?? "")), name).toBe(true);
  expect(existsSync(`${placeOf(aliases["utils"] ?? "")}.ts`)).toBe(true);
  const components = readdirSync(placeOf(aliases["ui"] ?? ""));
  expect(components.length).toBeGreaterThan(8);
  for (const each of components) {
    const source = read(`src/components/ui/${each}`);
    // Each knows itself, merges classes as the others do, and is exported at the end.
    expect(source, each).toMatch(/data-slot="/);
    expect(source, each).toContain('import { cn } from "@/lib/utils"');
    expect(source, each).toMatch(/\nexport \{[^}]+\};\n$/);
  }
});

test("without Chromium the tests say what to install", () => {
  vi.stubEnv("CHROMIUM", "/nowhere/chromium");
  expect(chromiumPath).toThrow(/need Chromium: install it .*apt install chromium.* or set CHROMIUM/);
  vi.stubEnv("CHROMIUM", process.execPath);
  expect(chromiumPath()).toBe(process.execPath);
});
