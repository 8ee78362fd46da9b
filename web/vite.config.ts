import { defineConfig } from "vite";

// Three files of fixed names, which the binary embeds.
export default defineConfig({
  build: {
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        assetFileNames: "page.[ext]",
        codeSplitting: false,
      },
    },
  },
  // `npm run dev` beside `roofcast serve`, which answers only requests whose origin is their host.
  server: { proxy: { "/api": { target: "http://127.0.0.1:7663", changeOrigin: false } } },
});
