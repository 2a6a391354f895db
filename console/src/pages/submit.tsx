// The page on which a job is submitted.
import { JobForm } from "../parts/job-form";
import { texts } from "../texts";

const t = texts({ en: { title: "Submit a job" }, zh: { title: "提交作业" } });

export function Submit() {
  return (
    <main class="container-fluid" tabIndex={-1}>
      <h1>{t("title")}</h1>
      <JobForm />
    </main>
  );
}
