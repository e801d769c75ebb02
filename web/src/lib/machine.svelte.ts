/** The answer of one of the three machines for the text. */
import { Asked } from "./asked.svelte";

export interface Costs {
  tokens: string[];
  starts: number[];
  ends: number[];
  nats: (number | null)[];
  mean: number | null;
  how: string;
}

export interface MachineAnswer {
  python: string;
  family: "decoder" | "encoder" | "encoder-decoder";
  task: string;
  target: string | null;
  masks: { kind: string; rows: string[]; columns: string[]; allowed: string[] }[];
  costs: Costs;
  guess: {
    place: number;
    token: string;
    nats: number;
    what: string;
    likeliest: { id: number; text: string; probability: number }[];
  } | null;
  writes: string | null;
  labels: { name: string; probability: number }[] | null;
  validation: { loss: number | null; tokens: number; unit: string; why: string | null };
}

export class Machine {
  readonly asked: Asked<MachineAnswer>;

  /** Call it when a component is created. */
  constructor(question: () => ((signal: AbortSignal) => Promise<MachineAnswer>) | null) {
    this.asked = new Asked<MachineAnswer>(question, 150);
  }

  get answer(): MachineAnswer | null {
    return this.asked.answer;
  }
}
