// The dialog of every order: the focus begins on "back", and the dialog stays while something is being sent.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { texts } from "../texts";

const t = texts({
  en: { back: "Back", close: "Close" },
  zh: { back: "返回", close: "关闭" },
});

interface Props {
  title: string;
  /** Whether the dialog is over, so that "back" is called "close". */
  over?: boolean;
  /** Whether something is being sent: until its answer is there, neither Escape nor "back" closes the dialog. */
  busy: boolean;
  wide?: boolean;
  /** Called when a person closes the dialog. The owner then takes the dialog away, as after the answer to an order. */
  close: () => void;
  submit: () => void;
  /** The buttons beside "back". */
  buttons: ComponentChildren;
  children: ComponentChildren;
}

/** A dialog with a form. The focus returns to where it was when the dialog is taken away. */
export function Modal({ title, over = false, busy, wide = false, close, submit, buttons, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const back = useRef<HTMLButtonElement>(null);
  const gone = useRef(false);
  const id = useId();
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => {
      gone.current = true;
      shown?.close();
    };
  }, []);
  useEffect(() => back.current?.focus(), [over]);
  // Chromium closes a dialog at the second Escape although the first "cancel" was prevented, so the key is, too.
  const hold = (event: Event): void => {
    if (busy) event.preventDefault();
  };
  const closed = (): void => {
    if (gone.current) return;
    if (busy) dialog.current?.showModal();
    else close();
  };
  return (
    <dialog
      ref={dialog}
      onKeyDown={(event) => event.key === "Escape" && hold(event)}
      onCancel={hold}
      onClose={closed}
      aria-labelledby={id}
      aria-busy={busy}
    >
      <article class={wide ? "wide" : ""}>
        <h2 id={id}>{title}</h2>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            submit();
          }}
        >
          {children}
          <footer>
            <button type="button" ref={back} class="back secondary" disabled={busy} onClick={() => dialog.current?.close()}>
              {t(over ? "close" : "back")}
            </button>
            {buttons}
          </footer>
        </form>
      </article>
    </dialog>
  );
}
