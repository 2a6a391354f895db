// Users: the names that tokens were issued to, their tokens, and their quotas. For operators.
import { useState } from "preact/hooks";
import { bodyOf, client, type Schemas } from "../api";
import { usePolled } from "../live";
import { wordsFor } from "../parts/codes";
import { Loaded } from "../parts/loaded";
import { Pager, usePages } from "../parts/pager";
import { Table } from "../parts/table";
import { Ago } from "../parts/time";
import { type ListedToken, Tokens } from "../parts/tokens";
import { path, query, refine, to } from "../place";
import { may } from "../session";
import { texts } from "../texts";

const t = texts({
  en: {
    title: "Users",
    user: "User",
    roles: "Roles",
    tokens: "Valid tokens",
    ends: "Next end",
    issued: "Last token",
    none: "No token was issued yet, or none since this list exists.",
    some: "The list has the users that tokens were issued to since it exists. A user with older tokens alone appears with the next token.",
    noneValid: "none valid",
    operator: "Sign in as an operator to see users and their tokens.",
    find: "Name begins with",
    name: "Name of the user",
    go: "Open",
    ofUser: "Tokens",
    quotas: "Quotas",
    jobs: "Jobs of this user",
    limit: "Instances at most",
    priority: "Priority",
    group: "Group",
    noGroup: "default group",
    any: "any",
    everybody: "everybody",
    noQuota: "No quota names this user. Quotas for all users apply.",
    running: "Running jobs of one user at most: {n}",
    bad: "Letters, digits and _ . @ / + -, at most 127, beginning with a letter or a digit.",
    all: "All users",
  },
  zh: {
    title: "用户",
    user: "用户",
    roles: "角色",
    tokens: "有效令牌",
    ends: "最近到期",
    issued: "最近签发的令牌",
    none: "尚未签发过令牌，或自本列表启用以来没有签发过。",
    some: "本列表包含自启用以来签发过令牌的用户。只有旧令牌的用户会在下次签发时出现。",
    noneValid: "无有效令牌",
    operator: "以运维人员身份登录后才能查看用户及其令牌。",
    find: "名称开头",
    name: "用户名",
    go: "打开",
    ofUser: "令牌",
    quotas: "配额",
    jobs: "该用户的作业",
    limit: "实例上限",
    priority: "优先级",
    group: "分组",
    noGroup: "默认分组",
    any: "任意",
    everybody: "所有人",
    noQuota: "没有配额指定该用户，适用面向所有用户的配额。",
    running: "每个用户最多同时运行的作业数：{n}",
    bad: "字母、数字和 _ . @ / + -，最多 127 个字符，以字母或数字开头。",
    all: "全部用户",
  },
});
const PAGE = 100;

export function Users() {
  const user = path.value[1];
  if (!may("operator")) {
    return (
      <main class="container-fluid" id="content" tabIndex={-1}>
        <h1>{t("title")}</h1>
        <p>{t("operator")}</p>
      </main>
    );
  }
  return (
    <main class="container-fluid" id="content" tabIndex={-1}>
      {user === undefined ? <All /> : <One key={user} user={user} />}
    </main>
  );
}

