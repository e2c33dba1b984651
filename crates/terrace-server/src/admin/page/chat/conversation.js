// A conversation: a tree of turns, because turns can be edited and answers asked for again. `leaf` is the
// last turn of the branch that is shown. Plain data, as it is stored.
import { unique } from "../shared/dom.js";
import { asText } from "./files.js";

export function newConversation(settings) {
  const now = Date.now();
  return { id: unique(), title: "", created: now, updated: now, settings: structuredClone(settings), nodes: {}, leaf: null };
}

// Adds a turn after another one, or at the beginning, and shows its branch.
export function add(conversation, parent, turn) {
  const node = { id: unique(), parent: parent?.id ?? null, at: Date.now(), ...turn };
  conversation.nodes[node.id] = node;
  conversation.leaf = node.id;
  return node;
}

export const newAnswer = () => ({ role: "assistant", text: "", thoughts: "", calls: [], state: "running", error: "", facts: null });

export const parentOf = (conversation, node) => conversation.nodes[node.parent] || null;

// The turns that are shown, from the first to the last.
export function path(conversation, leaf = conversation.nodes[conversation.leaf]) {
  const turns = [];
  for (let node = leaf; node; node = parentOf(conversation, node)) turns.unshift(node);
  return turns;
}

// The turns among which one can choose in a turn's place, itself included, by age.
export const siblings = (conversation, node) =>
  Object.values(conversation.nodes).filter((other) => other.parent === node.parent);

// Shows the branch of a turn, down to its newest end.
export function choose(conversation, node) {
  for (let next = node; next;) {
    conversation.leaf = next.id;
    const below = Object.values(conversation.nodes).filter((other) => other.parent === next.id);
    next = below.at(-1);
  }
}

// Whether an answer has something that the model may be shown again.
export const isAnswered = (node) => node.text !== "" || node.calls.some((call) => call.result !== undefined);

// Whether a turn of the user has no answer, and more was said since: the model is not told of it.
export const isLeftOut = (turns, index) =>
  turns[index].role === "user" && turns[index + 1]?.role === "assistant" && turns[index + 1].state !== "running" && !isAnswered(turns[index + 1]);

// The first turn that the model is told of: the user may have left out what is before it.
export const firstTold = (turns) => Math.max(0, turns.findLastIndex((node) => node.cut));

// What the model is told: the turns up to one, without those that failed, which would confuse it.
export function messages(conversation, last, from) {
  const turns = path(conversation, last), told = [], first = from ?? firstTold(turns);
  const system = conversation.settings.system?.trim();
  if (system) told.push({ role: "system", content: system });
  turns.forEach((node, index) => {
    if (index < first) return;
    if (node.role === "user") {
      if (!isLeftOut(turns, index)) told.push({ role: "user", content: asked(node) });
    } else if (isAnswered(node)) {
      told.push(...answerOf(node));
    }
  });
  return told;
}

// A question, with its pictures and the text of its files.
function asked({ text: own, pictures = [], files = [] }) {
  const text = (asText(files) + own).trim();
  if (!pictures.length) return text;
  const parts = pictures.map((url) => ({ type: "image_url", image_url: { url } }));
  return text ? [...parts, { type: "text", text }] : parts;
}

// An answer, with the results of the tools that it called. Calls without a result are left out.
export function answerOf(node) {
  const calls = node.calls.filter((call) => call.result !== undefined);
  const told = { role: "assistant", content: node.text };
  if (!calls.length) return [told];
  told.tool_calls = calls.map(({ id, name, input }) => ({ id, type: "function", function: { name, arguments: input } }));
  if (node.thoughts) told.reasoning_content = node.thoughts;
  return [told, ...calls.map(({ id, result }) => ({ role: "tool", tool_call_id: id, content: result }))];
}

// The conversation's name, or else how it begins.
export function titleOf(conversation) {
  const first = Object.values(conversation.nodes).find((node) => node.role === "user");
  return conversation.title || first?.text.trim().split("\n")[0].slice(0, 80) || first?.files?.[0]?.name || "New chat";
}

// The branch that is shown, as Markdown.
export function markdownOf(conversation) {
  const system = conversation.settings.system?.trim(), parts = ["# " + titleOf(conversation)];
  if (system) parts.push("**System**", system);
  for (const node of path(conversation)) {
    parts.push(node.role === "user" ? "**User**" : "**Assistant**", (node.files || []).map(({ name }) => `*File: ${name}*\n\n`).join("") + node.text);
    for (const call of node.calls || []) parts.push("```json\n" + JSON.stringify({ call: call.name, arguments: call.input, result: call.result }, null, 2) + "\n```");
  }
  return parts.join("\n\n") + "\n";
}
