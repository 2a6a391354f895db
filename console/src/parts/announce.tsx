// Sentences that are shown and read out once: answers to orders.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

const sentence = signal<ComponentChildren>("");
let timer: number | undefined;

/** Show a sentence for ten seconds. Screen readers read it without a change of focus. */
export function announce(text: ComponentChildren): void {
  sentence.value = text;
  clearTimeout(timer);
  timer = setTimeout(() => (sentence.value = ""), 10_000) as unknown as number;
}

/** The place where the sentences appear. */
export function Announcements() {
  return (
    <div class="announcements" role="status" aria-live="polite">
      {sentence.value !== "" && <p>{sentence.value}</p>}
    </div>
  );
}
