// Quantities in units that fit their value, and what is shown for a value that is not known.
import { language, texts } from "../texts";
import { span } from "./time";

const t = texts({
  en: {
    unknown: "not known yet",
    hours: "{n} GPU-hours",
    minutes: "{n} GPU-minutes",
    seconds: "{n} GPU-seconds",
    under: "less than 1 s",
    at: "{lower} (p50), {upper} (p90)",
  },
  zh: {
    unknown: "尚不清楚",
    hours: "{n} GPU 小时",
    minutes: "{n} GPU 分钟",
    seconds: "{n} GPU 秒",
    under: "不到 1 秒",
    at: "{lower}（p50），{upper}（p90）",
  },
});

/** Return the words for a value that is not known yet. */
export function notKnown(): string {
  return t("unknown");
}

/** Return a number as the present language writes it. */
export function number(value: number, digits = 0): string {
  return value.toLocaleString(language.value === "zh" ? "zh-CN" : "en-GB", { maximumFractionDigits: digits });
}

/** Return a share as percent. */
export function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

/** Return GPU-hours in hours, minutes or seconds, so that no small value is shown as 0. null: not known. */
export function gpuTime(hours: number | null): string {
  if (hours === null) return t("unknown");
  if (hours >= 10) return t("hours", { n: number(hours) });
  if (hours >= 1 || hours === 0) return t("hours", { n: number(hours, 1) });
  if (hours >= 1 / 60) return t("minutes", { n: number(hours * 60) });
  return t("seconds", { n: number(Math.max(1, hours * 3_600)) });
}

/** Return a duration of a measurement, so that no short duration is shown as 0. null: not known. */
export function duration(seconds: number | null): string {
  if (seconds === null) return t("unknown");
  return seconds < 1 ? t("under") : span(Math.round(seconds));
}

/** Return the middle and the upper value of durations. */
export function durations(middle: number | null, upper: number | null): string {
  return middle === null || upper === null ? t("unknown") : t("at", { lower: duration(middle), upper: duration(upper) });
}
