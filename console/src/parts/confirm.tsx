// Orders: a dialog says what will happen and to whom, and sends the order once.
import { type ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { announce } from "./announce";
import { texts } from "../texts";

const t = texts({
  en: { back: "Back", reason: "Reason", needed: "needed", optional: "optional", type: "Type {text} to confirm" },
  zh: { back: "返回", reason: "原因", needed: "必填", optional: "可选", type: "输入 {text} 以确认" },
});

export interface Order {
  /** Title of the dialog, and words of the button that sends. */
  title: string;
  /** What will happen, and to whom. */
  says: ComponentChildren;
  /** Whether a reason is asked for. */
  reason?: "needed" | "optional";
  /** Text that the person must type. */
  typed?: string;
  /** Sends the order and returns the sentence that is shown afterwards. */
  send: (reason: string) => Promise<string>;
}

/** The dialog of an order. It has the focus on "back"; Escape closes it without an order. */
export function Confirm({ order, done }: { order: Order; done: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const sent = useRef(false);
  const id = useId();
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current?.showModal();
    dialog.current?.querySelector<HTMLButtonElement>(".back")?.focus();
  }, []);
  const ready = (order.reason !== "needed" || reason.trim() !== "") && (order.typed === undefined || typed === order.typed);
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!ready || sent.current) return;
    sent.current = true; // two presses send once
    setBusy(true);
    try {
      announce(await order.send(reason.trim()));
      done();
    } catch (error) {
      sent.current = false;
      setBusy(false);
      setProblem((error as Error).message);
    }
  };
  return (
    <dialog ref={dialog} onClose={done} aria-labelledby={`${id}-title`}>
      <article>
        <h2 id={`${id}-title`}>{order.title}</h2>
        <div>{order.says}</div>
        <form onSubmit={(event) => void send(event)}>
          {order.reason !== undefined && (
            <label>
              {t("reason")} ({t(order.reason)})
              <input name="reason" maxLength={500} value={reason} onInput={(event) => setReason(event.currentTarget.value)} autocomplete="off" />
            </label>
          )}
          {order.typed !== undefined && (
            <label>
              {t("type", { text: order.typed })}
              <input name="typed" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" />
            </label>
          )}
          {problem !== "" && (
            <p role="alert" class="problem" lang="en">
              {problem}
            </p>
          )}
          <footer>
            <button type="button" class="back secondary" onClick={() => dialog.current?.close()}>
              {t("back")}
            </button>
            <button type="submit" class="danger" disabled={!ready} aria-busy={busy}>
              {order.title}
            </button>
          </footer>
        </form>
      </article>
    </dialog>
  );
}
