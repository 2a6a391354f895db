// What the tables and the page of jobs show alike: priority, size, and the choice of an attempt.
import type { Schemas } from "../api";
import { refine } from "../place";
import { texts } from "../texts";
import { Code, wordsFor } from "./codes";

const t = texts({
  en: { asked: "submitted as {asked}", attempt: "Attempt" },
  zh: { asked: "提交时为 {asked}", attempt: "尝试" },
});

/** The priority, with that of the submission where it differs. */
export function Priority({ is, asked }: { is: string; asked: string | undefined }) {
  return (
    <>
      <Code of="priority" is={is} />
      {asked !== undefined && asked !== is && <small> ({t("asked", { asked: wordsFor("priority", asked) })})</small>}
    </>
  );
}

/** Instances × GPUs, with the group. */
export function Size({ nodes, gpus, group }: { nodes: number; gpus: number; group: string }) {
  return (
    <>
      {nodes} × {gpus}
      {group !== "" && <small> {group}</small>}
    </>
  );
}

/** The choice of an attempt, which stands in the address. */
export function AttemptSelect({ job, attempt }: { job: Schemas["Job"]; attempt: number }) {
  return (
    <label>
      {t("attempt")}
      <select name="attempt" value={attempt} onChange={(event) => refine({ attempt: event.currentTarget.value })}>
        {job.attempts.map(({ attempt: number }) => (
          <option key={number} value={number}>
            {number}
          </option>
        ))}
      </select>
    </label>
  );
}
