// Diagnoses: the verdict belongs to the question that it was asked for, and is shown under no other.
import { useEffect, useRef, useState } from "preact/hooks";
import { bodyOf, client, type Schemas } from "./api";

export type Answer = Schemas["Diagnosis"] | Schemas["LogFindings"];

/** The newest question: without an answer and a problem it is being judged. */
export interface Asked {
  /** Args: of: what is judged, in the words of the page. */
  ask: (body: Schemas["DiagnosisRequest"], of?: string) => Promise<void>;
  of: string;
  answer: Answer | undefined;
  problem: Error | undefined;
  busy: boolean;
}

/** Ask for diagnoses.
 *
 * Args: about: what a person is looking at. With another value the answer is dropped, and one under way is not shown.
 */
export function useDiagnosis(about = ""): Asked {
  const under = useRef<AbortController>();
  const [shown, setShown] = useState<{ about: string; of: string; answer?: Answer; problem?: Error }>();
  useEffect(() => () => under.current?.abort(), [about]);
  const ask = async (body: Schemas["DiagnosisRequest"], of = ""): Promise<void> => {
    under.current?.abort();
    const mine = new AbortController();
    under.current = mine;
    setShown({ about, of });
    try {
      const answer = await bodyOf(client.POST("/api/v2/diagnoses", { body, signal: mine.signal }));
      if (!mine.signal.aborted) setShown({ about, of, answer });
    } catch (error) {
      if (!mine.signal.aborted) setShown({ about, of, problem: error as Error });
    }
  };
  const present = shown?.about === about ? shown : undefined;
  const { answer, problem, of = "" } = present ?? {};
  return { ask, of, answer, problem, busy: present !== undefined && answer === undefined && problem === undefined };
}
