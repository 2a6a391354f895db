// Quotas: what users use of what they may, and the dialog in which an operator changes the limits.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { bodyOf, client, Refused, type Schemas } from "../api";
import { may } from "../session";
import { texts } from "../texts";
import { announce } from "./announce";

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
    back: "Back",
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
    operator: "只有操作员可以更改上限。",
    any: "任意",
    dialog: "用户上限",
    help: "用户在某个优先级下最多可用的实例数。* 表示任意用户、优先级或分组；最具体的条目生效。0 表示不允许。",
    limit: "实例数",
    add: "添加条目",
    remove: "删除 {key} 的条目",
    all: "最多同时运行的任务数",
    each: "每个用户最多同时运行的任务数",
    empty: "留空：不限",
    changes: "将要更改",
    nothing: "还没有更改。",
    removed: "删除（原为 {was}）",
    created: "新增：{now}",
    altered: "{was} → {now}",
    save: "保存",
    back: "返回",
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
        <table class="rows narrow">
          <thead>
            <tr>
              {(["user", "priority", "group", "used"] as const).map((name) => (
                <th key={name} scope="col">
                  {t(name)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {quotas.map((quota) => (
              <tr key={`${quota.user}/${quota.priority}/${quota.group}`}>
                <td data-label={t("user")}>{named(quota.user)}</td>
                <td data-label={t("priority")}>{named(quota.priority)}</td>
                <td data-label={t("group")}>{quota.group === "" ? "-" : named(quota.group)}</td>
                <td data-label={t("used")}>
                  <Use used={quota.used} limit={quota.limit} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
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

/** Instances in use, and the limit, as a bar and as text. */
export function Use({ used, limit }: { used: number; limit: number | null }) {
  if (limit === null) {
    return (
      <span>
        {used} <small>({t("noLimit")})</small>
      </span>
    );
  }
  const full = used >= limit;
  return (
    <span class="use">
      <span class="track" aria-hidden="true">
        <span class={full ? "full" : ""} style={{ width: `${Math.min(100, limit === 0 ? 0 : (100 * used) / limit)}%` }} />
      </span>
      <span class={full && limit > 0 ? "full" : ""}>
        {used}/{limit}
      </span>
    </span>
  );
}

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
  const dialog = useRef<HTMLDialogElement>(null);
  const back = useRef<HTMLButtonElement>(null);
  const sent = useRef(false);
  const saved = useRef(false);
  const id = useId();
  const [draft, setDraft] = useState<Draft>();
  const [problem, setProblem] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const read = async (): Promise<void> => {
    setProblem(undefined);
    try {
      setDraft(draftOf(await bodyOf(client.GET("/api/v2/quotas"))));
    } catch (error) {
      setProblem(error as Error);
    }
  };
  useEffect(() => {
    dialog.current?.showModal();
    back.current?.focus();
    void read();
  }, []);
  const changes = draft === undefined ? [] : changesOf(draft);
  const keys = draft?.entries.map(keyOf) ?? [];
  const double = keys.find((key, at) => keys.indexOf(key) !== at);
  const change = (at: number, name: keyof Entry, value: string): void =>
    setDraft((now) => now && { ...now, entries: now.entries.map((entry, index) => (index === at ? { ...entry, [name]: value } : entry)) });
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
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
      saved.current = true;
      announce(t("saved", { n: after.revision }));
      dialog.current?.close();
    } catch (error) {
      sent.current = false;
      setBusy(false);
      setProblem(error as Error);
    }
  };
  return (
    <dialog ref={dialog} onClose={() => done(saved.current)} aria-labelledby={`${id}-title`}>
      <article class="wide">
        <h2 id={`${id}-title`}>{t("dialog")}</h2>
        <p>
          <small>{t("help")}</small>
        </p>
        <form onSubmit={(event) => void save(event)}>
          {draft === undefined && problem === undefined && <p aria-busy="true">{t("loading")}</p>}
          {draft !== undefined && (
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
                        <input aria-label={t("user")} required value={entry.user} onInput={(event) => change(at, "user", event.currentTarget.value)} />
                      </td>
                      <td data-label={t("priority")}>
                        <select aria-label={t("priority")} value={entry.priority} onChange={(event) => change(at, "priority", event.currentTarget.value)}>
                          {PRIORITIES.map((name) => (
                            <option key={name}>{name}</option>
                          ))}
                        </select>
                      </td>
                      <td data-label={t("group")}>
                        <input aria-label={t("group")} value={entry.group} onInput={(event) => change(at, "group", event.currentTarget.value)} />
                      </td>
                      <td data-label={t("limit")}>
                        <input
                          aria-label={t("limit")}
                          type="number"
                          min={0}
                          required
                          value={entry.limit}
                          onInput={(event) => change(at, "limit", event.currentTarget.value)}
                        />
                      </td>
                      <td>
                        <button
                          type="button"
                          class="plain"
                          aria-label={t("remove", { key: keyOf(entry) })}
                          onClick={() => setDraft({ ...draft, entries: draft.entries.filter((_, index) => index !== at) })}
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
                onClick={() => setDraft({ ...draft, entries: [...draft.entries, { user: "", priority: "*", group: "*", limit: "0" }] })}
              >
                {t("add")}
              </button>
              <div class="fields">
                {(["all", "each"] as const).map((name) => (
                  <label key={name}>
                    {t(name)}
                    <input
                      name={name}
                      type="number"
                      min={1}
                      placeholder={t("empty")}
                      value={draft[name]}
                      onInput={(event) => setDraft({ ...draft, [name]: event.currentTarget.value })}
                    />
                  </label>
                ))}
              </div>
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
              {double !== undefined && <p class="problem">{t("double", { key: double })}</p>}
            </>
          )}
          {problem !== undefined && (
            <p role="alert" class="problem">
              <span lang="en">{problem.message}</span>{" "}
              {problem instanceof Refused && problem.status === 412 && (
                <button type="button" class="secondary small" onClick={() => void read()}>
                  {t("reload")}
                </button>
              )}
            </p>
          )}
          <footer>
            <button type="button" ref={back} class="back secondary" onClick={() => dialog.current?.close()}>
              {t("back")}
            </button>
            <button type="submit" disabled={changes.length === 0 || double !== undefined} aria-busy={busy}>
              {t("save")}
            </button>
          </footer>
        </form>
      </article>
    </dialog>
  );
}
