// The page in a real browser: every view, what controls change, files that are dropped, themes, widths, and accessibility.

import { readFileSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { address, cli, drop, open, root, run, serve, settled, shell, shot, start, type Served } from "./server";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SMALL_PLAN = "chips=h100-sxm,l4&most=2&rate=1&input=200&output=50&proof=300";
const VIEWS: readonly (readonly [string, string])[] = [
  ["limits", "#limits?open=time,memory,operators,sources,sweep,link"],
  ["capacity", "#capacity?hardware=rtx-4090&host=8&crowd=100&open=lengths,tiers,start,link"],
  ["serve", "#serve?requests=300&open=levels,steps,where,sweep,link"],
  ["plan", `#plan?${SMALL_PLAN}&open=ranked,read,lost,curves,launch,link`],
  ["measure", "#measure"],
  ["accuracy", "#accuracy?open=machines"],
];
const RESULT = JSON.stringify({
  completed: 8, failed: 0, num_prompts: 8, request_rate: "inf", max_concurrency: 4, total_input_tokens: 1600, total_output_tokens: 400,
  mean_ttft_ms: 60, mean_tpot_ms: 9, mean_e2el_ms: 500,
});

let server: Served;
let browser: Browser;

beforeAll(async () => {
  server = await serve(["--measured", "examples/measured.csv"]);
  browser = await start();
});

afterAll(async () => {
  await browser?.close();
  server?.stop();
});

const at = (hash: string) => `${server.url}/${hash}`;

/** Sets a range to its `index`-th value. */
const slide = (page: Page, label: string, index: number) =>
  page.getByLabel(label, { exact: true }).evaluate((input, value) => {
    (input as HTMLInputElement).value = String(value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }, index);

const shown = (page: Page, id: string): Promise<number> => page.locator(id).first().evaluate((e) => Number((e as HTMLElement).dataset["ms"] ?? (e as HTMLElement).dataset["value"]));

async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  return await page.evaluate(async () => {
    const found = await (window as unknown as { axe: { run: () => Promise<{ violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[] }> } }).axe.run();
    return found.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html.slice(0, 160)} ${n.failureSummary ?? ""}`));
  });
}

/** Titles, cells and texts of charts that end outside the screen or their own box. */
const cut = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const outside = (e: Element) => {
      const { left, right } = e.getBoundingClientRect();
      const box = e.closest(".measured")?.getBoundingClientRect() ?? { left: 0, right: document.documentElement.clientWidth };
      return left < box.left - 1 || right > box.right + 1 || (e instanceof HTMLElement && e.scrollWidth > e.clientWidth + 1);
    };
    const all = [...document.querySelectorAll("#main h3, #main summary, .deployment, .facts dd, .about, #main td, .chart text, .drawn svg text, .field label, .key li")];
    return all.filter((e) => e.checkVisibility() && outside(e)).map((e) => `${e.tagName} ${e.textContent ?? ""}`);
  });

describe("every view", () => {
  for (const [name, hash] of VIEWS) {
    it(`${name} renders without a complaint at three widths and in both themes, asks nobody else, and axe finds nothing`, async () => {
      const { page, faults, close } = await open(browser, at(hash));
      await settled(page);
      expect(await page.locator("[role=alert]").count()).toBe(0);
      expect(await page.locator("nav a[aria-current]").textContent()).toBe(name[0]?.toUpperCase() + name.slice(1));
      for (const theme of ["light", "dark"]) {
        for (const width of [390, 760, 1280]) {
          await page.setViewportSize({ width, height: 900 });
          await page.waitForTimeout(100);
          await page.evaluate(() => document.querySelectorAll("details.more").forEach((more) => more.setAttribute("open", "")));
          // Nothing is wider than the screen.
          expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
          if (width === 390) expect(await cut(page)).toEqual([]);
          await shot(page, `${name}-${width}-${theme}`);
          if (width !== 760) expect(await violations(page)).toEqual([]);
        }
        if (theme === "light") await page.getByRole("button", { name: "Dark theme" }).click();
      }
      expect(faults).toEqual([]);
      await close();
    });
  }
});

describe("limits", () => {
  it("a slider changes the figures to those of the command line", async () => {
    const { page, faults, close } = await open(browser, at("#limits"));
    await settled(page);
    const before = await shown(page, "#forecast");
    await slide(page, "Batch", 0);
    await slide(page, "Context", 0);
    await page.waitForFunction((old) => Number(document.getElementById("forecast")?.dataset["ms"]) !== old, before);
    await settled(page);
    const answer = cli(["limits", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--hardware", "h100-sxm", "--batch", "1", "--context", "128"]) as { decode: Record<string, number> };
    expect(await shown(page, "#limit")).toBe(answer.decode["limit_with_communication_ms"]);
    expect(await shown(page, "#forecast")).toBe(answer.decode["forecast_ms"]);
    await address(page, "batch=1&context=128");
    expect(faults).toEqual([]);
    await close();
  });

  it("the command that it shows answers the same", async () => {
    const { page, close } = await open(browser, at("#limits?model=Qwen/Qwen3-32B&hardware=h200-sxm&count=4&tp=2&weights=fp8&kv=fp8&engine=sglang&batch=48&open=link"));
    await settled(page);
    const command = await page.locator(".command pre").first().textContent();
    const answer = shell(command ?? "") as { decode: Record<string, number> };
    expect(await shown(page, "#forecast")).toBe(answer.decode["forecast_ms"]);
    await close();
  });

  it("says whether the engine starts, and if not what would do", async () => {
    const { page, close } = await open(browser, at("#limits?hardware=rtx-4090&batch=1"));
    await settled(page);
    // One request of Llama-3.1-8B's 131,072 tokens needs 16 GiB beside 15 GiB of weights.
    expect(await page.locator("#starts").textContent()).toBe("no");
    expect(await page.getByText("vllm does not start").textContent()).toContain("max_model_len up to");
    await close();
  });

  it("a dropped config is the model", async () => {
    const { page, faults, close } = await open(browser, at("#limits?hardware=rtx-4090&batch=1"));
    await settled(page);
    await page.getByText("More: formats").click();
    await drop(page, [{ name: "config.json", text: readFileSync(join(root, "examples/own-model/config.json"), "utf8") }]);
    await page.locator(".said").waitFor();
    await settled(page);
    const answer = cli(["limits", "--model", "examples/own-model/config.json", "--hardware", "rtx-4090", "--batch", "1", "--context", "4096"]) as { decode: Record<string, number> };
    await page.waitForFunction((ms) => Number(document.getElementById("forecast")?.dataset["ms"]) === ms, answer.decode["forecast_ms"]);
    await drop(page, [{ name: "model.safetensors.index.json", text: "{}" }]);
    await page.getByText("drop the config.json with them").waitFor();
    expect(faults).toEqual([]);
    await close();
  });

  it("says what is wrong in the server's words and keeps the last answer", async () => {
    const { page, close } = await open(browser, at("#limits"));
    await settled(page);
    await page.getByLabel("Accelerator", { exact: true }).fill("h1000");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("alert").textContent()).toContain('no accelerator named "h1000"');
    expect(await page.locator("#limit").count()).toBe(1);
    await close();
  });

  it("is read with the keyboard", async () => {
    const { page, close } = await open(browser, at("#limits"));
    await settled(page);
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.className)).toBe("skip");
    await page.keyboard.press("Enter");
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("main");
    await page.locator(".operator").first().focus();
    expect(await page.locator(".readout").textContent()).toMatch(/max\(.* [A-Z]FLOP\/s, .* [A-Z]B\/s\) = limit .*-bound; forecast/);
    await close();
  });
});

describe("numbers", () => {
  it("are read as flags are, and what is none is refused at its control", async () => {
    const { page, faults, close } = await open(browser, at("#limits?batch=8k"));
    await settled(page);
    const limits = (batch: string) => cli(["limits", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--hardware", "h100-sxm", "--batch", batch, "--context", "4096"]) as { decode: Record<string, number> };
    const answer = limits("8k").decode["limit_with_communication_ms"];
    expect(answer).toBe(limits("8000").decode["limit_with_communication_ms"]);
    expect(await shown(page, "#limit")).toBe(answer);
    const batch = page.getByLabel("Batch, as a number");
    await batch.fill("4O");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("alert").textContent()).toBe('Batch is "4O"; accepted: a whole number from 1 to 2^30, as 4096 or 8k');
    expect(await batch.getAttribute("aria-invalid")).toBe("true");
    // The answer before stays, and is that of 8000.
    expect(await shown(page, "#limit")).toBe(answer);
    await batch.fill("40");
    await page.keyboard.press("Enter");
    await expect.poll(() => shown(page, "#limit")).toBe(limits("40").decode["limit_with_communication_ms"]);
    expect(await page.getByRole("alert").count()).toBe(0);
    expect(faults.filter((fault) => !fault.includes("400"))).toEqual([]);
    await close();
  });

  it("of traffic are, too", async () => {
    const { page, close } = await open(browser, at("#serve?requests=0.1k&input=1K&output=50&ttft=2s&open=link"));
    await settled(page);
    const told = shell((await page.locator(".command pre").first().textContent()) ?? "") as Record<string, number>;
    expect(told["total_input_tokens"]).toBe(100 * 1024);
    expect(await shown(page, "[data-figure=mean_ttft_ms]")).toBe(told["mean_ttft_ms"]);
    expect(await page.locator(".command pre").nth(1).textContent()).toContain('input_len = "1K"');
    await page.getByLabel("Prompt length").fill("4O");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: /Run/ }).click();
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("alert").textContent()).toBe('Prompt length is "4O"; accepted: a whole number, as 4096 or 8k');
    expect(await page.getByLabel("Prompt length").getAttribute("aria-invalid")).toBe("true");
    await close();
  });
});

it("a link with what means nothing here says so", async () => {
  const { page, faults, close } = await open(browser, at("#limits?batch=8&btach=9&pareto=yes"));
  await settled(page);
  expect(await page.locator("#unknown").textContent()).toContain("btach=9, pareto=yes");
  await page.locator("nav a", { hasText: "Capacity" }).click();
  await settled(page);
  expect(await page.locator("#unknown").count()).toBe(0);
  expect(faults).toEqual([]);
  await close();
});

describe("the question that nobody changed", () => {
  const load = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--input-len", "1000", "--output-len", "250", "--rate", "10"];

  it("of a run has the figures of the command line with the same words", async () => {
    const { page, faults, close } = await open(browser, at("#serve"));
    await settled(page);
    const told = cli(["simulate", "--hardware", "h100-sxm", ...load]) as Record<string, number>;
    expect(await shown(page, "[data-figure=mean_ttft_ms]")).toBe(told["mean_ttft_ms"]);
    expect(await shown(page, "[data-figure=request_throughput]")).toBe(told["request_throughput"]);
    expect(await page.locator(".question").textContent()).toContain("10.00 requests/s, 1000 prompt and 250 output tokens each");
    // The spread is in sight, and lengths are alike.
    expect(await page.getByLabel("Spread of lengths").isVisible()).toBe(true);
    expect(await page.getByLabel("Spread of lengths").inputValue()).toBe("fixed");
    expect(faults).toEqual([]);
    await close();
  });

  it("of a plan has the best of the command line with the same words", async () => {
    const { page, faults, close } = await open(browser, at("#plan?chips=h100-sxm,l40s&most=2&proof=1000&open=ranked"));
    await settled(page);
    const told = cli(["plan", "--hardware", "h100-sxm,l40s", "--max-accelerators", "2", "--requests", "1000", ...load]) as { best: Record<string, number>; ranked: { chance: number }[] };
    expect(await shown(page, "[data-figure=cost_per_hour]")).toBe(told.best["cost_per_hour"]);
    const chances = await page.getByRole("region", { name: /best first/ }).locator("tbody tr td:nth-child(2)").allTextContents();
    expect(chances.map((text) => Number.parseFloat(text)).map(Math.round)).toEqual(told.ranked.map((d) => Math.round(100 * d.chance)));
    expect(faults).toEqual([]);
    await close();
  });
});

describe("traffic", () => {
  for (const [name, asked, words] of [
    ["conversations", "load=talks&users=4&turns=3&think=500ms&requests=60&input=300&output=40", ["4 conversations at a time", "3 turns a conversation", "0.50"]],
    ["conversations at a rate", "load=talk-rate&rate=2&turns=2&requests=60&input=300&output=40", ["2.00 conversations/s", "2 turns a conversation"]],
    ["users who think", "load=users&users=4&think=2&requests=60&input=300&output=40", ["4 users who think 2.00 s"]],
    ["shared prefixes", "shared=1k&prefixes=2&sharing=0.5&requests=60&input=300&output=40", ["1,000 tokens shared of 2 prefixes by 50 %"]],
    ["an offline job", "load=offline&requests=60&input=300&output=40", ["60 requests, all at the start"]],
  ] as const) {
    it(`of ${name} is asked, with the figures of the command it shows`, async () => {
      const { page, faults, close } = await open(browser, at(`#serve?${asked}&open=link`));
      await settled(page);
      const told = shell((await page.locator(".command pre").first().textContent()) ?? "") as Record<string, number>;
      expect(await shown(page, "[data-figure=mean_ttft_ms]")).toBe(told["mean_ttft_ms"]);
      const question = await page.locator(".question").textContent();
      for (const word of words) expect(question).toContain(word);
      expect(faults).toEqual([]);
      await close();
    });
  }
});

