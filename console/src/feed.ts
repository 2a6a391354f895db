// The event feed: the newest events of the deployment. Events may come twice, late, or before older ones.
import { signal } from "@preact/signals";
import { bodyOf, client, Refused, type Schemas } from "./api";
import { type Polled, usePolled } from "./live";

type Event = Schemas["Event"];

/** The newest events, each once, oldest first. */
export const events = signal<Event[]>([]);

const FEED_MS = 5_000;
const PAGE = 200;
/** Pages of one look. A tab that is further behind begins with the newest events again. */
const PAGES_MAX = 5;
/** At five events a second, those of two minutes: the age that a fleet map has at most, and the minute before it. */
const KEPT_MAX = 650;
let cursor: string | undefined;

/** Return the version of the record after the event. It rises with each change of the same record. */
export function versionOf(event: Event): number {
  return Number(event.id.split("/").at(-2));
}

function inOrder(one: Event, other: Event): number {
  return Date.parse(one.at) - Date.parse(other.at) || versionOf(one) - versionOf(other) || (one.id < other.id ? -1 : 1);
}

/** Add events to the feed. Those that it has already change nothing. */
export function absorb(more: Event[]): void {
  const known = new Map(events.peek().map((event) => [event.id, event]));
  const before = known.size;
  for (const event of more) known.set(event.id, event);
  if (known.size > before) events.value = [...known.values()].sort(inOrder).slice(-KEPT_MAX);
}

async function read(stopped: AbortSignal): Promise<void> {
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const after = cursor;
    const query = { limit: PAGE, ...(after === undefined ? {} : { after }) };
    const answer = await bodyOf(client.GET("/api/v2/events", { params: { query }, signal: stopped }));
    absorb(answer.events);
    cursor = answer.next_cursor;
    if (after === undefined || answer.events.length < PAGE) return;
  }
  cursor = undefined;
}

/** Poll the feed while the component is mounted. */
export function useFeed(): Polled<true> {
  return usePolled<true>(
    "events",
    async (stopped) => {
      try {
        await read(stopped);
      } catch (error) {
        // A cursor that another release of the API issued is refused.
        if (!(error instanceof Refused && error.status === 400 && cursor !== undefined)) throw error;
        cursor = undefined;
        await read(stopped);
      }
      return true;
    },
    () => FEED_MS,
  );
}
