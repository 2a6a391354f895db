// The form of a new job: fields or a document, the dry run's answer, and then the submission.
import { type ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import { bodyOf, client, Refused, type Schemas } from "../api";
import { to } from "../place";
import { may, session } from "../session";
import { texts } from "../texts";
import { announce } from "./announce";
import { wordsFor } from "./codes";
import { Preview } from "./preview";
import { Sentence } from "./problem";

const t = texts({
  en: {
    form: "Form",
    text: "JSON or YAML",
    what: "What runs",
    where: "How much, and where",
    limits: "Limits and recovery",
    workload: "Workload",
    workloadHelp: "lower-case letters, digits and dashes; the job's id begins with it",
    name: "Name",
    nameHelp: "letters, digits, dots, dashes and underscores; commands take it in place of the id",
    nnodes: "Instances",
    n_gpus_per_node: "GPUs on each",
    backend: "Backend",
    task_definition: "Task definition",
    container: "Container",
    containerHelp: "only if the task definition has several",
    command: "Command",
    commandHelp: "one argument a line",
    entrypoint: "Entrypoint on Ray",
    env: "Environment",
    envHelp: "one NAME=value a line",
    user: "User",
    own: "jobs are submitted in your own name",
    priority: "Priority",
    group: "Group",
    groupHelp: "empty: the default group",
    attempts_max: "Attempts at most",
    max_runtime_s: "Run time at most (seconds)",
    suspend_grace_s: "Suspension notice (seconds)",
    checkpoint_dir: "Checkpoint directory",
    document: "Job specification",
    documentHelp: "a JSON object, or YAML",
    check: "Check (dry run)",
    submit: "Submit",
    checkFirst: "Check the job first: the answer says whether it would start and what it would wait for.",
    changed: "The job was changed after the check: check it again.",
    viewer: "Sign in as a user or an operator to submit jobs.",
    badLine: "line {n} of the environment must be NAME=value",
    submitted: "{id} is submitted:",
    answer: "What would happen",
  },
  zh: {
    form: "表单",
    text: "JSON 或 YAML",
    what: "运行什么",
    where: "规模与位置",
    limits: "限制与恢复",
    workload: "负载名",
    workloadHelp: "小写字母、数字和连字符；作业 id 以它开头",
    name: "名称",
    nameHelp: "字母、数字、点、连字符和下划线；命令可用它代替 id",
    nnodes: "实例数",
    n_gpus_per_node: "每个实例的 GPU 数",
    backend: "后端",
    task_definition: "任务定义",
    container: "容器",
    containerHelp: "仅当任务定义有多个容器时填写",
    command: "命令",
    commandHelp: "每行一个参数",
    entrypoint: "Ray 入口命令",
    env: "环境变量",
    envHelp: "每行一个 NAME=value",
    user: "用户",
    own: "作业以你自己的名义提交",
    priority: "优先级",
    group: "分组",
    groupHelp: "留空：默认分组",
    attempts_max: "最多尝试次数",
    max_runtime_s: "最长运行时间（秒）",
    suspend_grace_s: "挂起前的通知时间（秒）",
    checkpoint_dir: "检查点目录",
    document: "作业规格",
    documentHelp: "JSON 对象或 YAML",
    check: "检查（试运行）",
    submit: "提交",
    checkFirst: "请先检查：结果会说明作业能否启动、会等什么。",
    changed: "检查之后作业有改动：请重新检查。",
    viewer: "以用户或运维人员身份登录后才能提交作业。",
    badLine: "环境变量第 {n} 行必须是 NAME=value",
    submitted: "{id} 已提交：",
    answer: "会发生什么",
  },
});
type Text = Parameters<typeof t>[0];
type Spec = Schemas["JobSpec"];
type Foresight = Schemas["Foresight"];
const PRIORITIES = ["EXTREME_HIGH", "VERY_HIGH", "HIGH", "ABOVE_NORMAL", "NORMAL", "LOW"] as const;
const NUMBERS = ["nnodes", "n_gpus_per_node", "attempts_max", "max_runtime_s", "suspend_grace_s"] as const;
const WORDS = ["workload", "name", "user", "group", "task_definition", "container", "checkpoint_dir", "entrypoint"] as const;
const EMPTY: Record<string, string> = { nnodes: "1", n_gpus_per_node: "8", priority: "NORMAL", backend: "ecs" };

/** A part of the form that the person must mend, by its name. */
class Unfit extends Error {
  constructor(
    readonly field: string,
    detail: string,
  ) {
    super(detail);
  }
}

/** Return a new idempotency key. `crypto.randomUUID` is missing on plain HTTP. */
function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function specOf(values: Record<string, string>): Spec {
  const spec: Record<string, unknown> = {};
  for (const name of WORDS) if ((values[name] ?? "").trim() !== "") spec[name] = values[name]?.trim();
  for (const name of NUMBERS) if ((values[name] ?? "").trim() !== "") spec[name] = Number(values[name]);
  spec["priority"] = values["priority"];
  if (values["backend"] === "ray") spec["backend"] = "ray";
  const command = (values["command"] ?? "").replace(/\n+$/, "");
  if (command !== "") spec["command"] = command.split("\n");
  const lines = (values["env"] ?? "").split("\n");
  const env: Record<string, string> = {};
  lines.forEach((line, at) => {
    if (line.trim() === "") return;
    const [name, ...rest] = line.split("=");
    if (rest.length === 0 || name === undefined || name.trim() === "") throw new Unfit("env", t("badLine", { n: at + 1 }));
    env[name.trim()] = rest.join("=");
  });
  if (Object.keys(env).length > 0) spec["env"] = env;
  return spec as unknown as Spec;
}

/** The form of a new job. Without the role it is shown disabled, with the reason. */
export function JobForm() {
  const id = useId();
  const [key] = useState(newKey); // made when the form opens: a repeated submission is the same job
  const [asText, setAsText] = useState(false);
  const [document_, setDocument] = useState("");
  const [values, setValues] = useState(EMPTY);
  const [checked, setChecked] = useState<{ text: string; answer: Foresight }>();
  const [problem, setProblem] = useState<{ field: string; error: Error }>();
  const [busy, setBusy] = useState<"check" | "submit">();
  const underWay = useRef(false);
  const allowed = may("user");
  const isOperator = may("operator");
  const content = asText ? document_ : JSON.stringify(values);
  const isFresh = checked !== undefined && checked.text === content;

  const send = async (dryRun: boolean): Promise<void> => {
    if (underWay.current) return; // two presses send once
    underWay.current = true;
    setBusy(dryRun ? "check" : "submit");
    setProblem(undefined);
    try {
      const text = asText ? document_ : JSON.stringify(specOf(values));
      const isJson = text.trimStart().startsWith("{");
      const answer = await bodyOf(
        client.POST("/api/v2/jobs", {
          params: dryRun ? { query: { dry_run: "1" } } : { header: { "Idempotency-Key": key } },
          body: text as unknown as Spec,
          bodySerializer: (body) => body as unknown as string,
          headers: { "Content-Type": isJson ? "application/json" : "application/yaml" },
        }),
      );
      if ("job_id" in answer) {
        announce(
          <>
            {t("submitted", { id: answer.job_id })} <span lang="en">{answer.reason}</span>
          </>,
        );
        location.hash = to(["jobs", answer.job_id]);
      } else {
        setChecked({ text: content, answer: answer as Foresight });
      }
    } catch (error) {
      const field = error instanceof Refused || error instanceof Unfit ? (error.field ?? "") : "";
      setProblem({ field, error: error as Error });
      if (dryRun) setChecked(undefined);
      document.getElementsByName(field.split(".")[0] || "-")[0]?.focus();
    } finally {
      underWay.current = false;
      setBusy(undefined);
    }
  };
  const set = (name: string) => (event: { currentTarget: { value: string } }) => {
    const { value } = event.currentTarget;
    setValues((before) => ({ ...before, [name]: value }));
  };
  const field = (name: Text & string, help?: Text, control?: (shared: Record<string, unknown>) => ComponentChildren, more: Record<string, unknown> = {}) => {
    const shared: Record<string, unknown> = {
      name,
      value: values[name] ?? "",
      onInput: set(name),
      autocomplete: "off",
      "aria-invalid": problem?.field.split(".")[0] === name ? "true" : undefined,
      "aria-describedby": help === undefined ? undefined : `${id}-${name}`,
      ...more,
    };
    return (
      <label>
        {t(name)}
        {control === undefined ? <input {...shared} /> : control(shared)}
        {help !== undefined && <small id={`${id}-${name}`}>{t(help)}</small>}
      </label>
    );
  };
  const number = (name: Text & string, most: number, more: Record<string, unknown> = {}) =>
    field(name, undefined, undefined, { type: "number", min: 1, max: most, ...more });
  const area = (rows: number) => (shared: Record<string, unknown>) => <textarea rows={rows} spellcheck={false} {...shared} />;

  return (
    <form
      class="job-form"
      onSubmit={(event) => {
        event.preventDefault();
        void send(true);
      }}
    >
      {!allowed && <p class="problem">{t("viewer")}</p>}
      <fieldset disabled={!allowed} class="bare">
        <div class="modes">
          {([false, true] as const).map((isText) => (
            <button
              key={String(isText)}
              type="button"
              class={asText === isText ? "" : "secondary outline"}
              aria-pressed={asText === isText}
              onClick={() => {
                if (isText && document_.trim() === "") {
                  try {
                    setDocument(JSON.stringify(specOf(values), null, 2));
                  } catch {
                    setDocument("");
                  }
                }
                setAsText(isText);
              }}
            >
              {t(isText ? "text" : "form")}
            </button>
          ))}
        </div>
        {asText ? (
          <label>
            {t("document")}
            <textarea
              name="document"
              rows={18}
              class="code"
              spellcheck={false}
              value={document_}
              onInput={(event) => setDocument(event.currentTarget.value)}
              aria-describedby={`${id}-document`}
            />
            <small id={`${id}-document`}>{t("documentHelp")}</small>
          </label>
        ) : (
          <>
            <fieldset>
              <legend>{t("what")}</legend>
              <div class="grid">
                {field("workload", "workloadHelp", undefined, { required: true, pattern: "[a-z][a-z0-9\\-]{0,39}" })}
                {field("name", "nameHelp", undefined, { pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]{0,62}" })}
                {field("backend", undefined, (shared) => (
                  <select {...shared}>
                    <option value="ecs">ECS</option>
                    <option value="ray">Ray</option>
                  </select>
                ))}
                {values["backend"] === "ray" ? field("entrypoint", undefined, undefined, { required: true }) : field("task_definition")}
                {values["backend"] !== "ray" && field("container", "containerHelp")}
              </div>
              <div class="grid">
                {values["backend"] !== "ray" && field("command", "commandHelp", area(4))}
                {field("env", "envHelp", area(4))}
              </div>
            </fieldset>
            <fieldset>
              <legend>{t("where")}</legend>
              <div class="grid">
                {number("nnodes", 3_000, { required: true })}
                {number("n_gpus_per_node", 16, { required: true })}
                {field("group", "groupHelp")}
                {field("priority", undefined, (shared) => (
                  <select {...shared}>
                    {PRIORITIES.map((name) => (
                      <option key={name} value={name}>
                        {wordsFor("priority", name)}
                      </option>
                    ))}
                  </select>
                ))}
                {isOperator
                  ? field("user")
                  : field("user", "own", undefined, { value: session.value?.user ?? "", readOnly: true })}
              </div>
            </fieldset>
            <fieldset>
              <legend>{t("limits")}</legend>
              <div class="grid">
                {number("attempts_max", 20)}
                {number("max_runtime_s", 7_776_000, { min: 60 })}
                {number("suspend_grace_s", 110)}
                {field("checkpoint_dir")}
              </div>
            </fieldset>
          </>
        )}
        {problem !== undefined && (
          <p role="alert" class="problem">
            {problem.field !== "" && <code>{problem.field}</code>}{" "}
            <Sentence of={problem.error} />
          </p>
        )}
        {checked !== undefined && (
          <section class="answer" aria-live="polite">
            <h3>{t("answer")}</h3>
            <Preview of={checked.answer} />
          </section>
        )}
        <div class="send">
          <button type="submit" class="secondary" aria-busy={busy === "check"}>
            {t("check")}
          </button>
          <button type="button" disabled={!isFresh} aria-busy={busy === "submit"} onClick={() => void send(false)}>
            {t("submit")}
          </button>
          {!isFresh && <small>{t(checked === undefined ? "checkFirst" : "changed")}</small>}
        </div>
      </fieldset>
    </form>
  );
}
