// The place in the console: the part of the address behind `#`, a path with a query. No library for the fragment
// supports a query in it.
import { computed, signal } from "@preact/signals";

const fragment = signal(location.hash);
addEventListener("hashchange", () => (fragment.value = location.hash));

/** The parts of the path, decoded. `#/jobs/a%2Fb?tab=log` is ["jobs", "a/b"]. */
export const path = computed((): string[] => {
  const text = fragment.value.replace(/^#\/?/, "").split("?")[0] ?? "";
  return text.split("/").filter(Boolean).map(decoded);
});

/** The query of the place. */
export const query = computed(() => new URLSearchParams(fragment.value.split("?")[1] ?? ""));

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // an address that a person cut in the middle
  }
}

/** Return the address of a place, for `href`. */
export function to(parts: string[], asked: Record<string, string | number | undefined> = {}): string {
  const given = Object.entries(asked).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
}

/** Change the query of the present place without a new entry in the browser's history. */
export function refine(asked: Record<string, string | undefined>): void {
  const now = Object.fromEntries(query.value);
  history.replaceState(null, "", to(path.value, { ...now, ...asked } as Record<string, string>));
  fragment.value = location.hash;
}
