// Pieces of a streamed answer, put together.

const OPEN = "<think>", CLOSE = "</think>";

// Adds a piece, which came `ms` after the question.
export function take(node, piece, ms) {
  if (piece.error) throw new Error(piece.error.message);
  const facts = node.facts, choice = piece.choices?.[0], delta = choice?.delta;
  if (delta) {
    const text = delta.content || "", thoughts = delta.reasoning_content || delta.reasoning || "";
    if (text || thoughts || delta.tool_calls) {
      facts.first ??= ms;
      facts.last = ms;
      facts.pieces = (facts.pieces || 0) + 1;
    }
    if (thoughts) node.thoughts += thoughts;
    if (text) takeText(node, text, ms);
    for (const call of delta.tool_calls || []) takeCall(node, call);
    if (node.thoughts && (text || delta.tool_calls) && !node.open) facts.thought ??= ms;
  }
  if (choice?.finish_reason) facts.finish = choice.finish_reason;
  if (piece.usage) facts.usage = piece.usage;
  if (piece.terrace) facts.terrace = piece.terrace;
}

// Servers that do not split thoughts from the answer leave the model's marks in the text.
function takeText(node, text) {
  node.text += text;
  if (node.open === undefined && !node.thoughts) {
    const start = node.text.trimStart();
    if (OPEN.startsWith(start) && start.length < OPEN.length) return;
    node.open = start.startsWith(OPEN);
    if (node.open) { node.thoughts = start.slice(OPEN.length); node.text = ""; }
  } else if (node.open) {
    node.thoughts += node.text;
    node.text = "";
  }
  if (!node.open) return;
  const end = node.thoughts.indexOf(CLOSE);
  if (end < 0) return;
  node.text = node.thoughts.slice(end + CLOSE.length).trimStart();
  node.thoughts = node.thoughts.slice(0, end).trim();
  node.open = false;
}

// A call comes in pieces, too: first its name, then its arguments.
function takeCall(node, { index = node.calls.length, id, function: called = {} }) {
  const call = (node.calls[index] ||= { id: "", name: "", input: "" });
  if (id) call.id = id;
  if (called.name) call.name += called.name;
  if (called.arguments) call.input += called.arguments;
}
