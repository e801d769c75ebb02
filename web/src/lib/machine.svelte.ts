/** The answer of the model of one family for the text. */
import { RequestState } from "./request-state.svelte";

export interface TokenLosses {
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
  costs: TokenLosses;
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
  readonly request: RequestState<MachineAnswer>;

  /** Call it when a component is created. */
  constructor(createRequest: () => ((signal: AbortSignal) => Promise<MachineAnswer>) | null) {
    this.request = new RequestState<MachineAnswer>(createRequest, 150);
  }

  get answer(): MachineAnswer | null {
    return this.request.answer;
  }
}
