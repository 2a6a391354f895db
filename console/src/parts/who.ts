// Names of people as the API tells them.
import { texts } from "../texts";

const t = texts({ en: { operator: "an operator" }, zh: { operator: "运维人员" } });
/** What the API calls the holder of the operator token, which belongs to no user. */
const NAMELESS = "an operator";

/** Return the name of a person in the present language. */
export function nameOf(who: string): string {
  return who === NAMELESS || who.startsWith(`${NAMELESS},`) ? t("operator") : who;
}
