// The states of something that is loaded: a skeleton, an error with its sentence, or the answer.
import { type ComponentChildren } from "preact";
import { Refused } from "../api";
import { type Polled } from "../live";
import { texts } from "../texts";
import { Sentence } from "./problem";

const t = texts({
  en: { loading: "Loading", again: "Try again", failed: "This could not be read" },
  zh: { loading: "加载中", again: "重试", failed: "无法读取" },
});

/** Show `children` of the newest answer. An older answer stays visible while a newer one fails. */
export function Loaded<T>({ from, children }: { from: Polled<T>; children: (answer: T) => ComponentChildren }) {
  const answer = from.data.value;
  const error = from.error.value;
  return (
    <>
      {error !== undefined && (
        <article class="problem" role="alert">
          <strong>{t("failed")}</strong>
          <p>
            <Sentence of={error} /> {error instanceof Refused && error.code !== "" && <code>{error.code}</code>}
          </p>
          <button class="secondary" onClick={() => from.hurry(3_000, 1)}>
            {t("again")}
          </button>
        </article>
      )}
      {answer !== undefined ? (
        children(answer)
      ) : error === undefined ? (
        <div class="skeleton" role="status" aria-busy="true" aria-label={t("loading")}>
          <div />
          <div />
          <div />
        </div>
      ) : null}
    </>
  );
}
