// What the browser tests run on: the binary with the page in it, and Debian's Chromium.

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";

export const root = fileURLToPath(new URL("../../", import.meta.url));
const binary = process.env["ROOFCAST"] ?? `${root}target/debug/roofcast`;
const shots = fileURLToPath(new URL("../shots/", import.meta.url));

export interface Served {
  url: string;
  stop: () => void;
}

/** A server on a free port. */
export async function serve(flags: readonly string[] = []): Promise<Served> {
  const process: ChildProcess = spawn(binary, ["serve", "--port", "0", ...flags], { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  if (!process.stdout) throw new Error("no output");
  for await (const line of createInterface({ input: process.stdout })) {
    const url = /http:\/\/\S+/.exec(line)?.[0];
    if (!line.startsWith("the page is at") || !url) throw new Error(`${line}: build the page first (scripts/test-web)`);
    return { url, stop: () => process.kill() };
  }
  throw new Error("the server ended");
}

/** What the command line answers with --json. */
export function cli(words: readonly string[]): Record<string, unknown> {
  return JSON.parse(execFileSync(binary, [...words, "--json"], { cwd: root, encoding: "utf8", maxBuffer: 64 << 20 })) as Record<string, unknown>;
}

/** A command as the page shows it, run by a shell. */
export function shell(command: string): Record<string, unknown> {
  const own = command.replace(/^roofcast /, `${binary} `);
  return JSON.parse(execFileSync("sh", ["-c", `${own} --json`], { cwd: root, encoding: "utf8", maxBuffer: 64 << 20 })) as Record<string, unknown>;
}

export const run = (words: readonly string[]): string => execFileSync(binary, words, { cwd: root, encoding: "utf8", maxBuffer: 64 << 20 });

export const start = (): Promise<Browser> => chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

export interface Opened {
  page: Page;
  /** What the console and the page complained of, and requests that left this machine. */
  faults: string[];
  close: () => Promise<void>;
}

export async function open(browser: Browser, address: string, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext({ viewport: { width: 1100, height: 900 }, ...options });
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("request", (request) => {
    const host = new URL(request.url());
    if (host.protocol.startsWith("http") && host.hostname !== "127.0.0.1") faults.push(`asks ${request.url()}`);
  });
  await page.goto(address);
  return { page, faults, close: () => context.close() };
}

/** Waits until nothing is asked or worked on any more. */
export async function settled(page: Page): Promise<void> {
  await page.waitForFunction(() => !document.querySelector(".working, [aria-busy='true']") && !document.body.textContent?.includes("Asking …"), undefined, { timeout: 120_000 });
}

/** Waits until the page's address has `part`: it follows what is shown, a moment later. */
export async function address(page: Page, part: string): Promise<void> {
  await page.waitForURL((url) => url.href.includes(part));
}

/** Keeps a picture of the whole page. */
export async function shot(page: Page, name: string): Promise<void> {
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: `${shots}${name}.png`, fullPage: true });
}

/** A file as if it were dropped on the first place for files. */
export async function drop(page: Page, files: readonly { name: string; text: string }[]): Promise<void> {
  const data = await page.evaluateHandle((all) => {
    const transfer = new DataTransfer();
    for (const { name, text } of all) transfer.items.add(new File([text], name));
    return transfer;
  }, files);
  await page.locator(".drop").first().dispatchEvent("drop", { dataTransfer: data });
}