function All() {
  const q = query.value.get("q") ?? "";
  const pages = usePages(q);
  const { cursor } = pages;
  const [name, setName] = useState("");
  const polled = usePolled(
    `users ${q} ${cursor}`,
    (signal) => {
      const asked = { limit: PAGE, ...(q === "" ? {} : { q }), ...(cursor === undefined ? {} : { cursor }) };
      return bodyOf(client.GET("/api/v2/users", { params: { query: asked }, signal }));
    },
    () => 30_000,
  );
  return (
    <>
      <h1>{t("title")}</h1>
      <div class="filters">
        <label>
          {t("find")}
          <input name="q" value={q} onChange={(event) => refine({ q: event.currentTarget.value.trim() })} />
        </label>
        <form
          class="filters"
          onSubmit={(event) => {
            event.preventDefault();
            location.hash = to(["users", name.trim()]);
          }}
        >
          <label>
            {t("name")}
            <input
              name="name"
              required
              pattern="[A-Za-z0-9][A-Za-z0-9_.@\/+\-]{0,126}"
              title={t("bad")}
              value={name}
              autocomplete="off"
              onInput={(event) => setName(event.currentTarget.value)}
            />
          </label>
          <button type="submit" class="secondary">
            {t("go")}
          </button>
        </form>
      </div>
      <p class="muted">{t("some")}</p>
      <Loaded from={polled}>
        {(page) => (
          <>
            <Rows users={page.users} />
            <Pager pages={pages} next={page.next_cursor} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Rows({ users }: { users: Schemas["Users"]["users"] }) {
  if (users.length === 0) return <p>{t("none")}</p>;
  return (
    <Table
      columns={["user", "roles", "tokens", "ends", "issued"]}
      words={t}
      rows={users.map((one) => ({
        key: one.user,
        cells: {
          user: <a href={to(["users", one.user])}>{one.user}</a>,
          roles: one.roles.length === 0 ? <span class="muted">{t("noneValid")}</span> : one.roles.map((role) => wordsFor("role", role)).join(", "),
          tokens: one.live_tokens,
          ends: one.next_end !== null && <Ago at={one.next_end} />,
          issued: one.last_issued_at !== null && <Ago at={one.last_issued_at} />,
        },
      }))}
    />
  );
}

function One({ user }: { user: string }) {
  const named = { params: { path: { user } } };
  const polled = usePolled(
    `tokens of user ${user}`,
    async (signal) => (await bodyOf(client.GET("/api/v2/users/{user}/tokens", { ...named, signal }))).tokens as ListedToken[],
    () => 30_000,
  );
  const calls = {
    holder: user,
    roles: true,
    command: `gpu-recovery token issue --user ${user} --role user`,
    revoke: (id: string) =>
      bodyOf(client.DELETE("/api/v2/users/{user}/tokens/{token_id}", { params: { path: { user, token_id: id } } })),
  };
  return (
    <>
      <p>
        <a href={to(["users"])}>← {t("all")}</a>
      </p>
      <h1 class="id">{user}</h1>
      <p>
        <a href={to(["jobs"], { user })}>{t("jobs")}</a>
      </p>
      <section aria-label={t("ofUser")}>
        <h2>{t("ofUser")}</h2>
        <Tokens from={polled} calls={calls} />
      </section>
      <Quotas user={user} />
    </>
  );
}

/** The limits that apply to the user. A limit is named `<user>/<priority>/<group>`, and a user may hold slashes. */
function Quotas({ user }: { user: string }) {
  const polled = usePolled(
    "quotas",
    (signal) => bodyOf(client.GET("/api/v2/quotas", { signal })),
    () => null,
  );
  return (
    <section aria-label={t("quotas")}>
      <h2>{t("quotas")}</h2>
      <Loaded from={polled}>
        {({ limits }) => {
          const rows = Object.entries(limits.instances ?? {})
            .map(([name, limit]) => ({ name, limit, ...partsOf(name) }))
            .filter((row) => row.user === user || row.user === "*");
          return (
            <>
              {!rows.some((row) => row.user === user) && <p>{t("noQuota")}</p>}
              {rows.length > 0 && (
                <Table
                  columns={["user", "priority", "group", "limit"]}
                  words={t}
                  narrow
                  rows={rows.map((row) => ({
                    key: row.name,
                    cells: {
                      user: row.user === "*" ? t("everybody") : row.user,
                      priority: row.priority === "*" ? t("any") : wordsFor("priority", row.priority),
                      group: row.group === "*" ? t("any") : row.group || t("noGroup"),
                      limit: row.limit,
                    },
                  }))}
                />
              )}
              {limits.max_running_jobs_per_user !== null && <p>{t("running", { n: limits.max_running_jobs_per_user })}</p>}
            </>
          );
        }}
      </Loaded>
    </section>
  );
}

function partsOf(name: string): { user: string; priority: string; group: string } {
  const parts = name.split("/");
  const group = parts.pop() ?? "";
  const priority = parts.pop() ?? "";
  return { user: parts.join("/"), priority, group };
}
