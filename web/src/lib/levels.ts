/** The five levels of explanation, named as in `glass explain --level`. */
export const LEVELS = ["school", "student", "practitioner", "engineer", "researcher"] as const;
export type Level = (typeof LEVELS)[number];

/** Texts of a view: the question it answers, the explanation at each level, the formula, and the check at the bottom. */
export interface Explanation {
  question: string;
  levels: Record<Level, string>;
  formula?: string;
  check: string;
}
