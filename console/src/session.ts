// The session of this tab. It is the only credential that is kept, and it ends with the tab.
import { signal } from "@preact/signals";
import type { components } from "./schema";

export type Role = "viewer" | "user" | "operator";
type NewSession = components["schemas"]["NewSession"];
const KEY = "gpu-recovery session";

export interface Session {
  text: string;
  user: string;
  role: Role;
  expiresAt: string;
}

function stored(): Session | null {
  const text = sessionStorage.getItem(KEY);
  return text === null ? null : (JSON.parse(text) as Session);
}

/** The present session; null: the sign-in is shown. */
export const session = signal<Session | null>(stored());
/** Why the last session ended: a sentence of the server, or "". */
export const endedBecause = signal("");

export function begin(answer: NewSession): void {
  const next: Session = { text: answer.session, user: answer.user, role: answer.role, expiresAt: answer.expires_at };
  sessionStorage.setItem(KEY, JSON.stringify(next));
  endedBecause.value = "";
  session.value = next;
}

/** Forget the session. The address stays, so that the next sign-in leads back to the same page. */
export function end(because = ""): void {
  sessionStorage.removeItem(KEY);
  endedBecause.value = because;
  session.value = null;
}

const ROLES: Role[] = ["viewer", "user", "operator"];

/** Return whether the session's role includes `needed`. */
export function may(needed: Role): boolean {
  return session.value !== null && ROLES.indexOf(session.value.role) >= ROLES.indexOf(needed);
}
