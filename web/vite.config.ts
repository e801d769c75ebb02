import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// `glass serve` prints its address; name it here to work on the page with a server beside it:
//   GLASS_SERVER=http://127.0.0.1:8000 npm run dev
const server = process.env.GLASS_SERVER ?? "http://127.0.0.1:8000";

export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/glassformer/app/server/page",
    emptyOutDir: true,
    modulePreload: { polyfill: false }, // it would be an inline script, which the content policy refuses
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
  server: { proxy: { "/api": server, "/v1": server } },
});
