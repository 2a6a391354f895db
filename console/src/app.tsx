// The frame of the console: sign-in, header, banner, and the page of the present place.
import type { ComponentType } from "preact";
import { lazy, Suspense } from "preact/compat";
import { useEffect } from "preact/hooks";
import { Announcements } from "./parts/announce";
import { connection } from "./api";
import { asked, refreshing } from "./live";
import { Overview } from "./pages/overview";
import { SignIn } from "./pages/sign-in";
import { span, tick } from "./parts/time";
import { path, to } from "./place";
import { end, session } from "./session";
import { language, texts, useLanguage } from "./texts";

const t = texts({
  en: {
    skip: "Skip to the content",
    jobs: "Jobs",
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
  },
  zh: {
    skip: "跳到内容",
    jobs: "任务",
    queue: "队列",
    incidents: "事件",
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
  },
});

const Job = lazy(() => import("./pages/job").then((module) => module.Job));
const Jobs = lazy(() => import("./pages/jobs").then((module) => module.Jobs));
const Queue = lazy(() => import("./pages/queue").then((module) => module.Queue));
const Submit = lazy(() => import("./pages/submit").then((module) => module.Submit));
const Fleet = lazy(() => import("./pages/fleet").then((module) => module.Fleet));
const Incidents = lazy(() => import("./pages/incidents").then((module) => module.Incidents));
const Incident = lazy(() => import("./pages/incident").then((module) => module.Incident));
const Instances = lazy(() => import("./pages/instances").then((module) => module.Instances));
const Instance = lazy(() => import("./pages/instance").then((module) => module.Instance));
const Users = lazy(() => import("./pages/users").then((module) => module.Users));
const Diagnose = lazy(() => import("./pages/diagnose").then((module) => module.Diagnose));

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

export function App() {
  const signedIn = session.value !== null;
  const first = path.value[0] ?? "";
  const Page = PAGES[first] ?? Unknown;
  useEffect(() => {
    document.title = `${first in PAGES && first !== "" ? `${first} · ` : ""}gpu-recovery`;
  }, [first]);
  if (!signedIn) return <SignIn />;
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => (event.preventDefault(), document.querySelector<HTMLElement>("main")?.focus())}>
        {t("skip")}
      </a>
      <Header />
      <Banner />
      <Suspense fallback={<main class="container-fluid" aria-busy="true" />}>
        <Page />
      </Suspense>
      <Announcements />
    </>
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
        {present?.user} ({present?.role})
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
    <main class="container-fluid">
      <p>{t("unknown")}</p>
    </main>
  );
}
