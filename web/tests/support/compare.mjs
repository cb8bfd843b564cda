/** Builds the page into a directory of its own, and compares it with the committed files, byte for byte. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";

const web = join(import.meta.dirname, "../..");
const committed = join(web, "../intercom/operators/web/page");
const built = mkdtempSync(join(tmpdir(), "intercom-page-"));

function filesIn(directory) {
  return readdirSync(directory, { recursive: true })
    .map((name) => join(directory, String(name)))
    .filter((path) => statSync(path).isFile())
    .map((path) => relative(directory, path))
    .sort();
}

try {
  const vite = join(web, "node_modules/vite/bin/vite.js");
  execFileSync(process.execPath, [vite, "build", "--outDir", built, "--emptyOutDir", "--logLevel", "warn"], {
    cwd: web,
    stdio: "inherit",
  });
  const names = new Set([...filesIn(committed), ...filesIn(built)]);
  const read = (directory, name) => {
    try {
      return readFileSync(join(directory, name));
    } catch {
      return null;
    }
  };
  const others = [...names].filter((name) => {
    const [before, after] = [read(committed, name), read(built, name)];
    return before === null || after === null || !before.equals(after);
  });
  if (others.length > 0) {
    console.error(
      `the committed page is not what the source makes: ${others.join(", ")};` +
        " run npm run build in web/, and commit intercom/operators/web/page",
    );
    process.exitCode = 1;
  } else {
    console.log(`the committed page is what the source makes: ${names.size} files`);
  }
} finally {
  rmSync(built, { recursive: true, force: true });
}
