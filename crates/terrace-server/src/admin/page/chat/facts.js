// What is said of an answer: how fast it came, and why it ended.
import { count, duration, percent, rate, size } from "../shared/format.js";

const REASONS = {
  length: "ended by the limit of tokens",
  context_full: "ended because the context is full",
  stop_string: "ended by a stop string",
  cancelled: "ended by the server",
  tool_calls: "called a tool",
};

// Why an answer ended, if there is something to say.
export function ending(node) {
  if (node.state === "stopped") return "stopped";
  if (node.state === "failed") return "incomplete";
  const { terrace, finish } = node.facts || {};
  return REASONS[terrace?.stop] || REASONS[finish] || "complete";
}

// Tokens per second of an answer: the server's number, or else what this page has seen; 0 if it is not known.
export function perSecond({ facts }) {
  if (!facts?.pieces) return 0;
  const seen = facts.last > facts.first ? (facts.pieces - 1) / ((facts.last - facts.first) / 1000) : 0;
  return facts.terrace?.timings?.decode_tps || seen;
}

// Tokens and their rate.
export function speed(node) {
  const facts = node.facts, fast = perSecond(node);
  if (!facts?.pieces) return [];
  return [count(facts.usage?.completion_tokens ?? facts.pieces, "token"), ...(fast > 0 ? [rate(fast)] : [])];
}

// What an answer waits for at the moment, `ms` after the question.
export function waiting(node) {
  if (node.facts?.first !== undefined) return "";
  return node.facts?.begun === undefined ? "waiting for the server" : "reading the prompt";
}

// All there is to know.
export function details(node) {
  const { usage, terrace, first, begun } = node.facts || {}, timings = terrace?.timings, said = {};
  const reused = usage?.prompt_tokens_details?.cached_tokens;
  if (usage) said.prompt = count(usage.prompt_tokens, "token") + (reused ? `, ${reused.toLocaleString()} kept from before` : "");
  if (timings?.prompt_tps) said["prompt read"] = `${duration(timings.prompt_ms)}, ${rate(timings.prompt_tps)}`;
  if (terrace?.queued_ms >= 1) said["queued"] = duration(terrace.queued_ms);
  else if (begun && !terrace) said["server responded"] = duration(begun);
  if (first !== undefined) said["first token"] = duration(timings?.ttft_ms ?? first);
  if (timings?.decode_ms) said["generated in"] = duration(timings.decode_ms);
  const used = terrace?.experts;
  if (used) {
    if (used.hot_slots) said["experts on devices"] = percent(used.hot_slots, used.hot_slots + used.cold_slots);
    const uses = used.ram_hits + used.ram_misses + used.ram_joined;
    if (uses) said["weights found in RAM"] = percent(used.ram_hits, uses);
    if (used.read_bytes) said["read from disk"] = size(used.read_bytes);
  }
  if (terrace?.stop_string) said["stop string"] = JSON.stringify(terrace.stop_string);
  if (terrace && terrace.epoch_first !== terrace.epoch_last) said.weights = `replaced meanwhile: epoch ${terrace.epoch_first} to ${terrace.epoch_last}`;
  return said;
}
