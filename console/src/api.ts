// The client of the job API: sends the session, keeps entity tags, and backs off when the API is busy or away.
import { signal } from "@preact/signals";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";
import { end, session } from "./session";

export type Schemas = components["schemas"];

/** State of the connection. `since` is the time of the last answer; `retryAt` is null while the API answers. */
export const connection = signal<{ since: number; retryAt: number | null }>({ since: Date.now(), retryAt: null });
/** Milliseconds by which the server's clock is ahead of this computer's. */
export const clockAhead = signal(0);

/** Return the server's time in milliseconds. */
export const serverNow = (): number => Date.now() + clockAhead.value;

/** An answer of the API that is no success. `code` is stable, `message` is the server's sentence. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly field?: string,
  ) {
    super(detail);
  }
}

/** The API did not answer, or is too busy. A reading is tried again at `connection.value.retryAt`; an order is not. */
export class Away extends Error {}

const WAIT_MS = 2_000;
const WAIT_MS_MAX = 120_000;
/** While one request asks whether the API is back, the others wait so long for its answer at most. */
const PROBE_MS = 10_000;
const KEPT_MAX = 60;
const kept = new Map<string, { tag: string; text: string }>();
let failures = 0;

/** Return the milliseconds to wait after so many failures in a row: doubled each time, with full jitter.
 *
 * With jitter, tabs that lost the same API do not come back together.
 */
export function backOffMs(inARow: number): number {
  return Math.max(500, Math.random() * Math.min(WAIT_MS_MAX, WAIT_MS * 2 ** (inARow - 1)));
}

function backOff(retryAfter: string | null): void {
  failures += 1;
  const asked = Number(retryAfter) * 1_000;
  const wait = asked > 0 ? asked + Math.random() * 1_000 : backOffMs(failures);
  connection.value = { ...connection.value, retryAt: Date.now() + wait };
}

/** Return the milliseconds until the next request may be sent; 0 while the API answers. */
export function waitMs(): number {
  return Math.max(0, (connection.value.retryAt ?? 0) - Date.now());
}

/** Read until the API answers: while it is away, as often as `connection` allows.
 *
 * Raises whatever `read` raises, except `Away`; and the reason of `stopped` once it is aborted.
 */
export async function patiently<T>(read: () => Promise<T>, stopped: AbortSignal): Promise<T> {
  for (;;) {
    while (waitMs() > 0) await pause(waitMs(), stopped);
    try {
      return await read();
    } catch (error) {
      if (stopped.aborted || !(error instanceof Away)) throw error;
    }
  }
}

/** Wait so long at least, and until the tab is seen. Raises the reason of `stopped` once it is aborted. */
export async function pause(forMs: number, stopped: AbortSignal): Promise<void> {
  await heard(stopped, (resolve) => setTimeout(resolve, forMs));
  while (document.hidden) await heard(stopped, (resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

function heard(stopped: AbortSignal, listen: (resolve: () => void) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    stopped.throwIfAborted();
    stopped.addEventListener("abort", () => reject(stopped.reason as Error), { once: true });
    listen(resolve);
  });
}

async function answered(request: Request): Promise<Response> {
  const key = `${request.method} ${request.url}`;
  const known = request.method === "GET" ? kept.get(key) : undefined;
  if (session.value !== null && !request.headers.has("Authorization")) {
    request.headers.set("Authorization", `Bearer ${session.value.text}`);
  }
  if (known !== undefined) request.headers.set("If-None-Match", known.tag);
  let response: Response;
  if (connection.value.retryAt !== null) connection.value = { ...connection.value, retryAt: Date.now() + PROBE_MS };
  try {
    response = await fetch(request);
  } catch (error) {
    if (request.signal.aborted) throw error;
    backOff(null);
    throw new Away(String(error));
  }
  const date = Date.parse(response.headers.get("Date") ?? "");
  // The header has whole seconds, so a smaller difference says nothing.
  if (!Number.isNaN(date) && Math.abs(date - serverNow()) > 1_500) clockAhead.value = date - Date.now();
  // A 502 with a problem document is an answer of the API about this request alone.
  const isProblem = response.status === 502 && (response.headers.get("Content-Type") ?? "").startsWith("application/problem+json");
  if (response.status === 429 || (response.status >= 502 && !isProblem)) {
    backOff(response.headers.get("Retry-After"));
    throw new Away(`${response.status} ${response.statusText}`);
  }
  failures = 0;
  connection.value = { since: Date.now(), retryAt: null };
  if (response.status === 304 && known !== undefined) {
    kept.delete(key);
    kept.set(key, known); // what is asked for again and again stays longest
    return new Response(known.text, { status: 200, headers: { "Content-Type": "application/json" } });
  }
  const tag = response.headers.get("ETag");
  // What follows a cursor of the event feed is read once.
  if (request.method === "GET" && response.status === 200 && tag !== null && !new URL(request.url).searchParams.has("after")) {
    const text = await response.clone().text();
    kept.delete(key);
    if (kept.size >= KEPT_MAX) kept.delete(kept.keys().next().value as string);
    kept.set(key, { tag, text });
  }
  return response;
}

/** Typed client. Paths are relative to the page, so the same files work at any base path. */
export const client = createClient<paths>({ baseUrl: "./", fetch: answered });

interface Result<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return the body of a successful answer.
 *
 * Raises `Refused` with the server's sentence for any other. A 401 also ends the session.
 */
export async function bodyOf<T>(call: Promise<Result<T>>): Promise<T> {
  const { data, error, response } = await call;
  if (response.ok) return data as T;
  const problem = (typeof error === "object" && error !== null ? error : {}) as Partial<Schemas["Problem"]>;
  const detail = problem.detail ?? `the API answered ${response.status}`;
  if (response.status === 401 && session.value !== null) end(detail);
  throw new Refused(response.status, problem.code ?? "", detail, problem.field);
}

/** Exchange a token for a session. The token is not kept. */
export async function signIn(token: string, role: "viewer" | undefined): Promise<Schemas["NewSession"]> {
  return bodyOf(
    client.POST("/api/v2/sessions", {
      body: role === undefined ? {} : { role },
      headers: { Authorization: `Bearer ${token}` },
    }),
  );
}
