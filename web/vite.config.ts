import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Address of a running `glass serve` for the development server:
//   GLASS_SERVER=http://127.0.0.1:8000 npm run dev
const server = process.env.GLASS_SERVER ?? "http://127.0.0.1:8000";

export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/glassformer/app/server/page",
    emptyOutDir: true,
    modulePreload: { polyfill: false }, // the polyfill would be an inline script, which the content security policy forbids
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
  server: { proxy: { "/api": server, "/v1": server } },
});