describe("capacity", () => {
  it("is that of the command it shows", async () => {
    const { page, faults, close } = await open(browser, at("#capacity?context=2048&batch=8&host=32&storage=500&crowd=1000&over=200&open=tiers,link"));
    await settled(page);
    const command = await page.locator(".command pre").first().textContent();
    const answer = shell(command ?? "") as { max_batch: number; kv_tokens: number; host_kv_tokens: number; storage_kv_tokens: number; deployments_for_users: number };
    expect(await shown(page, "#most")).toBe(answer.max_batch);
    expect(await shown(page, "#kv-tokens")).toBe(answer.kv_tokens);
    // 32 GiB over the 131,072 B of a token.
    expect([await shown(page, "#host-tokens"), answer.host_kv_tokens]).toEqual([262144, 262144]);
    // 500 GiB over 131,072 B.
    expect([await shown(page, "#storage-tokens"), answer.storage_kv_tokens]).toEqual([4096000, 4096000]);
    expect(Number(await page.locator("#deployments").textContent())).toBe(answer.deployments_for_users);
    await slide(page, "Length of a request", 0);
    await page.waitForFunction((old) => Number(document.getElementById("most")?.dataset["value"]) !== old, answer.max_batch);
    await address(page, "context=128");
    expect(faults).toEqual([]);
    await close();
  });

  it("says why an engine does not start, and with what it would", async () => {
    const { page, close } = await open(browser, at("#capacity?hardware=rtx-4090"));
    await settled(page);
    expect(await page.locator("#starts").textContent()).toBe("no");
    const longest = /max_model_len up to (\d+)/.exec((await page.locator("#refusal").textContent()) ?? "")?.[1] ?? "";
    await page.getByText("More: formats").click();
    await page.getByLabel("max_model_len").fill(longest);
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.getElementById("starts")?.textContent === "yes");
    expect(await page.locator("#refusal").count()).toBe(0);
    await close();
  });
});

