// The list of jobs. The server filters, orders and pages; the filters stand in the address.
import { useState } from "preact/hooks";
import { bodyOf, client, serverNow, type Schemas } from "../api";
import { usePolled } from "../live";
import { Batch, BATCH_MAX, type BatchOrder } from "../parts/batch";
import { wordsOfOrder } from "../parts/job-orders";
import { Priority, Size } from "../parts/job-cells";
import { Loaded } from "../parts/loaded";
import { Pager, usePages } from "../parts/pager";
import { Status } from "../parts/status";
import { Ago } from "../parts/time";
import { query, refine, to } from "../place";
import { may, session } from "../session";
import { texts } from "../texts";

const t = texts({
  en: {
    title: "Jobs",
    submit: "Submit a job",
    status: "Status",
    id: "Job",
    user: "User",
    mine: "my jobs",
    priority: "Priority",
    group: "Group",
    size: "Instances × GPUs",
    attempt: "Attempt",
    since: "Since",
    submitted: "Submitted",
    reason: "Reason",
    all: "all",
    waiting: "waiting",
    running: "running",
    ended: "ended",
    none: "No job matches these filters.",
    noneHere: "No job on this part of the list matches. Older jobs may: go to the next page.",
    show: "Show",
    prefix: "Id begins with",
    within: "Submitted within",
    h24: "24 hours",
    d7: "7 days",
    d30: "30 days",
    ever: "any time",
    order: "Order",
    newest: "newest first",
    oldest: "oldest first",
    filters: "Filters",
    clear: "Clear filters",
    selected: "{n} selected",
    choose: "Select {id}",
    chooseAll: "Select all jobs of this page",
    tooMany: "at most {n} at once",
    viewer: "Sign in as a user or an operator to change jobs.",
    select: "Select jobs to suspend, resume or cancel them.",
    shown: "{n} jobs on this page",
  },
  zh: {
    title: "作业",
    submit: "提交作业",
    status: "状态",
    id: "作业",
    user: "用户",
    mine: "我的作业",
    priority: "优先级",
    group: "分组",
    size: "实例 × GPU",
    attempt: "尝试",
    since: "持续",
    submitted: "提交于",
    reason: "原因",
    all: "全部",
    waiting: "等待",
    running: "运行",
    ended: "结束",
    none: "没有符合条件的作业。",
    noneHere: "列表的这一部分没有符合条件的作业，更早的可能有：请看下一页。",
    show: "显示",
    prefix: "作业 id 开头",
    within: "提交时间",
    h24: "24 小时内",
    d7: "7 天内",
    d30: "30 天内",
    ever: "不限",
    order: "顺序",
    newest: "新的在前",
    oldest: "旧的在前",
    filters: "筛选",
    clear: "清除筛选",
    selected: "已选 {n} 个",
    choose: "选择 {id}",
    chooseAll: "选择本页全部作业",
    tooMany: "一次最多 {n} 个",
    viewer: "以用户或运维人员身份登录后才能更改作业。",
    select: "选择作业后可以挂起、恢复或取消。",
    shown: "本页 {n} 个作业",
  },
});
type Row = Schemas["JobRow"];
const PAGE = 100;
const STATES = ["waiting", "running", "ended"] as const;
const ORDERS = ["newest", "oldest"] as const;
const HOURS = { h24: 24, d7: 168, d30: 720 } as const;
const STEP_MS = 600_000; // a time in the question that changes at each poll would defeat the entity tags

interface Filters {
  state: (typeof STATES)[number] | undefined;
  order: (typeof ORDERS)[number];
  user: string;
  group: string;
  q: string;
  within: keyof typeof HOURS | undefined;
}

function filtersOf(asked: URLSearchParams): Filters {
  const known = <Value extends string>(name: string, all: readonly Value[]): Value | undefined =>
    all.find((value) => value === asked.get(name));
  return {
    state: known("state", STATES),
    order: known("order", ORDERS) ?? "newest",
    user: asked.get("user") ?? "",
    group: asked.get("group") ?? "",
    q: asked.get("q") ?? "",
    within: known("since", Object.keys(HOURS) as (keyof typeof HOURS)[]),
  };
}

