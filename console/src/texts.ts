// Texts of the console in English and Chinese. Each page declares its own with `texts`; TypeScript checks that both
// languages have the same keys.
import { signal } from "@preact/signals";

export type Language = "en" | "zh";
const KEY = "gpu-recovery language";

function initial(): Language {
  const kept = localStorage.getItem(KEY);
  if (kept === "en" || kept === "zh") return kept;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** The language of the page. It is the one choice that outlives the tab. */
export const language = signal<Language>(initial());

/** Change the language, and keep the choice. */
export function useLanguage(next: Language): void {
  localStorage.setItem(KEY, next);
  document.documentElement.lang = next;
  language.value = next;
}
document.documentElement.lang = language.value;

/** Return a function from a key to its text in the present language. `{name}` is replaced by the value of that name. */
export function texts<Key extends string>(all: Record<Language, Record<Key, string>>) {
  return (key: Key, values: Record<string, string | number> = {}): string =>
    all[language.value][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}
