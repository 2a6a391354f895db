// Parts of the console whose code is loaded when they are first shown. A deployment deletes the files of the build
// before: an open tab then says so. A lost connection is waited for.
import { type ComponentChildren, type ComponentType, Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import { backOffMs, pause } from "../api";
import { texts } from "../texts";

const t = texts({
  en: { newer: "A newer console is there: reload.", reload: "Reload", loading: "Loading", away: "This part could not be loaded. Trying again.", failed: "This part could not be loaded: reload." },
  zh: { newer: "控制台已更新，请重新加载。", reload: "重新加载", loading: "加载中", away: "这一部分无法加载，正在重试。", failed: "这一部分无法加载，请重新加载页面。" },
});

/** Return whether the served page names other files than this tab has loaded. Raises if the page cannot be read. */
async function isReplaced(): Promise<boolean> {
  const answer = await fetch(location.href.split("#")[0] as string, { cache: "no-cache" });
  if (!answer.ok) throw new Error(`the page is answered with ${answer.status}`);
  const text = await answer.text();
  return [...document.querySelectorAll<HTMLScriptElement>("script[src]")].some((script) => !text.includes(script.getAttribute("src") ?? ""));
}

/** Return a component whose code is loaded when it is first shown. `Frame` holds what is shown until then. */
export function onDemand<Props extends object>(
  load: () => Promise<ComponentType<Props>>,
  Frame: ComponentType<{ children: ComponentChildren }> = Fragment,
): ComponentType<Props> {
  let loaded: ComponentType<Props> | undefined;
  return function OnDemand(props: Props) {
    const [state, setState] = useState<"loading" | "loaded" | "away" | "newer" | "failed">(loaded === undefined ? "loading" : "loaded");
    useEffect(() => {
      const left = new AbortController();
      const attempt = async (): Promise<void> => {
        for (let failures = 1; loaded === undefined; failures += 1) {
          try {
            loaded = await load();
          } catch {
            const replaced = await isReplaced().catch(() => undefined);
            // Some browsers keep the failure of an import, so that trying again helps after a reload alone.
            if (replaced === true) return setState("newer");
            if (replaced === false && failures > 1) return setState("failed");
            setState("away");
            await pause(backOffMs(failures), left.signal);
          }
        }
        setState("loaded");
      };
      attempt().catch((error: unknown) => left.signal.aborted || reportError(error));
      return () => left.abort();
    }, []);
    const Loaded = loaded;
    if (Loaded !== undefined) return <Loaded {...props} />;
    return (
      <Frame>
        {state === "away" ? (
          <p role="status">{t("away")}</p>
        ) : state === "newer" || state === "failed" ? (
          <div role="alert" class="problem">
            <p>{t(state)}</p>
            <button onClick={() => location.reload()}>{t("reload")}</button>
          </div>
        ) : (
          <div role="status" aria-busy="true" aria-label={t("loading")} />
        )}
      </Frame>
    );
  };
}
