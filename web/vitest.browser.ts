import { defineConfig } from "vitest/config";

// A browser and a server are started once for all tests of a file.
export default defineConfig({
  test: { fileParallelism: false, testTimeout: 180_000, hookTimeout: 60_000 },
});
