// The sentence of an error, read out at once. The server's sentences are English.
import type { ComponentChildren } from "preact";
import { Away, Refused } from "../api";
import { texts } from "../texts";

const t = texts({
  en: { away: "The API does not answer. Try again in a moment." },
  zh: { away: "API 没有响应，请稍后再试。" },
});

/** The sentence of an error, in the language that it has. */
export function Sentence({ of: error }: { of: Error }) {
  return error instanceof Away ? <>{t("away")}</> : <span lang={error instanceof Refused ? "en" : undefined}>{error.message}</span>;
}

/** An error beside what caused it; nothing without an error. `children` follow the sentence. */
export function Problem({ of: error, children }: { of: Error | undefined; children?: ComponentChildren }) {
  if (error === undefined) return null;
  return (
    <p role="alert" class="problem">
      <Sentence of={error} /> {children}
    </p>
  );
}
