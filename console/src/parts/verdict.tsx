// A diagnosis: cause, place, confidence, rivals and evidence; and the findings of a log.
import { type Schemas } from "../api";
import type { Answer } from "../diagnosis";
import { to } from "../place";
import { language, texts } from "../texts";
import { Code, InWords, wordsFor } from "./codes";
import { kindOfLine, originOfLine, roleOfLine } from "./line-codes";
import { Table } from "./table";

const t = texts({
  en: {
    at: "at",
    remedy: "Remedy",
    decided: "decided",
    undecided: "undecided: the confidence is too low to act on it alone",
    rivals: "Other possible causes",
    evidence: "Evidence",
    probe: "A look that would tell",
    report: "The whole report",
    unread: "Logs that were not read",
    line: "Line",
    role: "Role",
    kind: "Kind",
    text: "Text",
    nothing: "Nothing in this log says that anything is wrong.",
    then: "Then",
    verdict: "Verdict",
  },
  zh: {
    at: "位于",
    remedy: "措施",
    decided: "已判定",
    undecided: "未判定：把握不足以单独据此行动",
    rivals: "其他可能的原因",
    evidence: "证据",
    probe: "可以区分的检查",
    report: "完整报告",
    unread: "未读取的日志",
    line: "行",
    role: "角色",
    kind: "类别",
    text: "内容",
    nothing: "日志中没有任何出错的迹象。",
    then: "随后",
    verdict: "结论",
  },
});

/** A share as a bar with its number. */
function Share({ of }: { of: number }) {
  const percent = Math.round(of * 100);
  return (
    <span class="share">
      <meter min={0} max={100} value={percent} aria-label={`${percent} %`} /> {percent} %
    </span>
  );
}

function Verdict({ of }: { of: Schemas["Diagnosis"] }) {
  const where = of.scope.names.join(", ");
  return (
    <article class="verdict">
      <p>
        <strong>
          <Code of="cause" is={of.cause} />
        </strong>
        {where !== "" && (
          <>
            {" "}
            {t("at")} <Names kind={of.scope.kind} names={of.scope.names} />
          </>
        )}{" "}
        <Share of={of.confidence} /> <small>{of.decided ? t("decided") : t("undecided")}</small>
      </p>
      <p>
        {t("remedy")}:{" "}
        <strong>
          <Code of="remedy" is={of.remedy} />
        </strong>
        {of.next_probe !== null && (
          <>
            {" · "}
            {t("probe")}: <Code of="probe" is={of.next_probe} />
          </>
        )}
      </p>
      {of.rivals.length > 0 && (
        <>
          <h3>{t("rivals")}</h3>
          <ul>
            {of.rivals.map((rival) => (
              <li key={`${rival.cause} ${rival.scope.names}`}>
                <Code of="cause" is={rival.cause} /> {rival.scope.names.join(", ")} <Share of={rival.confidence} />
              </li>
            ))}
          </ul>
        </>
      )}
      <h3>{t("evidence")}</h3>
      <ul>
        {of.findings.map((finding) => (
          <li key={finding.row + finding.english}>{language.value === "zh" ? finding.chinese : finding.english}</li>
        ))}
      </ul>
      {Object.keys(of.unread_logs).length > 0 && (
        <p>
          {t("unread")}: <span lang="en">{Object.entries(of.unread_logs).map(([rank, why]) => `${rank}: ${why}`).join("; ")}</span>
        </p>
      )}
      <details>
        <summary>{t("report")}</summary>
        <pre class="log wrap" lang={language.value}>
          {of.page[language.value]}
        </pre>
      </details>
    </article>
  );
}

function Names({ kind, names }: { kind: string; names: string[] }) {
  return (
    <>
      {names.map((name, at) => (
        <span key={name}>
          {at > 0 && ", "}
          {/^m?i-[0-9a-f]{8,}$/.test(name) ? <a href={to(["instances", name])}>{name}</a> : `${wordsFor("scope", kind)} ${name}`}
        </span>
      ))}
    </>
  );
}

/** A verdict about a log alone, or about an attempt or a case. */
export function AnyVerdict({ of }: { of: Answer }) {
  return "findings" in of && "verdict" in of ? <LogVerdict of={of} /> : <Verdict of={of as Schemas["Diagnosis"]} />;
}

function LogVerdict({ of }: { of: Schemas["LogFindings"] }) {
  if (of.cause === null) return <p>{t("nothing")}</p>;
  return (
    <article class="verdict">
      <p>
        {t("verdict")}:{" "}
        <strong>
          <InWords is={of.cause.kind} words={kindOfLine(of.cause.kind)} />
        </strong>{" "}
        (<InWords is={of.cause.class} words={originOfLine(of.cause.class)} />), {t("line")} {of.cause.number}
      </p>
      <p>
        {t("then")}: <span lang="en">{of.cause.policy}</span>
      </p>
      <Table
        columns={["line", "role", "kind", "text"]}
        words={t}
        rows={of.findings.map((finding) => ({
          key: finding.number,
          class: finding.number === of.cause?.number ? "marked" : undefined,
          cells: {
            line: finding.number,
            role: <InWords is={finding.role} words={roleOfLine(finding.role)} />,
            kind: <InWords is={finding.kind} words={kindOfLine(finding.kind)} />,
            text: <code lang="en">{finding.line}</code>,
          },
        }))}
      />
    </article>
  );
}
