/// <reference types="vitest/config" />
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const here = import.meta.dirname;

/** Writes the licences of all packages that are in the built page into one file. */
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle(_, bundle) {
      const directories = new Set<string>(["tailwindcss"].map((name) => join(here, "node_modules", name)));
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== "chunk") continue;
        for (const id of Object.keys(chunk.modules)) {
          const found = /^\0?(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1];
          if (found) directories.add(found);
        }
      }
      const notices = [...directories].map((directory) => {
        const about = JSON.parse(readFileSync(join(directory, "package.json"), "utf8")) as Record<string, string>;
        const file = readdirSync(directory).find((name) => /^licen[cs]e(\.|$)/i.test(name));
        const text =
          file && existsSync(join(directory, file)) ? readFileSync(join(directory, file), "utf8").trim() : "";
        return `${about["name"]} ${about["version"]} (${about["license"]})\n\n${text || "The package has no licence file."}`;
      });
      notices.sort();
      const source = `This page contains these packages.\n\n${notices.join(`\n\n${"-".repeat(80)}\n\n`)}\n`;
      this.emitFile({ type: "asset", fileName: "licenses.txt", source });
    },
  };
}

/** Puts the stylesheet before the scripts, and `early` before the others: the browser asks for them first, and paints
 *  and asks who is signed in while the others are on their way. */
function firstThings(): Plugin {
  return {
    name: "first-things",
    transformIndexHtml: {
      order: "post",
      handler: (html, { bundle }) => {
        const [sheet] = /[^\n]*<link rel="stylesheet"[^\n]*\n/.exec(html) ?? [];
        const early = Object.values(bundle ?? {}).find((each) => each.type === "chunk" && each.name === "early");
        if (!sheet || !early) return html;
        const script = `    <script type="module" crossorigin src="/${early.fileName}"></script>\n`;
        return html
          .replace(sheet, "")
          .replace(/[^\n]*<link rel="modulepreload"[^\n]*early-[^\n]*\n/, "")
          .replace(/[^\n]*<script type="module"/, (others) => sheet + script + others);
      },
    },
  };
}

export default defineConfig({
  plugins: [react(), tailwindcss(), firstThings(), licences()],
  resolve: {
    alias: {
      "@": join(here, "src"),
      "react-remove-scroll": join(here, "src/lib/no-scroll-lock.tsx"),
    },
  },
  build: {
    outDir: join(here, "../intercom/operators/web/page"),
    emptyOutDir: true,
    sourcemap: false,
    target: "es2023",
    // Nothing inline: the content security policy has no exception.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // The first view may have 300 KB of packed JavaScript; a test measures that.
    chunkSizeWarningLimit: 800,
    rollupOptions: {
      input: {
        index: join(here, "index.html"),
        early: join(here, "src/early.ts"),
        sw: join(here, "src/service-worker.ts"),
      },
      // A service worker has one address for ever: browsers look there for a newer one.
      output: { entryFileNames: ({ name }) => (name === "sw" ? "sw.js" : "assets/[name]-[hash].js") },
    },
  },
  // Nothing is measured by these limits: a busy machine takes several times what an idle one does.
  test: { include: ["tests/*.test.ts"], environment: "node", testTimeout: 60_000 },
});
