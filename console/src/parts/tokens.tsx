// Tokens of a user or of an instance's agent: list, issue (shown once), revoke.
import { useRef, useState } from "preact/hooks";
import type { Polled } from "../live";
import { texts } from "../texts";
import { announce } from "./announce";
import { Confirm, type Order } from "./confirm";
import { Loaded } from "./loaded";
import { Problem } from "./problem";
import { Table } from "./table";
import { Ago } from "./time";

const t = texts({
  en: {
    token: "Token",
    role: "Role",
    state: "State",
    issued: "Issued",
    by: "By",
    ends: "Ends",
    note: "Note",
    order: "Order",
    live: "valid",
    revoked: "revoked",
    expired: "expired",
    revoke: "Revoke",
    revokeSays: "Token {id} of {holder} opens nothing any more, within a minute. Sessions that were opened with it end, too.",
    revokedNow: "Token {id} of {holder} is revoked.",
    none: "No token was issued yet.",
    days: "Valid for (days)",
    issue: "Issue a token",
    issuedNow: "A token of {holder} was issued. It is shown on the page, once.",
    once: "This is the new token of {holder}. It is shown only now, and nobody can read it again. Keep it in a safe place.",
    copy: "Copy",
    copied: "Copied.",
    select: "The browser does not allow copying: the token is selected, copy it yourself.",
    hide: "I have it: hide the token",
    viewer: "viewer: looks",
    user: "user: acts on own jobs",
    operator: "operator: may do everything",
    two: "A holder has at most two valid tokens at a time.",
  },
  zh: {
    token: "令牌",
    role: "角色",
    state: "状态",
    issued: "签发于",
    by: "签发人",
    ends: "到期",
    note: "备注",
    order: "操作",
    live: "有效",
    revoked: "已吊销",
    expired: "已过期",
    revoke: "吊销",
    revokeSays: "{holder} 的令牌 {id} 将在一分钟内失效，用它打开的会话也随之结束。",
    revokedNow: "{holder} 的令牌 {id} 已吊销。",
    none: "尚未签发过令牌。",
    days: "有效期（天）",
    issue: "签发令牌",
    issuedNow: "已为 {holder} 签发令牌，仅在页面上显示一次。",
    once: "这是 {holder} 的新令牌，只在此刻显示，之后无法再读取。请妥善保存。",
    copy: "复制",
    copied: "已复制。",
    select: "浏览器不允许复制：令牌已选中，请自行复制。",
    hide: "已保存，隐藏令牌",
    viewer: "viewer：只看",
    user: "user：操作自己的任务",
    operator: "operator：全部权限",
    two: "每个持有者同时最多有两个有效令牌。",
  },
});
const DAY_S = 86_400;
const ROLES = ["viewer", "user", "operator"] as const;
export type Role = (typeof ROLES)[number];

/** A token as the lists of both kinds have it. */
export interface ListedToken {
  id: string;
  role?: string;
  live: boolean;
  issued_at: string;
  expires_at: string;
  revoked_at: string | null;
  issued_by: string;
  note: string;
}

export interface TokenCalls {
  holder: string;
  /** Whether tokens of this kind have a role. */
  roles: boolean;
  issue: (wish: { expires_in_s: number; note: string; role: Role }) => Promise<string>;
  revoke: (id: string) => Promise<unknown>;
}

export function Tokens({ from, calls }: { from: Polled<ListedToken[]>; calls: TokenCalls }) {
  const [order, setOrder] = useState<Order>();
  const revoke = (id: string): Order => ({
    title: t("revoke"),
    says: <p>{t("revokeSays", { id, holder: calls.holder })}</p>,
    send: async () => {
      await calls.revoke(id);
      from.hurry(3_000, 10_000);
      return t("revokedNow", { id, holder: calls.holder });
    },
  });
  return (
    <>
      <Issue calls={calls} done={() => from.hurry(3_000, 10_000)} />
      <Loaded from={from}>{(tokens) => <List tokens={tokens} roles={calls.roles} ask={(id) => setOrder(revoke(id))} />}</Loaded>
      {order !== undefined && <Confirm order={order} done={() => setOrder(undefined)} />}
    </>
  );
}

