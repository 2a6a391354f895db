// Tokens of a user or of an instance's agent: list and revoke, and the command that issues a token.
import { useRef, useState } from "preact/hooks";
import type { Polled } from "../live";
import { texts } from "../texts";
import { announce } from "./announce";
import { Code } from "./codes";
import { Confirm, type Order } from "./confirm";
import { Loaded } from "./loaded";
import { Table } from "./table";
import { Ago } from "./time";
import { nameOf } from "./who";

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
    issue: "Issue a token with the command line",
    why: "The console cannot issue tokens: a token would outlive your session. A holder has at most two valid tokens at a time.",
    copy: "Copy",
    copied: "Copied.",
    select: "The browser does not allow copying: the command is selected, copy it yourself.",
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
    issue: "用命令行签发令牌",
    why: "控制台不能签发令牌：令牌会比会话存在得更久。每个持有者同时最多有两个有效令牌。",
    copy: "复制",
    copied: "已复制。",
    select: "浏览器不允许复制：命令已选中，请自行复制。",
  },
});

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
  /** The command line that issues a token of the holder. */
  command: string;
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
      <Loaded from={from}>
        {(tokens) => (
          // The API has accepted the name of the holder by now, so the command has no foreign text.
          <>
            <Issue command={calls.command} />
            <List tokens={tokens} roles={calls.roles} ask={(id) => setOrder(revoke(id))} />
          </>
        )}
      </Loaded>
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
          role: one.role !== undefined && <Code of="role" is={one.role} />,
          state: (
            <strong class={one.live ? "tone-good" : "tone-silent"}>
              {one.live ? `✓ ${t("live")}` : `⊘ ${t(one.revoked_at !== null ? "revoked" : "expired")}`}
            </strong>
          ),
          ends: <Ago at={one.revoked_at ?? one.expires_at} />,
          issued: <Ago at={one.issued_at} />,
          by: nameOf(one.issued_by),
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

/** The command line that issues a token. The API refuses to issue tokens to a session. */
function Issue({ command }: { command: string }) {
  const field = useRef<HTMLInputElement>(null);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(command);
      announce(t("copied"));
    } catch {
      field.current?.select();
      announce(t("select"));
    }
  };
  return (
    <div class="filters issue">
      <label>
        {t("issue")}
        <input ref={field} name="command" class="mono" readOnly value={command} onFocus={(event) => event.currentTarget.select()} autocomplete="off" />
      </label>
      <button class="secondary" onClick={() => void copy()}>
        {t("copy")}
      </button>
      <small class="muted">{t("why")}</small>
    </div>
  );
}
