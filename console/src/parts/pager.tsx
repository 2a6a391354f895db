// The pages of a list: a stack of cursors, and the buttons that walk through it.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { texts } from "../texts";

const t = texts({
  en: { pages: "Pages", first: "First page", back: "Previous page", more: "Next page" },
  zh: { pages: "分页", first: "第一页", back: "上一页", more: "下一页" },
});

export interface Pages {
  /** The cursor of the present page; undefined: the first. */
  cursor: string | undefined;
  cursors: string[];
  walk: (cursors: string[]) => void;
}

/** The place in a list. A cursor belongs to the list that it was issued for, so another `list` begins with its first page. */
export function usePages(list: string): Pages {
  const [walked, setWalked] = useState<{ list: string; cursors: string[] }>({ list, cursors: [] });
  const cursors = walked.list === list ? walked.cursors : [];
  return { cursor: cursors.at(-1), cursors, walk: (next) => setWalked({ list, cursors: next }) };
}

/** The buttons below a list, with `children` beside them. A press moves the focus to the heading of the list. */
export function Pager({ pages, next, children }: { pages: Pages; next: string | null; children?: ComponentChildren }) {
  const bar = useRef<HTMLElement>(null);
  const walk = (cursors: string[]): void => {
    pages.walk(cursors);
    const heading = bar.current?.closest("section")?.querySelector("h2") ?? document.querySelector<HTMLElement>("main h1");
    if (heading === null) return;
    heading.tabIndex = -1;
    heading.focus();
  };
  return (
    <nav ref={bar} class="pages" aria-label={t("pages")}>
      {children}
      {pages.cursors.length > 1 && (
        <button class="secondary" onClick={() => walk([])}>
          {t("first")}
        </button>
      )}
      {pages.cursors.length > 0 && (
        <button class="secondary" onClick={() => walk(pages.cursors.slice(0, -1))}>
          {t("back")}
        </button>
      )}
      {next !== null && <button onClick={() => walk([...pages.cursors, next])}>{t("more")}</button>}
    </nav>
  );
}
