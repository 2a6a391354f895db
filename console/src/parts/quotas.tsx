// Quotas: what users use of what they may, and the dialog in which an operator changes the limits.
import { useEffect, useRef, useState } from "preact/hooks";
import { bodyOf, client, patiently, Refused, type Schemas } from "../api";
import { may } from "../session";
import { texts } from "../texts";
import { announce } from "./announce";
import { Code, wordsFor } from "./codes";
import { Modal } from "./modal";
import { Problem } from "./problem";
import { Table } from "./table";
import { Use } from "./use";

const t = texts({
  en: {
    title: "Quotas",
    user: "User",
    priority: "Priority",
    group: "Group",
    used: "Used / limit (instances)",
    noLimit: "no limit",
    none: "No user uses instances, and no limit is set.",
    edit: "Change the limits",
    operator: "Only an operator may change the limits.",
    any: "any",
    dialog: "Limits of users",
    help: "The number of instances that a user may use at a priority. * stands for any user, priority or group; the most specific entry wins. 0 gives none.",
    limit: "Instances",
    add: "Add an entry",
    remove: "Remove the entry of {key}",
    all: "Running jobs at most",
    each: "Running jobs of one user at most",
    empty: "empty: no limit",
    changes: "What changes",
    nothing: "Nothing is changed yet.",
    removed: "removed (was {was})",
    created: "new: {now}",
    altered: "{was} → {now}",
    save: "Save",
    reload: "Read the limits again",
    saved: "The limits are saved as revision {n}. The scheduler looks at the queue again.",
    double: "{key} stands there twice.",
    loading: "Loading",
  },
  zh: {
    title: "配额",
    user: "用户",
    priority: "优先级",
    group: "分组",
    used: "已用 / 上限（实例）",
    noLimit: "不限",
    none: "没有用户使用实例，也没有设置上限。",
    edit: "更改上限",
    operator: "只有运维人员可以更改上限。",
    any: "任意",
    dialog: "用户上限",
    help: "用户在某个优先级下最多可用的实例数。* 表示任意用户、优先级或分组；最具体的条目生效。0 表示不允许。",
    limit: "实例数",
    add: "添加条目",
    remove: "删除 {key} 的条目",
    all: "最多同时运行的作业数",
    each: "每个用户最多同时运行的作业数",
    empty: "留空：不限",
    changes: "将要更改",
    nothing: "还没有更改。",
    removed: "删除（原为 {was}）",
    created: "新增：{now}",
    altered: "{was} → {now}",
    save: "保存",
    reload: "重新读取上限",
    saved: "上限已保存为版本 {n}，调度器会重新检查队列。",
    double: "{key} 出现了两次。",
    loading: "加载中",
  },
});
type Quota = Schemas["Queue"]["quotas"][number];
const PRIORITIES = ["*", "EXTREME_HIGH", "VERY_HIGH", "HIGH", "ABOVE_NORMAL", "NORMAL", "LOW"] as const;

/** The table of quotas, with the button that opens the dialog. `changed` is called after a change. */
export function Quotas({ quotas, changed }: { quotas: Quota[]; changed: () => void }) {
  const [edits, setEdits] = useState(false);
  const allowed = may("operator");
  return (
    <section aria-labelledby="quotas-title">
      <div class="heading">
        <h2 id="quotas-title">{t("title")}</h2>
        <button class="secondary" disabled={!allowed} onClick={() => setEdits(true)}>
          {t("edit")}
        </button>
        {!allowed && <small>{t("operator")}</small>}
      </div>
      {quotas.length === 0 ? (
        <p>{t("none")}</p>
      ) : (
        <Table
          columns={["user", "priority", "group", "used"]}
          words={t}
          narrow
          rows={quotas.map((quota) => ({
            key: `${quota.user}/${quota.priority}/${quota.group}`,
            cells: {
              user: named(quota.user),
              priority: quota.priority === "*" ? named("*") : <Code of="priority" is={quota.priority} />,
              group: quota.group === "" ? "-" : named(quota.group),
              used: <Use used={quota.used} limit={quota.limit} />,
            },
          }))}
        />
      )}
      {edits && (
        <LimitsDialog
          done={(isChanged) => {
            setEdits(false);
            if (isChanged) changed();
          }}
        />
      )}
    </section>
  );
}

