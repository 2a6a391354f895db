// Orders: a dialog says what will happen and to whom, and sends the order once.
import { type ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { announce } from "./announce";
import { Modal } from "./modal";
import { Problem } from "./problem";
import { texts } from "../texts";

const t = texts({
  en: { reason: "Reason", needed: "needed", optional: "optional", type: "Type {text} to confirm" },
  zh: { reason: "原因", needed: "必填", optional: "可选", type: "输入 {text} 以确认" },
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
  send: (reason: string) => Promise<ComponentChildren>;
}

/** The dialog of an order. Escape and "back" close it without an order; while the order is being sent, nothing does. */
export function Confirm({ order, done }: { order: Order; done: () => void }) {
  const sent = useRef(false);
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const ready = (order.reason !== "needed" || reason.trim() !== "") && (order.typed === undefined || typed.trim() === order.typed);
  const send = async (): Promise<void> => {
    if (!ready || sent.current) return;
    sent.current = true; // two presses send once
    setBusy(true);
    setProblem(undefined);
    try {
      announce(await order.send(reason.trim()));
      done();
    } catch (error) {
      sent.current = false;
      setBusy(false);
      setProblem(error as Error);
    }
  };
  return (
    <Modal
      title={order.title}
      busy={busy}
      close={done}
      submit={() => void send()}
      buttons={
        <button type="submit" class="danger" disabled={!ready} aria-busy={busy}>
          {order.title}
        </button>
      }
    >
      <div>{order.says}</div>
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
      <Problem of={problem} />
    </Modal>
  );
}
