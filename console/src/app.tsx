// The frame of the console: sign-in, header, banner, and the page of the present place.
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { Announcements } from "./parts/announce";
import { connection } from "./api";
import { asked, refreshing } from "./live";
import { wordsFor } from "./parts/codes";
import { onDemand } from "./parts/on-demand";
import { Overview } from "./pages/overview";
import { SignIn } from "./pages/sign-in";
import { span, tick } from "./parts/time";
import { path, to } from "./place";
import { end, session } from "./session";
import { language, texts, useLanguage } from "./texts";

const t = texts({
  en: {
    skip: "Skip to the content",
    overview: "Overview",
    jobs: "Jobs",
    submit: "Submit a job",
    queue: "Queue",
    incidents: "Incidents",
    fleet: "Fleet",
    diagnose: "Diagnose",
    instances: "Instances",
    users: "Users",
    unknown: "There is no such page.",
    away: "The API does not answer: what you see is {age} old. Trying again.",
    signOut: "Sign out",
    now: "Refresh now",
    refresh: "Refresh by itself",
    theme: "Light or dark",
    broken: "This page cannot be shown:",
    reload: "Reload",
  },
  zh: {
    skip: "跳到内容",
    overview: "总览",
    jobs: "作业",
    submit: "提交作业",
    queue: "队列",
    incidents: "事故",
    fleet: "机群",
    diagnose: "诊断",
    instances: "实例",
    users: "用户",
    unknown: "没有这个页面。",
    away: "API 没有响应：现在显示的是 {age} 前的数据，正在重试。",
    signOut: "退出",
    now: "立即刷新",
    refresh: "自动刷新",
    theme: "浅色或深色",
    broken: "这个页面无法显示：",
    reload: "重新加载",
  },
});

function Main({ children }: { children: ComponentChildren }) {
  return (
    <main class="container-fluid" tabIndex={-1}>
      {children}
    </main>
  );
}

const Job = onDemand(() => import("./pages/job").then((module) => module.Job), Main);
const Jobs = onDemand(() => import("./pages/jobs").then((module) => module.Jobs), Main);
const Queue = onDemand(() => import("./pages/queue").then((module) => module.Queue), Main);
const Submit = onDemand(() => import("./pages/submit").then((module) => module.Submit), Main);
const Fleet = onDemand(() => import("./pages/fleet").then((module) => module.Fleet), Main);
const Incidents = onDemand(() => import("./pages/incidents").then((module) => module.Incidents), Main);
const Incident = onDemand(() => import("./pages/incident").then((module) => module.Incident), Main);
const Instances = onDemand(() => import("./pages/instances").then((module) => module.Instances), Main);
const Instance = onDemand(() => import("./pages/instance").then((module) => module.Instance), Main);
const Users = onDemand(() => import("./pages/users").then((module) => module.Users), Main);
const Diagnose = onDemand(() => import("./pages/diagnose").then((module) => module.Diagnose), Main);

/** Pages by the first part of the place. */
const PAGES: Record<string, ComponentType> = {
  "": Overview,
  jobs: () => (path.value.length > 1 ? <Job /> : <Jobs />),
  queue: Queue,
  submit: Submit,
  incidents: () => (path.value.length > 1 ? <Incident /> : <Incidents />),
  instances: () => (path.value.length > 1 ? <Instance /> : <Instances />),
  users: Users,
  fleet: Fleet,
  diagnose: Diagnose,
};
const LINKS = ["jobs", "queue", "instances", "incidents", "fleet", "users", "diagnose"] as const;
type Named = (typeof LINKS)[number] | "submit";

export function App() {
  const signedIn = session.value !== null;
  const first = path.value[0] ?? "";
  const Page = PAGES[first] ?? Unknown;
  const title = [path.value.slice(1).join("/"), first in PAGES ? t(first === "" ? "overview" : (first as Named)) : "", "gpu-recovery"];
  useEffect(() => {
    document.title = title.filter(Boolean).join(" · ");
  });
  if (!signedIn) return <SignIn />;
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => (event.preventDefault(), document.querySelector<HTMLElement>("main")?.focus())}>
        {t("skip")}
      </a>
      <Header />
      <Banner />
      <Guarded key={path.value.join("/")}>
        <Page />
      </Guarded>
      <Announcements />
    </>
  );
}

/** A page that fails says so, and leaves the way to the others. */
function Guarded({ children }: { children: ComponentChildren }) {
  const [error] = useErrorBoundary((thrown: unknown) => reportError(thrown));
  if (error === undefined) return <>{children}</>;
  return (
    <Main>
      <div role="alert" class="problem">
        <p>
          {t("broken")} <code>{String(error)}</code>
        </p>
        <button onClick={() => location.reload()}>{t("reload")}</button>
      </div>
    </Main>
  );
}

function Header() {
  const present = session.value;
  return (
    <header class="bar">
      <strong>
        <a href={to([])}>gpu-recovery</a>
      </strong>
      <nav>
        {LINKS.map((name) => (
          <a key={name} href={to([name])} aria-current={path.value[0] === name ? "page" : undefined}>
            {t(name)}
          </a>
        ))}
      </nav>
      <span class="spring" />
      <label class="switch">
        <input type="checkbox" role="switch" checked={refreshing.value} onChange={(event) => (refreshing.value = event.currentTarget.checked)} />
        {t("refresh")}
      </label>
      <button class="plain" onClick={() => (asked.value += 1)} title={t("now")} aria-label={t("now")}>
        ↻
      </button>
      <button class="plain" onClick={() => useLanguage(language.value === "en" ? "zh" : "en")} lang={language.value === "en" ? "zh" : "en"}>
        {language.value === "en" ? "中文" : "English"}
      </button>
      <button class="plain" onClick={turnTheme} title={t("theme")} aria-label={t("theme")}>
        ◐
      </button>
      <span class="who">
        {present?.user} ({wordsFor("role", present?.role ?? "")})
      </span>
      <button class="plain" onClick={() => end()}>
        {t("signOut")}
      </button>
    </header>
  );
}

function turnTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset["theme"] ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset["theme"] = dark === "dark" ? "light" : "dark";
}

/** Says that the API is away, and how old the shown answers are. */
function Banner() {
  void tick.value;
  if (connection.value.retryAt === null) return null;
  return (
    <div class="banner" role="status">
      {t("away", { age: span((Date.now() - connection.value.since) / 1_000) })}
    </div>
  );
}

function Unknown() {
  return (
    <Main>
      <p>{t("unknown")}</p>
    </Main>
  );
}