it("memory ends where the card does", async () => {
  const { page, close } = await open(browser, at("#capacity?model=meta-llama/Llama-3.1-70B-Instruct&hardware=h100-sxm"));
  await settled(page);
  const bar = page.locator("svg", { has: page.locator(".card-end") }).first();
  expect(await bar.getAttribute("aria-label")).toMatch(/weights 141 GB, .*; end of the card, 85.9 GB$/);
  const [mark, width] = [Number(await page.locator(".card-end").first().getAttribute("x1")), Number(await bar.getAttribute("width"))];
  // 85.9 GB of at least 141 GB.
  expect(mark / width).toBeGreaterThan(0.5);
  expect(mark / width).toBeLessThan(0.61);
  await close();
});

describe("a run", () => {
  it("has classes, failures and emissions with the figures of the command it shows", async () => {
    const asked = "classes=chat+0.8+400+60+1000+50;+batch+0.2+2000+80&mtbf=5&restart=1&grid=400&pue=1.2&requests=400&rate=8&open=where,link";
    const { page, faults, close } = await open(browser, at(`#serve?${asked}`));
    await settled(page);
    await page.locator("#classes tbody tr").nth(1).waitFor();
    const command = await page.locator(".command pre").first().textContent();
    const told = shell(command ?? "") as { classes: { name: string; requests: number }[]; fleet: { failures: { count: number } }; expense: { carbon: { grams: number } } };
    const cells = await page.locator("#classes tbody tr").first().locator("td, th").allTextContents();
    expect([cells[0], cells[1], cells[2]]).toEqual(["chat", "TTFT p99 ≤ 1 s, TPOT p99 ≤ 50 ms", String(told.classes[0]?.requests)]);
    expect(told.fleet.failures.count).toBeGreaterThan(0);
    expect(await page.locator("#failures").textContent()).toContain(`${told.fleet.failures.count} failure`);
    expect(await page.locator("#carbon").textContent()).toMatch(/g CO₂e, .* g per million output tokens/);
    await shot(page, "serve-classes");
    expect(faults).toEqual([]);
    await close();
  });

  it("says how the first requests of users wait", async () => {
    const { page, faults, close } = await open(browser, at("#serve?load=users&users=16&requests=200&input=300&output=60"));
    await settled(page);
    expect(await page.locator("#first-wave").textContent()).toContain("the first 16 requests wait");
    expect(faults).toEqual([]);
    await close();
  });
});

