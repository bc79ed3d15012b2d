import { defineConfig } from "vite";

// The names of the built files carry a hash of their content, so the server lets browsers keep them for good.
export default defineConfig({
  root: "ui",
  // `license`: the notices of what is built in travel with it.
  build: { outDir: "../static", emptyOutDir: true, target: "es2022", license: { fileName: "licenses.md" } },
  server: { proxy: { "/api": "http://127.0.0.1:8000" } },
});