function questionOf(filters: Filters, cursor: string | undefined) {
  const hours = filters.within === undefined ? undefined : HOURS[filters.within];
  const from = hours === undefined ? undefined : Math.floor((serverNow() - hours * 3_600_000) / STEP_MS) * STEP_MS;
  const all = {
    state: filters.state,
    order: filters.order,
    fields: "list" as const,
    user: filters.user || undefined,
    group: filters.group || undefined,
    q: filters.q || undefined,
    since: from === undefined ? undefined : new Date(from).toISOString(),
    limit: PAGE,
    cursor,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as {
    [Name in keyof typeof all]?: NonNullable<(typeof all)[Name]>;
  };
}

export function Jobs() {
  const filters = filtersOf(query.value);
  const key = JSON.stringify(filters);
  const pages = usePages(key); // other filters begin with the first page
  const polled = usePolled(
    `jobs ${key} ${pages.cursor ?? ""}`,
    (signal) => bodyOf(client.GET("/api/v2/jobs", { params: { query: questionOf(filters, pages.cursor) }, signal })),
    () => 10_000,
  );
  return (
    <main class="container-fluid" tabIndex={-1}>
      <div class="heading">
        <h1 tabIndex={-1}>{t("title")}</h1>
        {may("user") && (
          <a role="button" href={to(["submit"])}>
            {t("submit")}
          </a>
        )}
      </div>
      <FilterBar filters={filters} />
      <Loaded from={polled}>
        {(page) => (
          <>
            <Selectable key={key + (pages.cursor ?? "")} jobs={page.jobs} isLast={page.next_cursor === null} changed={() => polled.hurry()} />
            <Pager pages={pages} next={page.next_cursor}>
              <span>{t("shown", { n: page.jobs.length })}</span>
            </Pager>
          </>
        )}
      </Loaded>
    </main>
  );
}

function FilterBar({ filters }: { filters: Filters }) {
  const user = session.value?.user ?? "";
  const own = user.includes(" ") ? "" : user; // the operator token belongs to no user, and its name has a space
  const isFiltered = filters.state !== undefined || filters.within !== undefined || filters.user + filters.group + filters.q !== "";
  return (
    <form class="filters" aria-label={t("filters")} onSubmit={(event) => event.preventDefault()}>
      <label>
        {t("show")}
        <select name="state" value={filters.state ?? ""} onChange={(event) => refine({ state: event.currentTarget.value })}>
          <option value="">{t("all")}</option>
          {STATES.map((state) => (
            <option key={state} value={state}>
              {t(state)}
            </option>
          ))}
        </select>
      </label>
      <label>
        {t("prefix")}
        <input name="q" type="search" value={filters.q} onChange={(event) => refine({ q: event.currentTarget.value.trim() })} />
      </label>
      <label>
        {t("user")}
        <input name="user" value={filters.user} onChange={(event) => refine({ user: event.currentTarget.value.trim() })} />
      </label>
      <label>
        {t("group")}
        <input name="group" value={filters.group} onChange={(event) => refine({ group: event.currentTarget.value.trim() })} />
      </label>
      <label>
        {t("within")}
        <select name="since" value={filters.within ?? ""} onChange={(event) => refine({ since: event.currentTarget.value })}>
          <option value="">{t("ever")}</option>
          {(Object.keys(HOURS) as (keyof typeof HOURS)[]).map((within) => (
            <option key={within} value={within}>
              {t(within)}
            </option>
          ))}
        </select>
      </label>
      <label>
        {t("order")}
        <select name="order" value={filters.order} onChange={(event) => refine({ order: event.currentTarget.value })}>
          {ORDERS.map((order) => (
            <option key={order} value={order}>
              {t(order)}
            </option>
          ))}
        </select>
      </label>
      {own !== "" && filters.user !== own && (
        <button type="button" class="plain link" onClick={() => refine({ user: own })}>
          {t("mine")}
        </button>
      )}
      {isFiltered && (
        <button type="button" class="plain link" onClick={() => refine({ state: "", q: "", user: "", group: "", since: "" })}>
          {t("clear")}
        </button>
      )}
    </form>
  );
}

const BATCHES: BatchOrder[] = ["suspend", "resume", "cancel"];

/** The rows, with a selection that orders can be given about. */
function Selectable({ jobs, isLast, changed }: { jobs: Row[]; isLast: boolean; changed: () => void }) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [order, setOrder] = useState<BatchOrder>();
  const selected = jobs.filter((job) => chosen.has(job.job_id));
  const allowed = may("user");
  const choose = (ids: string[], isChosen: boolean): void =>
    setChosen((before) => new Set(isChosen ? [...before, ...ids] : [...before].filter((id) => !ids.includes(id))));
  const why = !allowed ? t("viewer") : selected.length === 0 ? t("select") : selected.length > BATCH_MAX ? t("tooMany", { n: BATCH_MAX }) : "";
  return (
    <>
      {jobs.length === 0 ? (
        <p>{t(isLast ? "none" : "noneHere")}</p>
      ) : (
        <>
          <div class="batch" role="toolbar" aria-label={t("selected", { n: selected.length })}>
            <span aria-live="polite">{t("selected", { n: selected.length })}</span>
            {BATCHES.map((name) => (
              <button key={name} class="secondary" disabled={why !== ""} onClick={() => setOrder(name)}>
                {wordsOfOrder(name)}
              </button>
            ))}
            {why !== "" && <small>{why}</small>}
          </div>
          <Rows jobs={jobs} chosen={chosen} choose={allowed ? choose : undefined} />
        </>
      )}
      {order !== undefined && (
        <Batch
          order={order}
          jobs={selected}
          done={(sent) => {
            setOrder(undefined);
            if (sent) {
              setChosen(new Set());
              changed();
            }
          }}
        />
      )}
    </>
  );
}

