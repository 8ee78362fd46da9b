// Numbers for people: three significant digits, each with its unit. GB is 10^9 bytes, GiB 2^30.

const NONE = "–";

/** Formats a number with three significant digits and groups of thousands: 0.00123, 1.23, 123, 12,300. */
export function significant(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size >= digits) return Math.round(value).toLocaleString("en-US");
  if (size < -6) return value.toExponential(digits - 1);
  return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 12 });
}

/** Formats a number of things, as in `1 request`, `2 requests`. */
export const counted = (n: number, one: string, several = `${one}s`): string => `${grouped(n)} ${n === 1 ? one : several}`;

/** Formats a whole number with groups of thousands. */
export function grouped(value: number | null | undefined): string {
  return value === null || value === undefined || !Number.isFinite(value) ? NONE : Math.round(value).toLocaleString("en-US");
}

const SCALES: readonly [number, string][] = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** Formats a value with a decimal prefix of its unit: 3.35 TB/s. */
export function scaled(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const [by, prefix] = SCALES.find(([scale]) => Math.abs(value) >= scale * 0.9995) ?? [1, ""];
  return `${significant(value / by)} ${prefix}${unit}`.trim();
}

export const bytes = (value: number | null | undefined): string => scaled(value, "B");

/** Formats a time in milliseconds, in the unit that suits it. */
export function time(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return NONE;
  const size = Math.abs(ms);
  if (size === 0) return "0 ms";
  if (size < 0.1) return `${significant(ms * 1e3)} µs`;
  if (size < 1000) return `${significant(ms)} ms`;
  return size < 120_000 ? `${significant(ms / 1e3)} s` : `${significant(ms / 6e4)} min`;
}

/** Formats a fraction as percent. */
export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
  const value = share * 100;
  return `${Math.abs(value) < 10 ? Number(value.toFixed(1)) : Math.round(value)} %`;
}

/** Formats a signed error, a fraction, as percent. */
export function signed(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
  return `${share >= 0 ? "+" : "−"}${percent(Math.abs(share))}`;
}

export function dollars(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  return value < 100 ? `$${value.toFixed(2)}` : `$${grouped(value)}`;
}

/** A model's id without its organisation: Llama-3.1-8B-Instruct. */
export const shortName = (id: string): string => id.slice(id.lastIndexOf("/") + 1);
