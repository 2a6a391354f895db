// The fleet as typed columns: decodes the map and its members, and applies events between two maps.
import { bodyOf, client, type Schemas, serverNow } from "./api";
import { events, versionOf } from "./feed";

/** Bits of the column `flags` (`MapFlag` in core/console_snapshots.py). */
export const SILENT = 1;
export const HELD = 2;
export const SUSPECTED = 4;
export const LEAVING = 8;
export const RESERVED = 16;
export const UNPLACEABLE = 32;

type Event = Schemas["Event"];

/** What stays while the membership stays. Columns hold numbers of the names beside them. */
export interface Members {
  digest: string;
  ids: string[];
  gpus: Uint8Array;
  groups: string[];
  group: Uint16Array;
  zones: string[];
  zone: Uint16Array;
  racks: string[];
  rack: Uint16Array;
  /** Position by id. */
  at: Map<string, number>;
}

/** The fleet at one time. `job` is 0 for none, else the number of the name in `jobs`, counted from 1. */
export interface Fleet {
  asOf: string;
  members: Members;
  statuses: string[];
  jobs: string[];
  status: Uint8Array;
  flags: Uint8Array;
  job: Uint16Array;
  since: Uint32Array;
  /** Percent for 8 GPUs of each instance in steps of 10, 255 for unknown; null if it was not asked for. */
  utilisation: Uint8Array | null;
  /** Whether the deployment keeps the utilisation, so that it can be asked for. */
  gpuHistory: boolean;
}

function bytes(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

function decodedMembers(answer: Schemas["FleetMembers"]): Members {
  return {
    digest: answer.members ?? "",
    ids: answer.ids,
    gpus: bytes(answer.gpus),
    groups: answer.groups,
    group: new Uint16Array(bytes(answer.group).buffer),
    zones: answer.zones,
    zone: new Uint16Array(bytes(answer.zone).buffer),
    racks: answer.racks,
    rack: new Uint16Array(bytes(answer.rack).buffer),
    at: new Map(answer.ids.map((id, position) => [id, position])),
  };
}

let known: Members | undefined;
let newest: Fleet | null = null;

/** Ask for the map, and for its members if they are not known. null: no map was written yet.
 *
 * The events that are newer than the map are applied to it. An answer that is not newer than the last returns the
 * same fleet, with the events that were applied to it.
 */
export async function loadFleet(signal: AbortSignal, gpu: boolean): Promise<Fleet | null> {
  const map = await bodyOf(client.GET("/api/v2/fleet/map", { params: { query: gpu ? { gpu: "1" } : {} }, signal }));
  if (map.as_of === null || map.members === null) return null;
  if (known?.digest !== map.members) {
    known = decodedMembers(await bodyOf(client.GET("/api/v2/fleet/members", { signal })));
  }
  // The members were written a moment before or after the map. The next map fits again.
  if (known.digest !== map.members) return newest;
  const utilisation = map.utilisation === null ? null : bytes(map.utilisation);
  // Several processes answer, and each keeps the map for some seconds: one of them may have an older map than another.
  if (newest?.members === known && Date.parse(map.as_of) <= Date.parse(newest.asOf)) {
    if (utilisation !== null && newest.utilisation === null) newest = { ...newest, utilisation };
    return newest;
  }
  newest = {
    asOf: map.as_of,
    members: known,
    statuses: map.statuses,
    jobs: map.jobs,
    status: bytes(map.status),
    flags: bytes(map.flags),
    job: new Uint16Array(bytes(map.job).buffer),
    since: new Uint32Array(bytes(map.status_at).buffer),
    gpuHistory: map.gpu_history,
    utilisation,
  };
  applyEvents(newest, events.peek());
  return newest;
}

const WRITTEN_EVERY_MS = 60_000;
const LOOK_EVERY_MS = 15_000;

/** Return the milliseconds until the next map is there, some seconds after its writer's next cycle. */
export function nextMapMs(fleet: Fleet | null | undefined): number {
  if (!fleet) return LOOK_EVERY_MS;
  const due = Date.parse(fleet.asOf) + WRITTEN_EVERY_MS + 10_000 - serverNow();
  return Math.max(LOOK_EVERY_MS, Math.min(WRITTEN_EVERY_MS, due));
}

/** A map shows the fleet as it was some time before `asOf`: its writer lists the fleet, decides, and then writes. */
const LISTED_BEFORE_MS = 60_000;

/** Apply the changes of status that the map does not have yet. Return whether the fleet has changed.
 *
 * Of the events of an instance the one with the highest version counts, in whatever order they come, and however often.
 * An event that is a minute older than the map changes nothing.
 */
export function applyEvents(fleet: Fleet, happened: Event[]): boolean {
  const oldest = Date.parse(fleet.asOf) - LISTED_BEFORE_MS;
  const last = new Map<number, Event>();
  for (const event of happened) {
    const position = event.instance_id === null ? undefined : fleet.members.at.get(event.instance_id);
    if (position === undefined || event.kind !== "instance_state_changed" || Date.parse(event.at) < oldest) continue;
    const before = last.get(position);
    if (before === undefined || versionOf(before) < versionOf(event)) last.set(position, event);
  }
  let changed = false;
  for (const [position, event] of last) {
    const status = fleet.statuses.indexOf(event.after ?? "");
    const shown = fleet.statuses[fleet.status[position] ?? 0];
    const at = Math.floor(Date.parse(event.at) / 1_000);
    const since = fleet.since[position] ?? 0;
    // The map has whole seconds. Within one second, the event is the later one if it begins where the map is.
    if (status < 0 || at < since || (at === since && (event.before !== shown || event.after === shown))) continue;
    fleet.status[position] = status;
    fleet.since[position] = at;
    fleet.flags[position] = (fleet.flags[position] ?? 0) & ~HELD; // the flag belongs to the status that has ended
    changed = true;
  }
  return changed;
}

/** Return the state of an instance as the console names it: free, used, silent, or its status. */
export function stateOf(fleet: Fleet, position: number): string {
  if (((fleet.flags[position] ?? 0) & SILENT) !== 0) return "silent";
  const status = fleet.statuses[fleet.status[position] ?? 0] ?? "";
  return status === "AVAILABLE" ? (fleet.job[position] === 0 ? "free" : "used") : status;
}

/** Return the job of an instance; "" for none. */
export function jobOf(fleet: Fleet, position: number): string {
  return fleet.jobs[(fleet.job[position] ?? 0) - 1] ?? "";
}

/** Return the name of the place of an instance: group, zone and rack, as far as they are known. */
export function placeOf(members: Members, position: number): string {
  const names = [
    members.groups[members.group[position] ?? 0],
    members.zones[members.zone[position] ?? 0],
    members.racks[members.rack[position] ?? 0],
  ];
  return names.filter((name) => name !== undefined && name !== "").join(" · ");
}