const named = (part: string): string => (part === "*" ? `* (${t("any")})` : part || "-");

interface Entry {
  user: string;
  priority: string;
  group: string;
  limit: string;
}
interface Draft {
  revision: number;
  before: Record<string, number>;
  entries: Entry[];
  all: string;
  each: string;
  beforeAll: string;
  beforeEach: string;
}

function draftOf(quotas: Schemas["Quotas"]): Draft {
  const before = (quotas.limits.instances ?? {}) as Record<string, number>;
  const entries = Object.entries(before).map(([key, limit]) => {
    const parts = key.split("/"); // the name of a user may contain slashes
    return { user: parts.slice(0, -2).join("/"), priority: parts.at(-2) ?? "", group: parts.at(-1) ?? "", limit: String(limit) };
  });
  const all = String(quotas.limits.max_running_jobs ?? "");
  const each = String(quotas.limits.max_running_jobs_per_user ?? "");
  return { revision: quotas.revision, before, entries, all, each, beforeAll: all, beforeEach: each };
}

const keyOf = (entry: Entry): string => `${entry.user.trim()}/${entry.priority}/${entry.group.trim()}`;

/** Return what a draft changes: [what, how]. */
function changesOf(draft: Draft): [string, string][] {
  const after = new Map(draft.entries.map((entry) => [keyOf(entry), entry.limit]));
  const changes: [string, string][] = [];
  for (const [key, was] of Object.entries(draft.before)) if (!after.has(key)) changes.push([key, t("removed", { was })]);
  for (const [key, now] of after) {
    const was = draft.before[key];
    if (was === undefined) changes.push([key, t("created", { now })]);
    else if (String(was) !== now) changes.push([key, t("altered", { was, now })]);
  }
  const none = t("noLimit");
  if (draft.all !== draft.beforeAll) changes.push([t("all"), t("altered", { was: draft.beforeAll || none, now: draft.all || none })]);
  if (draft.each !== draft.beforeEach) changes.push([t("each"), t("altered", { was: draft.beforeEach || none, now: draft.each || none })]);
  return changes;
}

/** The dialog of the limits. It saves only if nobody else changed them since it read them. */
function LimitsDialog({ done }: { done: (isChanged: boolean) => void }) {
  const sent = useRef(false);
  const [readings, setReadings] = useState(0);
  const [draft, setDraft] = useState<Draft>();
  const [problem, setProblem] = useState<Error>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const left = new AbortController();
    const read = async (): Promise<void> => {
      setProblem(undefined);
      try {
        const quotas = await patiently(() => bodyOf(client.GET("/api/v2/quotas", { signal: left.signal })), left.signal);
        if (!left.signal.aborted) setDraft(draftOf(quotas));
      } catch (error) {
        if (!left.signal.aborted) setProblem(error as Error);
      }
    };
    void read();
    return () => left.abort();
  }, [readings]);
  const changes = draft === undefined ? [] : changesOf(draft);
  const keys = draft?.entries.map(keyOf) ?? [];
  const double = keys.find((key, at) => keys.indexOf(key) !== at);
  const save = async (): Promise<void> => {
    if (sent.current || draft === undefined || changes.length === 0 || double !== undefined) return;
    sent.current = true; // two presses send once
    setBusy(true);
    setProblem(undefined);
    try {
      const after = await bodyOf(
        client.PUT("/api/v2/quotas", {
          params: { header: { "If-Match": `"${draft.revision}"` } },
          body: {
            limits: {
              instances: Object.fromEntries(draft.entries.map((entry) => [keyOf(entry), Number(entry.limit)])),
              max_running_jobs: draft.all === "" ? null : Number(draft.all),
              max_running_jobs_per_user: draft.each === "" ? null : Number(draft.each),
            },
          },
        }),
      );
      announce(t("saved", { n: after.revision }));
      done(true);
    } catch (error) {
      sent.current = false;
      setBusy(false);
      setProblem(error as Error);
    }
  };
  return (
    <Modal
      title={t("dialog")}
      wide
      busy={busy}
      close={() => done(false)}
      submit={() => void save()}
      buttons={
        <button type="submit" disabled={changes.length === 0 || double !== undefined} aria-busy={busy}>
          {t("save")}
        </button>
      }
    >
      <p>
        <small>{t("help")}</small>
      </p>
      {draft === undefined && problem === undefined && <p aria-busy="true">{t("loading")}</p>}
      {draft !== undefined && (
        <>
          <Fields draft={draft} change={setDraft} />
          <p>
            <strong>{t("changes")}:</strong>
            {changes.length === 0 && <> {t("nothing")}</>}
          </p>
          <ul>
            {changes.map(([what, how]) => (
              <li key={what}>
                <code>{what}</code> {how}
              </li>
            ))}
          </ul>
        </>
      )}
      {double !== undefined && <p class="problem">{t("double", { key: double })}</p>}
      <Problem of={problem}>
        {(draft === undefined || (problem instanceof Refused && problem.status === 412)) && (
          <button type="button" class="secondary small" onClick={() => setReadings(readings + 1)}>
            {t("reload")}
          </button>
        )}
      </Problem>
    </Modal>
  );
}