describe("a sweep", () => {
  it("of a step is drawn, with the figures of the command it shows", async () => {
    const { page, faults, close } = await open(browser, at("#limits?open=sweep&sweep=batch&values=1..64:x4&context=1024"));
    await settled(page);
    await page.locator(".swept .drawn > svg").waitFor();
    const told = shell((await page.locator(".command pre").first().textContent()) ?? "") as { points: { values: number[]; fits: boolean }[] };
    expect(told.points.map((p) => p.values[0])).toEqual([1, 4, 16, 64]);
    expect(await page.getByRole("region", { name: /over batch/ }).locator("tbody tr").count()).toBe(4);
    await page.getByLabel("Vary").selectOption("precision.weights");
    await page.locator(".swept text", { hasText: "fp8" }).first().waitFor();
    await address(page, "sweep=precision.weights");
    // Values that make no sense are refused in the words of the page; the picture before stays.
    await page.getByLabel("Over the values").fill("1..");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    const alert = await page.getByRole("alert").textContent();
    expect(alert).toContain("1..");
    expect(alert).not.toContain("--");
    expect(await page.locator(".swept .drawn > svg").count()).toBe(1);
    expect(faults).toEqual([]);
    await close();
  });

  it("of a run is drawn, with the figures of the command it shows", async () => {
    const { page, faults, close } = await open(browser, at("#serve?requests=200&input=300&output=60&open=sweep&values=2,4"));
    await settled(page);
    await page.locator(".swept .drawn > svg").waitFor();
    const told = shell((await page.locator(".command pre").first().textContent()) ?? "") as { points: { output_throughput: number }[] };
    const cells = await page.getByRole("region", { name: /over rate/ }).locator("tbody tr td:nth-child(4)").allTextContents();
    // The column "output tok/s" of the text, with at least three digits.
    expect(await page.getByRole("region", { name: /over rate/ }).locator("thead th").nth(3).textContent()).toBe("output tok/s");
    for (const [i, point] of told.points.entries()) expect(Number(cells[i]?.replaceAll(",", "")) / point.output_throughput).toBeCloseTo(1, 2);
    expect(faults).toEqual([]);
    await close();
  });
});

