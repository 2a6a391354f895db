// The list of jobs. The server filters, orders and pages.
import { useState } from "preact/hooks";
import { bodyOf, client, type Schemas } from "../api";
import { usePolled } from "../live";
import { Loaded } from "../parts/loaded";
import { Status } from "../parts/status";
import { Ago } from "../parts/time";
import { query, refine, to } from "../place";
import { texts } from "../texts";

const t = texts({
  en: {
    title: "Jobs",
    status: "Status",
    id: "Job",
    user: "User",
    priority: "Priority",
    size: "Instances × GPUs",
    attempt: "Attempt",
    since: "Since",
    submitted: "Submitted",
    reason: "Reason",
    all: "all",
    waiting: "waiting",
    running: "running",
    ended: "ended",
    none: "No job matches.",
    more: "Next page",
    first: "First page",
    show: "Show",
    prefix: "Id begins with",
  },
  zh: {
    title: "任务",
    status: "状态",
    id: "任务",
    user: "用户",
    priority: "优先级",
    size: "实例 × GPU",
    attempt: "尝试",
    since: "持续",
    submitted: "提交于",
    reason: "原因",
    all: "全部",
    waiting: "等待",
    running: "运行",
    ended: "结束",
    none: "没有符合条件的任务。",
    more: "下一页",
    first: "第一页",
    show: "显示",
    prefix: "任务 id 开头",
  },
});
const PAGE = 100;

export function Jobs() {
  const asked = query.value;
  const user = asked.get("user") ?? "";
  const [cursor, setCursor] = useState<string>();
  const wanted = { user: user || undefined, limit: PAGE, cursor };
  const polled = usePolled(
    `jobs ${JSON.stringify(wanted)}`,
    (signal) => bodyOf(client.GET("/api/v2/jobs", { params: { query: clean(wanted) }, signal })),
    () => 10_000,
  );
  return (
    <main class="container-fluid">
      <hgroup>
        <h1>{t("title")}</h1>
      </hgroup>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          {t("user")}
          <input name="user" value={user} onChange={(event) => refine({ user: event.currentTarget.value })} />
        </label>
      </form>
      <Loaded from={polled}>
        {(page) => (
          <>
            <Rows jobs={page.jobs} />
            <nav class="pages">
              {cursor !== undefined && <button onClick={() => setCursor(undefined)}>{t("first")}</button>}
              {page.next_cursor !== null && <button onClick={() => setCursor(page.next_cursor ?? undefined)}>{t("more")}</button>}
            </nav>
          </>
        )}
      </Loaded>
    </main>
  );
}

function clean<T extends object>(asked: T): { [Key in keyof T]: NonNullable<T[Key]> } {
  return Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== undefined)) as never;
}

function Rows({ jobs }: { jobs: Schemas["JobSummary"][] }) {
  if (jobs.length === 0) return <p>{t("none")}</p>;
  return (
    <table class="rows">
      <thead>
        <tr>
          {(["status", "id", "user", "priority", "size", "attempt", "since", "submitted", "reason"] as const).map((name) => (
            <th key={name} scope="col">
              {t(name)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <tr key={job.job_id}>
            <td data-label={t("status")}>
              <Status of={job.status} />
            </td>
            <td data-label={t("id")}>
              <a href={to(["jobs", job.job_id])}>{job.job_id}</a>
            </td>
            <td data-label={t("user")}>{job.user}</td>
            <td data-label={t("priority")}>{job.priority}</td>
            <td data-label={t("size")}>
              {job.nnodes} × {job.n_gpus_per_node}
            </td>
            <td data-label={t("attempt")}>
              {job.attempt}/{job.attempts_max}
            </td>
            <td data-label={t("since")}>
              <Ago at={job.status_at} bare />
            </td>
            <td data-label={t("submitted")}>
              <Ago at={job.queued_at} />
            </td>
            <td data-label={t("reason")} lang="en">
              {job.reason}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
