import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import preact from "@preact/preset-vite";
import { defineConfig, type Plugin } from "vite";

/** Write the licences of the packages that modules of the build come from. */
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle() {
      const packages = [...this.getModuleIds()].map((id) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1]);
      const texts = [...new Set(packages)]
        .filter((name) => name !== undefined)
        .sort()
        .map((name) => {
          const folder = join("node_modules", name);
          const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf-8")) as Record<string, string>;
          const file = readdirSync(folder).find((each) => /^licen[sc]e/i.test(each));
          if (file === undefined) throw new Error(`${name} has no licence file`);
          return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf-8").trim()}\n`;
        });
      // Outside of the assets, whose names have a hash and whose content never changes.
      this.emitFile({ type: "asset", fileName: "console/licences.txt", source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

// `base` is relative and the assets are below `console/`: the page at <ApiUrl>/console finds them at any base path.
export default defineConfig({
  base: "./",
  plugins: [preact(), licences()],
  build: {
    outDir: "served/static",
    emptyOutDir: true,
    assetsDir: "console/assets",
    assetsInlineLimit: 0, // the Content Security Policy allows no inline script
    modulePreload: { polyfill: false },
    target: "es2022",
    rolldownOptions: {
      // What every page uses is one file beside the first page, so that the first sight takes few requests.
      output: { codeSplitting: { groups: [{ name: "shared", test: /src\/(api|session|texts|parts\/(time|problem|codes|units))\.tsx?$|node_modules\/(preact|@preact|openapi-fetch)\// }] } },
    },
  },
});