it("a run is that of the command it shows, and two stand side by side", async () => {
  const { page, faults, close } = await open(browser, at("#serve?requests=200&rate=4&input=300&output=60&spread=lognormal&ttft=1000&tpot=30&open=link,steps"));
  await settled(page);
  const command = await page.locator(".command pre").first().textContent();
  const answer = shell(command ?? "") as Record<string, number>;
  expect(await shown(page, "[data-figure=mean_ttft_ms]")).toBe(answer["mean_ttft_ms"]);
  expect(await shown(page, "[data-figure=request_throughput]")).toBe(answer["request_throughput"]);
  await page.getByText("Keep this run to compare").click();
  await page.getByLabel("Rate", { exact: true }).fill("8");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /Run/ }).click();
  await settled(page);
  await page.waitForFunction(() => document.querySelectorAll("[data-figure=mean_ttft_ms]").length === 2);
  // What was asked otherwise, and by how much each figure changed.
  expect(await page.locator("#compared").textContent()).toContain("workload.arrivals.rate: 8, kept 4");
  const served = page.locator("#compared tbody tr").first().locator("td");
  // The load is that of the requests which were drawn.
  const told = shell((await page.locator(".command pre").first().textContent()) ?? "") as Record<string, number>;
  const mean = (total: string) => Math.round((told[total] ?? 0) / (told["completed"] ?? 1));
  const drawn = (total: string, what: string) => `${mean(total)} ${what} \\(p50 \\d+, p99 \\d+\\)`;
  const load = `8\\.00 requests/s, ${drawn("total_input_tokens", "prompt")} and ${drawn("total_output_tokens", "output")} tokens on average`;
  expect(await page.locator(".question").first().textContent()).toMatch(new RegExp(`^${load}; SLO: TTFT p99 ≤ 1000 ms, TPOT p99 ≤ 30 ms$`));
  // The change is of the figures before they are rounded: what is shown leaves half of a last digit on either side.
  const [, now = "", then = "", change] = await served.allTextContents();
  const half = (shown: string) => 0.5 / 10 ** (shown.split(".")[1] ?? "").length;
  const least = (100 * (Number(now) - half(now))) / (Number(then) + half(then)) - 100;
  const greatest = (100 * (Number(now) + half(now))) / (Number(then) - half(then)) - 100;
  const percent = Number(/^\+(\d+) %$/.exec(change ?? "")?.[1]);
  expect(percent).toBeGreaterThanOrEqual(Math.round(least));
  expect(percent).toBeLessThanOrEqual(Math.round(greatest));
  await shot(page, "serve-compared");
  const before = await page.locator(".scrub output").textContent();
  await slide(page, "Step", 5);
  await page.waitForFunction((old) => document.querySelector(".scrub output")?.textContent !== old, before);
  expect(await page.getByRole("region", { name: "Requests at this step" }).locator("tbody tr").count()).toBeGreaterThan(0);
  expect(faults).toEqual([]);
  await close();
});

