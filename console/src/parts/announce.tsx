// Sentences that are shown and read out once: answers to orders.
import { signal } from "@preact/signals";

const sentence = signal("");
let timer: number | undefined;

/** Show a sentence for ten seconds. Screen readers read it without a change of focus. */
export function announce(text: string): void {
  sentence.value = text;
  clearTimeout(timer);
  timer = setTimeout(() => (sentence.value = ""), 10_000) as unknown as number;
}

/** The place where the sentences appear. */
export function Announcements() {
  return (
    <div class="announcements" role="status" aria-live="polite" lang="en">
      {sentence.value !== "" && <p>{sentence.value}</p>}
    </div>
  );
}
