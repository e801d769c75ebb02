/** Entry point of a shared file, in which the model in the file answers the views instead of the server. */
import { mount } from "svelte";

import App from "./App.svelte";
import { HEADS } from "./explanations/heads";
import { SAMPLING } from "./explanations/sampling";
import { CHAT, TRANSLATE, WRITE } from "./explanations/write";
import { setSource } from "./lib/api";
import { LEVELS } from "./lib/levels";
import { STOPS } from "./lib/tour";
import About from "./share/About.svelte";
import { ANSWERS } from "./share/answers";
import { Transformer } from "./share/model";
import type { Settings } from "./share/settings";
import { type Header, SharedFile } from "./share/shared-file";
import { SharedFileSource } from "./share/source";
import { Tokenizer, type TokenizerJson } from "./share/tokenizer";
import { fromBase64, type PackedTensor, Weights } from "./share/weights";
import "./style.css";
import { VIEWS } from "./views";

function part(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the file has no element ${id}: it is incomplete. Copy or download it again.`);
  return found;
}

function openShared(header: Header, data: string): SharedFile {
  return new SharedFile(header, data);
}

function openModel(settings: Settings, tensors: PackedTensor[], data: string): Transformer {
  return new Transformer(settings, new Weights(tensors, fromBase64(data)));
}

function openTokenizer(json: TokenizerJson): Tokenizer {
  return new Tokenizer(json);
}

const data = part("glass-data");
const shared = openShared(JSON.parse(part("glass-header").textContent) as Header, data.textContent);
data.remove(); // the weights are already unpacked
const source = new SharedFileSource(shared);
setSource(source);
// For the browser's console: glass.shared.tokenizer.encode("text"), glass.shared.model.pass(ids).logits.data
Object.assign(window, { glass: { shared, answers: ANSWERS, open: openShared, model: openModel, tokenizer: openTokenizer } });
// Sampled text differs from the library's, because the browser uses other random numbers.
WRITE.check = "greedy text and beam search match `glass generate` with the weights in this file; sampling uses the same probabilities, but other random numbers.";
TRANSLATE.check = WRITE.check;
CHAT.levels.school = "Ask the model something. It writes an answer piece by piece. In a shared file, it does not see your earlier questions.";
CHAT.levels.student = "The model reads the question as one text and continues it, one token at a time, until it ends the answer or reaches the maximum number of tokens. In a shared file, each question is answered separately, without the earlier ones.";
CHAT.levels.practitioner = "The question is formatted with the run's chat template, as in training and in `glass chat`. In a shared file, each question is answered separately, without the earlier ones.";
CHAT.check = "greedy text and beam search match `glass chat` with the weights in this file; sampling uses the same probabilities, but other random numbers.";
SAMPLING.check = "each stage sums to 1 over the whole vocabulary and matches the library with the weights in this file; sampling uses other random numbers than the library.";
for (const level of LEVELS) {
  if (level !== "school") HEADS.levels[level] += " In a shared file, roles and importance are not available.";
}
const writeStop = STOPS.find((stop) => stop.view === "write");
if (writeStop?.taskAttempts) writeStop.taskAttempts.chat = "Ask a question, and then the same question in other words. Is the answer the same?";
HEADS.check = "each small map is the attention map of its head, pooled.";
mount(App, {
  target: part("app"),
  // Here each question is answered separately: the conversation view needs the server.
  props: { views: VIEWS.filter((view) => source.has(view.name)).map((view) => ({ ...view, taskComponents: {} })), about: About },
  context: new Map([["shared", shared]]),
});
