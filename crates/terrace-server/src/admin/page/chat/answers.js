// Answers that are being generated: each belongs to its conversation, and goes on while another one is shown.
import { add, messages, newAnswer } from "./conversation.js";
import { lengthOf, toSummarize } from "./context.js";
import { changedPath, changedTurn, current, has, save, show } from "./library.js";
import { fieldsOf } from "./fields.js";
import { announce, clear, notice } from "./notice.js";
import { events, post, reason, Refused } from "../shared/http.js";
import { take } from "./pieces.js";
import * as running from "./running.js";
import { isFollowing } from "./scroll.js";

const SAVED_EVERY = 1000;

// Says something to the model. A turn without an answer stays out of what the model is told.
export function ask(conversation, text, parent, pictures = [], files = [], more = {}) {
  const turn = add(conversation, parent, { role: "user", text, pictures, files, ...more });
  return answer(conversation, turn);
}

// Has a turn answered, whose answer is a new one beside those that there are.
export async function answer(conversation, turn) {
  if (running.isRunning(conversation)) return;
  const control = new AbortController(), node = add(conversation, turn, newAnswer());
  running.begin(conversation, control);
  clear();
  changedPath(conversation, true);
  save(conversation);
  announce("The model is responding.");
  // It may be deleted meanwhile.
  const keep = () => has(conversation) && save(conversation), timer = setInterval(keep, SAVED_EVERY);
  try {
    const told = turn.summaryOf ? toSummarize(turn) : messages(conversation, turn);
    await receive(conversation, node, told, control.signal);
  } catch (error) {
    fail(conversation, node, error, control.signal.aborted);
  } finally {
    clearInterval(timer);
    running.end(conversation);
  }
  changedTurn(conversation, node);
  if (node.state === "done") announce("The response is complete. " + node.text.slice(0, 2000));
  await keep();
}

async function receive(conversation, node, told, signal) {
  const sent = performance.now();
  node.facts = { sent: Date.now(), told: lengthOf(told) };
  const fields = fieldsOf(conversation.settings);
  const body = { messages: told, stream: true, stream_options: { include_usage: true }, ...fields };
  const response = await post("v1/chat/completions", body, { signal });
  node.facts.begun = performance.now() - sent;
  changedTurn(conversation, node);
  let complete = false;
  for await (const data of events(response)) {
    if (data === "[DONE]") { complete = true; continue; }
    take(node, JSON.parse(data), performance.now() - sent);
    changedTurn(conversation, node);
  }
  if (!complete) throw new TypeError("The connection closed before the response was complete.");
  node.state = "done";
}

function fail(conversation, node, error, aborted) {
  node.state = aborted ? "stopped" : "failed";
  if (aborted) {
    announce("Stopped.");
    return;
  }
  // What `fetch` throws while it reads says less than this.
  const begun = node.facts?.begun !== undefined, lost = begun && error instanceof TypeError;
  node.code = error.code || "";
  node.error = lost ? "The connection closed before the response was complete." : sentence(reason(error));
  // The server asks for a key itself.
  if (error instanceof Refused && error.status === 401) return;
  // Where the answer is in view, so is this.
  if (conversation === current && isFollowing()) return;
  notice(node.error, { error: true, action: "Try again", act: () => { show(conversation); again(conversation, node); } });
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

// Asks for another answer in the place of one.
export const again = (conversation, node) => answer(conversation, conversation.nodes[node.parent]);