function List({ tokens, roles, ask }: { tokens: ListedToken[]; roles: boolean; ask: (id: string) => void }) {
  if (tokens.length === 0) return <p>{t("none")}</p>;
  const columns = (["token", "role", "state", "ends", "issued", "by", "note", "order"] as const).filter((name) => roles || name !== "role");
  return (
    <Table
      columns={columns}
      words={t}
      rows={[...tokens].reverse().map((one) => ({
        key: one.id,
        cells: {
          token: <code>{one.id}</code>,
          role: one.role,
          state: (
            <strong class={one.live ? "tone-good" : "tone-silent"}>
              {one.live ? `✓ ${t("live")}` : `⊘ ${t(one.revoked_at !== null ? "revoked" : "expired")}`}
            </strong>
          ),
          ends: <Ago at={one.revoked_at ?? one.expires_at} />,
          issued: <Ago at={one.issued_at} />,
          by: one.issued_by,
          note: one.note,
          order: one.live && (
            <button class="secondary outline small" onClick={() => ask(one.id)} aria-label={`${t("revoke")} ${one.id}`}>
              {t("revoke")}
            </button>
          ),
        },
      }))}
    />
  );
}

function Issue({ calls, done }: { calls: TokenCalls; done: () => void }) {
  const [role, setRole] = useState<Role>("user");
  const [days, setDays] = useState(90);
  const [note, setNote] = useState("");
  const [problem, setProblem] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const [token, setToken] = useState<string>();
  const sending = useRef(false);
  const issue = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (sending.current || token !== undefined) return;
    sending.current = true; // two presses send once
    setBusy(true);
    setProblem(undefined);
    try {
      setToken(await calls.issue({ expires_in_s: Math.round(days * DAY_S), note: note.trim(), role }));
      setNote("");
      announce(t("issuedNow", { holder: calls.holder }));
      done();
    } catch (error) {
      setProblem(error as Error);
    } finally {
      sending.current = false;
      setBusy(false);
    }
  };
  if (token !== undefined) return <Once token={token} holder={calls.holder} hide={() => setToken(undefined)} />;
  return (
    <form class="filters issue" onSubmit={(event) => void issue(event)}>
      {calls.roles && (
        <label>
          {t("role")}
          <select name="role" value={role} onChange={(event) => setRole(event.currentTarget.value as Role)}>
            {ROLES.map((name) => (
              <option key={name} value={name}>
                {t(name)}
              </option>
            ))}
          </select>
        </label>
      )}
      <label>
        {t("days")}
        <input name="days" type="number" min={1} max={366} required value={days} onInput={(event) => setDays(Number(event.currentTarget.value))} />
      </label>
      <label>
        {t("note")}
        <input name="note" maxLength={200} value={note} autocomplete="off" onInput={(event) => setNote(event.currentTarget.value)} />
      </label>
      <button type="submit" aria-busy={busy}>
        {t("issue")}
      </button>
      <small class="muted">{t("two")}</small>
      <Problem of={problem} />
    </form>
  );
}

/** The new token. It is in this component alone, and gone when that is hidden or left. */
function Once({ token, holder, hide }: { token: string; holder: string; hide: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(token);
      announce(t("copied"));
    } catch {
      field.current?.select();
      announce(t("select"));
    }
  };
  return (
    <article class="once">
      <label>
        {t("once", { holder })}
        <input ref={field} name="new-token" class="mono" readOnly value={token} onFocus={(event) => event.currentTarget.select()} autocomplete="off" />
      </label>
      <div class="orders">
        <button onClick={() => void copy()}>{t("copy")}</button>
        <button class="secondary" onClick={hide}>
          {t("hide")}
        </button>
      </div>
    </article>
  );
}
