// Conversations of a file, which may have been made by anyone: only what the page itself would write is taken.

const STATES = ["done", "stopped", "failed"], NAME = /^[a-z\d-]{1,64}$/i, SETTING = /^[a-z_]{1,40}$/;

const text = (value) => (typeof value === "string" ? value : "");
const number = (value, other = 0) => (Number.isFinite(value) ? value : other);
const list = (value) => (Array.isArray(value) ? value : []);
const isName = (value) => typeof value === "string" && NAME.test(value);
// The numbers of an object.
const numbers = (object, names) => Object.fromEntries(names.filter((name) => Number.isFinite(object?.[name])).map((name) => [name, object[name]]));

// A conversation, or null where it is none.
export function cleaned(given) {
  if (!isName(given?.id) || typeof given.nodes !== "object" || given.nodes === null) return null;
  const nodes = {};
  for (const [id, node] of Object.entries(given.nodes)) if (isName(id) && node && typeof node === "object") nodes[id] = turn(id, node);
  if (!isForest(nodes)) return null;
  const leaf = Object.hasOwn(nodes, given.leaf) ? given.leaf : Object.keys(nodes).at(-1) ?? null, created = number(given.created, Date.now());
  return { id: given.id, title: text(given.title).slice(0, 200), created, updated: number(given.updated, created), settings: settings(given.settings), nodes, leaf };
}

// Each turn follows one that there is, or none, and none follows itself.
function isForest(nodes) {
  const fine = new Set();
  for (const begin of Object.values(nodes)) {
    const way = new Set();
    for (let node = begin; !fine.has(node); node = nodes[node.parent]) {
      if (!node || way.has(node)) return false;
      way.add(node);
      if (node.parent === null) break;
    }
    for (const node of way) fine.add(node);
  }
  return true;
}

function turn(id, node) {
  const base = { id, parent: isName(node.parent) ? node.parent : null, at: number(node.at), text: text(node.text) };
  if (node.role === "user") {
    const files = list(node.files).map((file) => ({ name: text(file?.name), text: text(file?.text), tokens: number(file?.tokens, null) }));
    const pictures = list(node.pictures).filter((url) => /^data:image\/[a-z]+;base64,/.test(text(url)));
    const summaryOf = isName(node.summaryOf?.id) && isName(node.summaryOf.leaf) ? { id: node.summaryOf.id, leaf: node.summaryOf.leaf } : null;
    return { ...base, role: "user", pictures, files, ...(node.cut === true && { cut: true }), ...(summaryOf && { summaryOf }) };
  }
  const calls = list(node.calls).map((call) => ({ id: text(call?.id), name: text(call?.name), input: text(call?.input), ...(typeof call?.result === "string" && { result: call.result }) }));
  return { ...base, role: "assistant", thoughts: text(node.thoughts), calls, state: STATES.includes(node.state) ? node.state : "stopped", error: text(node.error), facts: facts(node.facts) };
}

function facts(given) {
  const kept = numbers(given, ["sent", "told", "begun", "first", "last", "thought", "pieces"]);
  const usage = numbers(given?.usage, ["prompt_tokens", "completion_tokens"]), timings = numbers(given?.terrace?.timings, ["prompt_tps", "prompt_ms", "ttft_ms", "decode_ms", "decode_tps"]);
  if (typeof given?.finish === "string") kept.finish = given.finish;
  if (Object.keys(usage).length === 2) kept.usage = usage;
  if (Object.keys(timings).length) kept.terrace = { timings, stop: text(given.terrace.stop) };
  return Object.keys(kept).length ? kept : null;
}

function settings(given) {
  const kept = {};
  for (const [name, value] of Object.entries(given && typeof given === "object" ? given : {})) {
    if (SETTING.test(name) && (typeof value === "string" || Number.isFinite(value))) kept[name] = value;
  }
  try {
    if (kept.tools !== undefined && !Array.isArray(JSON.parse(kept.tools))) delete kept.tools;
  } catch { delete kept.tools; }
  return kept;
}