it("a plan is that of the command it shows, by any two quantities", async () => {
  const { page, faults, close } = await open(browser, at(`#plan?${SMALL_PLAN}&prices=h100-sxm=2.5,l4=0.5&power=h100-sxm=1200&open=link,ranked`));
  await settled(page);
  const command = await page.locator(".command pre").first().textContent();
  const answer = shell(command ?? "") as { best: Record<string, number>; ranked: unknown[] };
  expect(await shown(page, "[data-figure=cost_per_hour]")).toBe(answer.best["cost_per_hour"]);
  expect(command).toContain("--price h100-sxm=2.5,l4=0.5");
  // The page's own prices are those of the answer: 0.5 dollars for each L4, 2.5 for each H100.
  const each = { l4: 0.5, "h100-sxm": 2.5 }[String(answer.best["accelerator"])] ?? 0;
  expect(answer.best["cost_per_hour"]).toBeCloseTo(each * Number(answer.best["count"]), 9);
  expect(await page.getByRole("region", { name: /best first/ }).locator("tbody tr").count()).toBe(answer.ranked.length);
  await page.getByLabel("Upward", { exact: true }).selectOption("megawatt");
  await page.getByLabel("log upward").uncheck();
  expect(await page.locator(".dot").count()).toBe(answer.ranked.length);
  await address(page, "y=megawatt&logy=0");
  expect(faults).toEqual([]);
  await close();
});

