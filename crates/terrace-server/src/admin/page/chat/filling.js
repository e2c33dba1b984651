// Says when a conversation fills the context, and offers what can be done about it.
import { at, element } from "../shared/dom.js";
import { textButton } from "../shared/buttons.js";
import { oncePerFrame } from "../shared/frame.js";
import { signals } from "../shared/server.js";
import { ask } from "./answers.js";
import { canShorten, REQUEST, shorten, usage } from "./context.js";
import { newConversation, path, titleOf } from "./conversation.js";
import { tokensOfFiles } from "./files.js";
import { changedPath, current, library, save, show } from "./library.js";
import { isRunning } from "./running.js";

const box = at("filling"), FULL = 0.8;
let drawn = "";

// Whether the last answer failed or ended for lack of room.
const ended = (node) => node?.code === "context_length_exceeded" || node?.facts?.terrace?.stop === "context_full";

const draw = oncePerFrame(() => {
  const turns = isRunning(current) ? [] : path(current), { used, all } = usage(current, turns), tokens = used + tokensOfFiles();
  const full = turns.length > 0 && all > 0 && (tokens >= all * FULL || (ended(turns.at(-1)) && !turns.at(-2)?.cut));
  const room = tokens > all ? `more than the context holds (${all.toLocaleString()})` : `${Math.round(100 * tokens / all)} % of the context (${all.toLocaleString()})`;
  const said = full ? `This conversation takes about ${tokens.toLocaleString()} tokens, ${room}.` : "";
  const now = JSON.stringify([current.id, said, canShorten(current)]);
  if (now === drawn) return;
  drawn = now;
  box.hidden = !full;
  box.replaceChildren(...(full ? [element("p", said), ...offers()] : []));
});

function offers() {
  const short = textButton("Shorten", () => {
    shorten(current);
    save(current);
    changedPath(current);
    at("text").focus();
  });
  short.title = "Leave the oldest messages out of what the model is told";
  short.disabled = !canShorten(current);
  const fresh = textButton("New chat with a summary", () => summarize(current));
  fresh.disabled = path(current).length < 2;
  return [short, fresh];
}

// The model summarizes a conversation as the beginning of another one.
function summarize(old) {
  const fresh = newConversation(old.settings);
  fresh.title = "Summary: " + titleOf(old);
  show(fresh);
  ask(fresh, REQUEST, null, [], [], { summaryOf: { id: old.id, leaf: old.leaf } });
}

for (const name of ["show", "turn", "list"]) library.addEventListener(name, draw);
signals.addEventListener("change", draw);
at("ask").addEventListener("input", draw);
new MutationObserver(draw).observe(at("files"), { childList: true });