interface RowsProps {
  jobs: Row[];
  chosen: ReadonlySet<string>;
  choose: ((ids: string[], isChosen: boolean) => void) | undefined;
}

function Rows({ jobs, chosen, choose }: RowsProps) {
  return (
    <table class="rows">
      <thead>
        <tr>
          {choose !== undefined && (
            <th scope="col">
              <input
                type="checkbox"
                aria-label={t("chooseAll")}
                checked={jobs.every((job) => chosen.has(job.job_id))}
                onChange={(event) => choose(jobs.map((job) => job.job_id), event.currentTarget.checked)}
              />
            </th>
          )}
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
            {choose !== undefined && (
              <td>
                <input
                  type="checkbox"
                  aria-label={t("choose", { id: job.job_id })}
                  checked={chosen.has(job.job_id)}
                  onChange={(event) => choose([job.job_id], event.currentTarget.checked)}
                />
              </td>
            )}
            <td data-label={t("status")}>
              <Status of={job.status} />
            </td>
            <td data-label={t("id")} class="id">
              <a href={to(["jobs", job.job_id])}>{job.job_id}</a>
              {job.name !== null && <div>{job.name}</div>}
            </td>
            <td data-label={t("user")} class="text">{job.user || "-"}</td>
            <td data-label={t("priority")}>
              <Priority is={job.priority} asked={job.asked_priority} />
            </td>
            <td data-label={t("size")}>
              <Size nodes={job.nnodes} gpus={job.n_gpus_per_node} group={job.group} />
            </td>
            <td data-label={t("attempt")}>
              {job.attempt} ({job.attempts_counted}/{job.attempts_max})
            </td>
            <td data-label={t("since")}>
              <Ago at={job.status_at} bare />
            </td>
            <td data-label={t("submitted")}>
              <Ago at={job.queued_at} />
            </td>
            <td data-label={t("reason")} lang="en" class="reason">
              {job.reason}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