it("the first picture of a plan has dollars upward, and its best is the lowest", async () => {
  // One rtx-4090 meets the SLO as forecast, with a chance of 60 %; two are the best.
  const { page, faults, close } = await open(browser, at("#plan?chips=rtx-4090&most=2&rate=3&proof=300&open=ranked"));
  await settled(page);
  expect(await page.locator(".picture .axis .name").nth(1).textContent()).toBe("price, $ an hour");
  const heights = await page.locator(".dot:not(.faded) circle:first-child").evaluateAll((all) => all.map((e) => Number(e.getAttribute("cy"))));
  const best = Number(await page.locator(".dot .ringed").getAttribute("cy"));
  expect(best).toBe(Math.max(...heights));
  expect(await page.locator(".dot.faded").count()).toBeGreaterThan(0);
  expect(await page.locator(".key li").filter({ hasText: "faded: meets the SLO as forecast, with a chance below 80 %" }).count()).toBe(1);
  const titles = await page.getByRole("region", { name: /best first/ }).locator("thead th").allTextContents();
  expect(titles.slice(0, 3)).toEqual(["deployment", "chance", "$ an hour"]);
  expect(faults).toEqual([]);
  await close();
});

it("curves are drawn, with the figures of the command line, in the colours of the page", async () => {
  const { page, faults, close } = await open(browser, at(`#plan?${SMALL_PLAN}&open=curves,link`));
  await settled(page);
  await page.locator("#curves .drawn > svg").waitFor();
  await settled(page);
  const command = await page.locator(".command pre").first().textContent();
  const told = shell(`${command} --curve`) as { curves: { name: string; points: unknown[]; best: { users: number } }[] };
  expect(await page.locator("#curves polyline").count()).toBe(2 * told.curves.length);
  expect(await page.getByRole("region", { name: /Points of the curves/ }).locator("tbody tr").count()).toBe(told.curves.flatMap((c) => c.points).length);
  const best = await page.getByRole("region", { name: /keeps the SLO/ }).locator("tbody tr td:nth-child(2)").allTextContents();
  expect(best.map(Number).sort()).toEqual(told.curves.map((c) => c.best.users).sort());
  const stroke = () => page.locator("#curves polyline").first().evaluate((e) => getComputedStyle(e).stroke);
  const light = await stroke();
  await page.getByRole("button", { name: /Dark theme|Light theme/ }).click();
  await expect.poll(stroke).not.toBe(light);
  expect(faults).toEqual([]);
  await close();
});

it("accelerators are ticked in a list with memory and price", async () => {
  const { page, faults, close } = await open(browser, at(`#plan?${SMALL_PLAN}`));
  await settled(page);
  await page.getByText("Tick them in a list").click();
  const chips = page.getByRole("group", { name: "Accelerators to choose from" });
  expect(await chips.getByText("h200-sxm").textContent()).toMatch(/h200-sxm \d+ GB, \$\d+\.\d\d an hour/);
  await chips.getByLabel(/^h200-sxm /).check();
  await address(page, "chips=h100-sxm,l4,h200-sxm");
  await chips.getByLabel(/^l4 /).uncheck();
  await address(page, "chips=h100-sxm,h200-sxm");
  expect(faults).toEqual([]);
  await close();
});

it("memory says from how many accelerators a model fits", async () => {
  const { page, faults, close } = await open(browser, at("#limits?model=meta-llama/Llama-3.1-70B-Instruct&hardware=h100-sxm&batch=8&open=memory"));
  await settled(page);
  // 141 GB of weights do not fit 80 GB: two hold them, and eight requests of 4096 tokens take 10.7 GB more.
  expect(await page.locator("#fits-from").textContent()).toMatch(/^fits from [24] × NVIDIA H100/);
  expect(faults).toEqual([]);
  await close();
});