/** The fields of a draft: a row for each entry, and the two limits of running jobs. */
function Fields({ draft, change }: { draft: Draft; change: (draft: Draft) => void }) {
  const set = (at: number, name: keyof Entry, value: string): void =>
    change({ ...draft, entries: draft.entries.map((entry, index) => (index === at ? { ...entry, [name]: value } : entry)) });
  return (
    <>
      <table class="rows limits">
        <thead>
          <tr>
            <th scope="col">{t("user")}</th>
            <th scope="col">{t("priority")}</th>
            <th scope="col">{t("group")}</th>
            <th scope="col">{t("limit")}</th>
            <td />
          </tr>
        </thead>
        <tbody>
          {draft.entries.map((entry, at) => (
            <tr key={at}>
              <td data-label={t("user")}>
                <input aria-label={t("user")} required value={entry.user} onInput={(event) => set(at, "user", event.currentTarget.value)} />
              </td>
              <td data-label={t("priority")}>
                <select aria-label={t("priority")} value={entry.priority} onChange={(event) => set(at, "priority", event.currentTarget.value)}>
                  {PRIORITIES.map((name) => (
                    <option key={name} value={name}>
                      {wordsFor("priority", name)}
                    </option>
                  ))}
                </select>
              </td>
              <td data-label={t("group")}>
                <input aria-label={t("group")} value={entry.group} onInput={(event) => set(at, "group", event.currentTarget.value)} />
              </td>
              <td data-label={t("limit")}>
                <input
                  aria-label={t("limit")}
                  type="number"
                  min={0}
                  required
                  value={entry.limit}
                  onInput={(event) => set(at, "limit", event.currentTarget.value)}
                />
              </td>
              <td>
                <button
                  type="button"
                  class="plain"
                  aria-label={t("remove", { key: keyOf(entry) })}
                  onClick={() => change({ ...draft, entries: draft.entries.filter((_, index) => index !== at) })}
                >
                  ✕
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <button
        type="button"
        class="secondary outline small"
        onClick={() => change({ ...draft, entries: [...draft.entries, { user: "", priority: "*", group: "*", limit: "0" }] })}
      >
        {t("add")}
      </button>
      <div class="grid">
        {(["all", "each"] as const).map((name) => (
          <label key={name}>
            {t(name)}
            <input
              name={name}
              type="number"
              min={1}
              placeholder={t("empty")}
              value={draft[name]}
              onInput={(event) => change({ ...draft, [name]: event.currentTarget.value })}
            />
          </label>
        ))}
      </div>
    </>
  );
}
