/** The five depths of wording; the same names as in `glass explain --level`. */
export const LEVELS = ["school", "student", "practitioner", "engineer", "researcher"] as const;
export type Level = (typeof LEVELS)[number];

/** A view in words: the question that it answers, what is seen at each depth, its formula, and what must agree. */
export interface Words {
  question: string;
  depths: Record<Level, string>;
  formula?: string;
  agrees: string;
}