it("what is typed while a plan runs is kept", async () => {
  const { page, faults, close } = await open(browser, at(`#plan?${SMALL_PLAN}`));
  await settled(page);
  await page.getByRole("button", { name: "Plan again" }).click();
  const rate = page.getByLabel("Rate", { exact: true });
  await rate.focus();
  await page.keyboard.press("ControlOrMeta+A");
  await page.keyboard.type("2.5");
  // Messages and the answer draw the view again; the value is not taken yet.
  await settled(page);
  expect(await rate.inputValue()).toBe("2.5");
  await rate.blur();
  await page.getByRole("button", { name: "Plan what is asked now" }).waitFor();
  await address(page, "rate=2.5");
  expect(faults).toEqual([]);
  await close();
});

it("a client's results are dropped and judged", async () => {
  const { page, faults, close } = await open(browser, at("#measure"));
  await drop(page, [{ name: "result.json", text: RESULT }]);
  await page.locator("#advice").waitFor();
  await settled(page);
  expect(await page.locator("#advice").textContent()).toContain("weights");
  await shot(page, "measure-result");
  await drop(page, [{ name: "wrong.json", text: "{}" }]);
  await page.getByRole("alert").waitFor();
  expect(await page.getByRole("alert").textContent()).toContain("wrong.json");
  expect(faults).toEqual([]);
  await close();
});

it("evidence is read down to the row", async () => {
  const { page, faults, close } = await open(browser, at("#accuracy"));
  await settled(page);
  // Accelerator, model, topology.
  for (let level = 0; level < 3; level += 1) {
    await page.getByRole("region", { name: /Errors of/ }).locator("tbody button").first().click();
    await address(page, "chip=");
  }
  expect(await page.getByRole("region", { name: "Rows" }).locator("tbody tr").count()).toBeGreaterThan(0);
  expect(faults).toEqual([]);
  await close();
});

it("a theme that is chosen stays", async () => {
  const { page, close } = await open(browser, at("#limits"), { colorScheme: "light" });
  const theme = (): Promise<string | undefined> => page.evaluate(() => document.documentElement.dataset["theme"]);
  await page.getByRole("button", { name: "Dark theme" }).click();
  // It is written when the page has drawn it.
  await expect.poll(theme).toBe("dark");
  await page.reload();
  await expect.poll(theme).toBe("dark");
  await close();
});

it("what is shown is downloaded as CSV", async () => {
  const { page, close } = await open(browser, at("#limits?open=operators"));
  await settled(page);
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByText("Download CSV").click()]);
  const text = readFileSync(await file.path(), "utf8");
  expect(text.split("\r\n")[0]).toBe("operator,dtype,layers,FLOPs,weights,KV,FLOP/B,bottleneck,limit,forecast,efficiency,based on,formula");
  expect(text).toContain("attention,bf16,32,");
  await close();
});

it("a file that --html writes is the same view without a server", async () => {
  const folder = mkdtempSync(join(tmpdir(), "roofcast-"));
  for (const [words, text, chart = ".chart"] of [
    [["plan", "--curve", "--hardware", "h100-sxm,l4", "--max-accelerators", "2"], "The most load that keeps the SLO", ".drawn svg"],
    [["limits", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--hardware", "h100-sxm"], "Llama-3.1-8B-Instruct on 1 × NVIDIA H100"],
    [["simulate", "--requests", "100"], "Llama-3.1-8B-Instruct on 1 × h100-sxm, vllm"],
    [["validate", "examples/measured.csv"], "rows, "],
  ] as const) {
    const path = join(folder, `${words[0]}.html`);
    run([...words, "--html", path]);
    const { page, faults, close } = await open(browser, `file://${path}`);
    await page.getByText(text).first().waitFor();
    expect(await page.locator(chart).count()).toBeGreaterThan(0);
    expect(await page.locator("form").count()).toBe(0);
    expect(faults).toEqual([]);
    await shot(page, `html-${words[0]}`);
    await close();
  }
  rmSync(folder, { recursive: true });
});
