// The sentence of an error, read out at once. The server's sentences are English.
import type { ComponentChildren } from "preact";
import { Away, Refused } from "../api";
import { language, texts } from "../texts";

const t = texts({
  en: {
    away: "The API does not answer. Try again in a moment.",
    bad: "The request is not valid:",
    signIn: "You are not signed in:",
    role: "Your role does not permit this:",
    missing: "Not found:",
    conflict: "Not possible in the present state:",
    changed: "Changed by another person meanwhile:",
    failed: "The API failed:",
  },
  zh: {
    away: "API 没有响应，请稍后再试。",
    bad: "请求无效：",
    signIn: "未登录：",
    role: "你的角色无权这样做：",
    missing: "没有找到：",
    conflict: "当前状态下不能这样做：",
    changed: "其间已被他人更改：",
    failed: "API 出错：",
  },
});

const SHORT = { 400: "bad", 401: "signIn", 403: "role", 404: "missing", 409: "conflict", 412: "changed", 413: "bad", 422: "bad" } as const;

/** The sentence of an error. The server's sentence is English, so a page in another language begins with a short form. */
export function Sentence({ of: error }: { of: Error }) {
  if (error instanceof Away) return <>{t("away")}</>;
  if (!(error instanceof Refused)) return <>{error.message}</>;
  const short = error.status in SHORT ? SHORT[error.status as keyof typeof SHORT] : "failed";
  return (
    <>
      {language.value !== "en" && t(short)} <span lang="en">{error.message}</span>
    </>
  );
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
