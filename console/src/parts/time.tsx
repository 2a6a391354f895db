// Times: relative to the server's clock, so that a wrong clock of this computer shows nothing wrong.
import { signal } from "@preact/signals";
import { serverNow } from "../api";
import { language, texts } from "../texts";

const t = texts({
  en: { ago: "{span} ago", ahead: "in {span}", now: "now", s: "{n} s", min: "{n} min", h: "{n} h", d: "{n} d" },
  zh: { ago: "{span}前", ahead: "{span}后", now: "刚刚", s: "{n} 秒", min: "{n} 分钟", h: "{n} 小时", d: "{n} 天" },
});

/** Ticks once a second in a visible tab: everything that shows an age reads it. */
export const tick = signal(0);
setInterval(() => {
  if (!document.hidden) tick.value += 1;
}, 1_000);

/** Return a duration in the largest fitting unit. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 100) return t("s", { n: whole });
  if (whole < 100 * 60) return t("min", { n: Math.floor(whole / 60) });
  if (whole < 72 * 3_600) return t("h", { n: Math.floor(whole / 3_600) });
  return t("d", { n: Math.floor(whole / 86_400) });
}

/** Return the seconds since a time of the API. */
export function ageOf(at: string): number {
  return (serverNow() - Date.parse(at)) / 1_000;
}

/** Return the seconds between two times of the API. */
export function secondsBetween(since: string, until: string): number {
  return (Date.parse(until) - Date.parse(since)) / 1_000;
}

/** Return the local form of a time, with its zone. */
export function local(at: string): string {
  return new Date(at).toLocaleString(language.value === "zh" ? "zh-CN" : "en-GB", {
    dateStyle: "medium",
    timeStyle: "long",
  });
}

/** A time as its distance from now. The title has the local time and UTC. */
export function Ago({ at, bare = false }: { at: string; bare?: boolean }) {
  void tick.value;
  const age = ageOf(at);
  const text = bare ? span(Math.abs(age)) : Math.abs(age) < 1 ? t("now") : t(age < 0 ? "ahead" : "ago", { span: span(Math.abs(age)) });
  return (
    <time dateTime={at} title={`${local(at)}\n${at}`}>
      {text}
    </time>
  );
}

/** A time of day, with its date if that is not today. The title has the whole time. */
export function Clock({ at }: { at: string }) {
  const locale = language.value === "zh" ? "zh-CN" : "en-GB";
  const date = new Date(at);
  const isToday = date.toDateString() === new Date(serverNow()).toDateString();
  return (
    <time dateTime={at} title={`${local(at)}\n${at}`}>
      {isToday ? date.toLocaleTimeString(locale) : date.toLocaleString(locale, { dateStyle: "medium", timeStyle: "medium" })}
    </time>
  );
}
