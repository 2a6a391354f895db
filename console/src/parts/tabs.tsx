// Views of a page: links, and the present view in the address.
import { path, query, to } from "../place";

/** Return the view that the address names under `key`, else `usual`. */
export function viewOf<Name extends string>(names: readonly Name[], key: string, usual: Name): Name {
  return names.find((name) => name === query.value.get(key)) ?? usual;
}

interface Props<Name extends string> {
  label: string;
  names: readonly Name[];
  present: Name;
  words: (name: Name) => string;
  /** Key of the view in the address. */
  of?: string;
  /** Parts of the address that a link keeps. */
  keeps?: readonly string[];
}

export function Tabs<Name extends string>({ label, names, present, words, of = "tab", keeps = [] }: Props<Name>) {
  const kept = Object.fromEntries(keeps.map((name) => [name, query.value.get(name) ?? undefined]));
  return (
    <nav class="tabs" aria-label={label}>
      {names.map((name) => (
        <a key={name} href={to(path.value, { ...kept, [of]: name })} aria-current={present === name ? "page" : undefined}>
          {words(name)}
        </a>
      ))}
    </nav>
  );
}
