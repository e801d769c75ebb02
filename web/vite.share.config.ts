import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

/** Views of a shared file, which `src/share/answers/index.ts` answers. */
const INSIDE = ["Write", "Tokens", "Attention", "Score", "Heads", "Focus", "Alignment", "Lens", "Receipt", "Sampling"];

/**
 * The page of `glass share`: one file, into which `app/share/package.py` puts a model.
 *
 * Its content security policy allows only its own script and style, by their hashes, and no requests.
 */
export default defineConfig({
  base: "./",
  plugins: [iconInside(), withoutViews(), svelte(), oneFile()],
  publicDir: false,
  build: {
    outDir: "../src/glassformer/app/share/page",
    emptyOutDir: true,
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: true,
    rolldownOptions: { input: "share.html", output: { codeSplitting: false } },
  },
});

/** Embed the icon as a data URL, because a shared file has no other files. */
function iconInside(): Plugin {
  const icon = `data:image/svg+xml;base64,${readFileSync(new URL("public/favicon.svg", import.meta.url)).toString("base64")}`;
  return {
    name: "icon-inside",
    enforce: "pre",
    transform: (code, id) => (id.endsWith(".svelte") ? code.replaceAll("./favicon.svg", icon) : null),
    transformIndexHtml: { order: "pre", handler: (html) => html.replaceAll("./favicon.svg", icon) },
  };
}

/** Leave out the views that only a server can answer; `share.ts` does not show them. */
function withoutViews(): Plugin {
  return {
    name: "without-views",
    enforce: "pre",
    transform: (code, id) =>
      id.endsWith("src/views/index.ts")
        ? code.replaceAll(/import\("\.\/(\w+)\.svelte"\)/g, (found, name: string) => (INSIDE.includes(name) ? found : "Promise.reject()"))
        : null,
  };
}

/** Embed the script and the style in the page. */
function oneFile(): Plugin {
  return {
    name: "one-file",
    enforce: "post",
    generateBundle: { order: "post", handler(_, bundle) {
      let [script, style] = ["", ""];
      for (const [name, file] of Object.entries(bundle)) {
        if (file.type === "chunk") script += file.code;
        else if (name.endsWith(".css")) style += String(file.source);
        else continue;
        delete bundle[name];
      }
      const page = bundle["share.html"];
      if (page?.type !== "asset") throw new Error("the build has no share.html");
      script = script.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
      const policy = [
        "default-src 'none'", `script-src '${hash(script)}'`, `style-src '${hash(style)}'`, "img-src data: blob:",
        "base-uri 'none'", "form-action 'none'",
      ].join("; ");
      const parts: Record<string, string> = {
        "<!--glass:policy-->": `<meta http-equiv="Content-Security-Policy" content="${policy}" />`,
        "<!--glass:style-->": `<style>${style}</style>`,
        "<!--glass:script-->": `<script type="module">${script}</script>`,
      };
      const bare = String(page.source).replaceAll(/\s*<(script|link)[^>]*(src|stylesheet)[^>]*>(<\/script>)?/g, (tag) =>
        tag.includes("icon") ? tag : "",
      );
      page.source = Object.entries(parts).reduce((text, [mark, part]) => text.replace(mark, () => part), bare);
    } },
  };
}

function hash(text: string): string {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}
