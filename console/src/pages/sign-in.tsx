// The sign-in: exchanges a token for a session and forgets the token.
import { useState } from "preact/hooks";
import { signIn } from "../api";
import { Problem } from "../parts/problem";
import { begin, endedBecause } from "../session";
import { language, texts } from "../texts";

const t = texts({
  en: {
    token: "Token",
    where: "Where from: an operator issues a token with",
    viewer: "As a viewer: look around, change nothing",
    full: "As what the token allows",
    button: "Sign in",
    ended: "The session has ended:",
    kept: "The token is exchanged for a session of at most 12 hours and is not kept. The session ends with this tab.",
  },
  zh: {
    token: "令牌",
    where: "令牌由运维人员签发：",
    viewer: "以查看者身份：只看，不改",
    full: "按令牌允许的权限",
    button: "登录",
    ended: "会话已结束：",
    kept: "令牌会换成最长 12 小时的会话，令牌本身不保存。关闭标签页即结束会话。",
  },
});

export function SignIn() {
  const [token, setToken] = useState("");
  const [viewer, setViewer] = useState(true);
  const [problem, setProblem] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    setProblem(undefined);
    try {
      const given = token.trim();
      // What `gpu-recovery console` prints is already a session; the API tells who it is.
      const answer = await signIn(given, viewer ? "viewer" : undefined);
      setToken("");
      begin(answer);
    } catch (error) {
      setProblem(error as Error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="container sign-in">
      <article>
        <h1>gpu-recovery</h1>
        {endedBecause.value !== "" && (
          <p role="alert" class="problem">
            {language.value !== "en" && t("ended")} <span lang="en">{endedBecause.value}</span>
          </p>
        )}
        <form onSubmit={(event) => void submit(event)}>
          <label>
            {t("token")}
            <input type="password" name="token" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
          </label>
          <fieldset>
            <label>
              <input type="radio" name="role" checked={viewer} onChange={() => setViewer(true)} /> {t("viewer")}
            </label>
            <label>
              <input type="radio" name="role" checked={!viewer} onChange={() => setViewer(false)} /> {t("full")}
            </label>
          </fieldset>
          <Problem of={problem} />
          <button type="submit" aria-busy={busy}>
            {t("button")}
          </button>
        </form>
        <p>
          <small>
            {t("where")} <code>gpu-recovery token issue --user NAME</code>
          </small>
        </p>
        <p>
          <small>{t("kept")}</small>
        </p>
      </article>
    </main>
  );
}
