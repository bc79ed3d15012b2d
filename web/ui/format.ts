/** Numbers as people read them. Missing figures are a dash, never a zero. */

export const DASH = "–";

export function number(value: number | null | undefined, digits = 0): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  const text = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return text.replace("-", "−");
}

/** Three significant places at most, for figures of any size. */
export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  return value < 100 && value % 1 ? value.toFixed(1) : number(value);
}

export function percent(share: number | null | undefined, digits = 0): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return DASH;
  if (share > 0 && share < 0.0005) return "<0.1%";
  return `${(share * 100).toFixed(digits)}%`;
}

/** A span of time given in seconds. */
export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return DASH;
  if (value < 0.001) return "<1 ms";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${rest} s`;
}

/** A score in halves: 0, ½, 1, 1½ ... */
export function score(value: number | null | undefined): string {
  if (value === null || value === undefined) return DASH;
  const whole = Math.floor(value);
  return value % 1 ? `${whole || ""}½` : String(whole);
}

/** Points with a half where there is one. */
export function points(value: number): string {
  return value % 1 ? value.toFixed(1) : String(value);
}

/** "han" -> "Han". */
export function title(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/** A moment given in seconds since the epoch. */
export function date(at: number | null): string {
  return at === null
    ? DASH
    : new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}
