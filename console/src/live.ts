// Polling: one request of a kind at a time, none in a hidden tab, none while the API is away.
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Away, connection, waitMs } from "./api";
import { session } from "./session";

/** Whether pages refresh themselves. The switch is in the header. */
export const refreshing = signal(true);
/** Counts presses of "refresh now". */
export const asked = signal(0);

const IDLE_AFTER_MS = 600_000;
const IDLE_EVERY_MS = 30_000;
let lastInput = Date.now();
for (const kind of ["pointerdown", "keydown", "wheel"] as const) {
  addEventListener(kind, () => (lastInput = Date.now()), { passive: true });
}

export interface Polled<T> {
  /** The newest answer; undefined before the first. It stays while later requests fail. */
  data: Signal<T | undefined>;
  /** The error of the newest request; undefined after a success, and while the API is away. */
  error: Signal<Error | undefined>;
  /** Ask now, and then every `everyMs` for `forMs` (after an order). */
  hurry: (everyMs?: number, forMs?: number) => void;
}

/** Poll while the component is mounted.
 *
 * Args:
 *   key: what is asked. With another key the old answer is dropped.
 *   load: asks once.
 *   everyMs: returns the milliseconds between two requests for the newest answer; null: no further request.
 */
export function usePolled<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  everyMs: (newest: T | undefined) => number | null,
): Polled<T> {
  const polled = useMemo(() => {
    const state = { hurryEvery: 0, hurryUntil: 0, wake: () => {} };
    return {
      state,
      data: signal<T | undefined>(undefined),
      error: signal<Error | undefined>(undefined),
      hurry: (every = 3_000, forMs = 120_000) => {
        state.hurryEvery = every;
        state.hurryUntil = Date.now() + forMs;
        state.wake();
      },
    };
  }, [key]);
  useEffect(() => {
    const { state } = polled;
    const stopped = new AbortController();
    let timer: number | undefined;
    let running = false;
    let again = false;
    let owed = true; // a request that the API has not answered: it is tried again, whatever `everyMs` says

    const plan = (): void => {
      clearTimeout(timer);
      if (running || stopped.signal.aborted || document.hidden || session.value === null) return;
      const every = everyMs(polled.data.value);
      if (!owed && !refreshing.value && polled.data.value !== undefined) return;
      let wait = owed ? 0 : Date.now() < state.hurryUntil ? state.hurryEvery : every;
      if (wait === null) return;
      if (!owed && Date.now() - lastInput > IDLE_AFTER_MS) wait = Math.max(wait, IDLE_EVERY_MS);
      timer = setTimeout(run, Math.max(wait, waitMs())) as unknown as number;
    };
    const run = async (): Promise<void> => {
      clearTimeout(timer);
      if (stopped.signal.aborted || document.hidden || session.value === null) return;
      if (running) {
        again = true;
        return;
      }
      owed = true;
      if (waitMs() > 0) return plan();
      running = true;
      try {
        const answer = await load(stopped.signal);
        if (stopped.signal.aborted) return;
        polled.data.value = answer;
        polled.error.value = undefined;
        owed = false;
      } catch (error) {
        if (stopped.signal.aborted) return;
        owed = error instanceof Away;
        if (!owed) polled.error.value = error as Error;
      } finally {
        running = false;
      }
      if (again) {
        again = false;
        return run();
      }
      plan();
    };
    state.wake = () => void run();
    const seen = (): void => {
      if (document.hidden) clearTimeout(timer);
      else if (owed || (refreshing.value && everyMs(polled.data.value) !== null)) void run();
    };
    document.addEventListener("visibilitychange", seen);
    // The first call of a subscription is immediate, and one of them asks. A later call of the session follows a sign-in.
    let mounted = false;
    const stops = [
      asked.subscribe(() => void run()),
      refreshing.subscribe(plan),
      connection.subscribe(({ retryAt }) => void (mounted && owed && retryAt === null && plan())),
      session.subscribe((present) => void (mounted && present !== null && run())),
    ];
    mounted = true;
    return () => {
      stopped.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
      for (const stop of stops) stop();
    };
  }, [polled]);
  return polled;
}
