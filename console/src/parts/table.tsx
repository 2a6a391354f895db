// A table of rows with the names of its columns. On a phone each row is a card.
import type { ComponentChildren } from "preact";

export interface Row<Name extends string> {
  key: string | number;
  cells: Record<Name, ComponentChildren>;
  class?: string | undefined;
}

interface Props<Name extends string> {
  columns: readonly Name[];
  words: (name: Name) => string;
  rows: readonly Row<Name>[];
  /** Classes of the cells of a column. */
  classes?: Partial<Record<Name, string>>;
  /** As wide as the content. */
  narrow?: boolean;
}

export function Table<Name extends string>({ columns, words, rows, classes = {}, narrow = false }: Props<Name>) {
  return (
    <table class={narrow ? "rows narrow" : "rows"}>
      <thead>
        <tr>
          {columns.map((name) => (
            <th key={name} scope="col">
              {words(name)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.key} class={row.class}>
            {columns.map((name) => (
              <td key={name} data-label={words(name)} class={classes[name]}>
                {row.cells[name]}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** A sentence of the server, which speaks English. */
export function English({ children }: { children: ComponentChildren }) {
  return children === "" ? null : <span lang="en">{children}</span>;
}
