// How much of the context a conversation takes, by what its last answer took; and what can be left out of it.
import { answerOf, firstTold, messages, parentOf, path } from "./conversation.js";
import { contextSize } from "./files.js";
import { find } from "./library.js";

// Where no answer says how many tokens a letter has.
const PER_LETTER = 0.3;
// A picture takes some hundred tokens: as many as so many letters.
const PICTURE = 2000;
// What is kept when a conversation is shortened, and what a summary may read, as shares of the context.
export const KEPT = 0.5;
const SUMMARIZED = 0.7;
export const REQUEST = "Summarize our conversation so far, so that we can go on from your summary alone: what I want, what we found and decided, names, numbers and code that are still needed, and what is open.";

// Letters of messages.
export function lengthOf(messages) {
  const parts = ({ content }) => (typeof content === "string" ? content.length : content.reduce((sum, part) => sum + (part.text?.length ?? PICTURE), 0));
  return messages.reduce((sum, message) => sum + parts(message) + (message.tool_calls ? JSON.stringify(message.tool_calls).length : 0), 0);
}

// The last answer that says how many tokens its prompt had.
const measured = (turns) => turns.findLast((node) => node.facts?.usage?.prompt_tokens > 0 && node.facts.told > 0);

// Tokens of a conversation as it is told from a turn on. Exact after an answer to just that, else by its letters.
function tokensFrom(conversation, turns, from) {
  const last = turns.at(-1), told = lengthOf(messages(conversation, last, from)), known = measured(turns);
  if (!known) return Math.round(told * PER_LETTER);
  const { usage, told: then } = known.facts;
  if (known === last && !known.thoughts && told === then + lengthOf(answerOf(known))) return usage.prompt_tokens + (usage.completion_tokens || 0);
  return Math.round(told * usage.prompt_tokens / then);
}

// Tokens that the turns of a conversation take, of how many.
export function usage(conversation, turns) {
  return { used: turns.length ? tokensFrom(conversation, turns) : 0, all: contextSize() };
}

// The first turn that is still told where so many tokens are left; at least the last question stays.
function startOf(conversation, turns, most) {
  const questions = turns.flatMap((node, index) => (node.role === "user" && index > firstTold(turns) ? [index] : []));
  return questions.find((index) => tokensFrom(conversation, turns, index) <= most) ?? questions.at(-1) ?? -1;
}

export const canShorten = (conversation) => startOf(conversation, path(conversation), Infinity) > 0;

// Leaves the oldest turns out of what the model is told. They stay where they are, and can be included again.
export function shorten(conversation) {
  const turns = path(conversation), start = startOf(conversation, turns, contextSize() * KEPT);
  if (start > 0) turns[start].cut = true;
}

// What the model is told when it is to summarize another conversation: as much of it as leaves room for the summary.
export function toSummarize({ summaryOf, text }) {
  const old = find(summaryOf.id), leaf = old?.nodes[summaryOf.leaf];
  if (!leaf) throw new Error("The conversation that was to be summarized is not there any more.");
  // A question that failed is not part of it.
  const end = leaf.role === "user" ? parentOf(old, leaf) : leaf, turns = path(old, end), most = contextSize() * SUMMARIZED;
  const fits = !contextSize() || tokensFrom(old, turns) <= most;
  const told = messages(old, end, fits ? undefined : startOf(old, turns, most));
  return [...told, { role: "user", content: text }];
}
