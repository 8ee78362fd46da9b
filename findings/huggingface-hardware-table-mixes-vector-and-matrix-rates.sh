#!/usr/bin/env bash
# @huggingface/tasks: the "tflops" of the hub's hardware table are FP16 of the vector units for some GPUs, of the matrix units for others.
#
# Guessed: one kind of rate for all, the dense FP16 or BF16 rate of the matrix units (H100 SXM 989, A100 312, L4 121,
#   RTX 4090 165), so that a ratio of two entries is about the ratio of their prefill speeds.
# Happens (0.21.54): H100 267.6, H200 241.3, A100 77.97, L4 30.29, RTX 4090 82.58 are FP16 without tensor cores, 2 to 4 times too low,
#   but T4 65.13 and H20 148 are the rates of the matrix units. So an H200 is slower than the H100 of the same chip; a T4 beats an
#   L4 by 2.2 (it has half its matrix rate); A100 / T4 is 1.2 (4.8 by matrix rates). B300 has 1232 beside the B200's 496.6 (by
#   NVIDIA's tables both have about 2,250 dense), and its memory is right. Compute capabilities: B300 and B200 both 10.0 (a B300 is 10.3).
#   The type's comment says that values are approximate and theoretical, not that they are of two kinds.
# Why it matters: the table is what the hub's "hardware compatibility" and tools that import the package know of a GPU. As a
#   roofline it is wrong by factors of 1 to 4, and by another factor for each GPU, so no calibration mends it.
# Matrix rates: NVIDIA's datasheets (dense, FP16 with FP32 accumulation; RTX 4090: Ada whitepaper). Takes seconds, 3 MB, needs node.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
cd "$d"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund --ignore-scripts --save-exact @huggingface/tasks@0.21.54
cat > t.mjs <<'JS'
import { SKUS } from "@huggingface/tasks";
import { readFileSync } from "node:fs";
console.log("@huggingface/tasks", JSON.parse(readFileSync("node_modules/@huggingface/tasks/package.json")).version);
const table = SKUS.GPU.NVIDIA;
// name: [rate in the table, dense matrix rate by the datasheet]
const stated = { H200: [241.3, 989], H100: [267.6, 989], A100: [77.97, 312], L4: [30.29, 121], "RTX 4090": [82.58, 165.2], T4: [65.13, 65], H20: [148, 148] };
for (const [name, [rate, matrix]] of Object.entries(stated)) {
  const found = table[name].tflops;
  console.log(name.padEnd(9), "table", String(found).padStart(6), " matrix units", String(matrix).padStart(6), " ratio", (matrix / found).toFixed(2));
  if (found !== rate) throw new Error(`${name}: ${found}, stated ${rate}`);
}
console.log("B300", table.B300.tflops, "B200", table.B200.tflops, "compute capability", table.B300.computeCapability, table.B200.computeCapability);
if (table.B300.tflops !== 1232 || table.B200.tflops !== 496.6 || table.B300.computeCapability !== 10) throw new Error("Blackwell");
if (!(table.H200.tflops < table.H100.tflops && table.T4.tflops > 2 * table.L4.tflops)) throw new Error("order");
console.log("as stated");
JS
node t.mjs
