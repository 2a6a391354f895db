import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

// `base` is relative and the assets are below `console/`: the page at <ApiUrl>/console finds them at any base path.
export default defineConfig({
  base: "./",
  plugins: [preact()],
  build: {
    outDir: "served/static",
    emptyOutDir: true,
    assetsDir: "console/assets",
    assetsInlineLimit: 0, // the Content Security Policy allows no inline script
    modulePreload: { polyfill: false },
    target: "es2022",
  },
});
