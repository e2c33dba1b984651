// The conversation that is shown: an element for each turn of its branch.
import { at, element } from "../shared/dom.js";
import { firstTold, path } from "./conversation.js";
import { current, library } from "./library.js";
import { settle, toEnd } from "./scroll.js";
import { Turn } from "./turn.js";
import { welcome } from "./welcome.js";

const box = at("thread"), turns = new Map();
// A long text takes long to show: then it is shown less often.
const SHARE = 10;
let waiting = new Set(), timer = 0, next = 0;

// Shows all turns; elements of those that stay are kept.
function showPath({ same, follow = !same }) {
  if (!same) turns.clear();
  const nodes = path(current), shown = new Set(nodes.map((node) => node.id)), first = firstTold(nodes);
  for (const id of turns.keys()) if (!shown.has(id)) turns.delete(id);
  const elements = nodes.map((node, index) => {
    const turn = turns.get(node.id) || new Turn(current, node);
    turns.set(node.id, turn);
    turn.node = node;
    turn.conversation = current;
    turn.update(nodes, index);
    turn.element.classList.toggle("unsent", index < first);
    return turn.element;
  });
  const focused = focusIn(box);
  box.replaceChildren(...(elements.length ? elements : [welcome()]));
  if (focused) restore(focused, elements);
  if (follow) toEnd(); else settle();
}

// What has the focus: the element itself, the turn that it is in, and its name there.
function focusIn(box) {
  const focused = document.activeElement, turn = focused?.closest(".turn");
  return turn && box.contains(turn) ? { focused, place: [...box.children].indexOf(turn), name: focused.getAttribute("aria-label") } : null;
}

// Keeps the keyboard where it was: at the same element, or at the one that has its place now.
function restore({ focused, place, name }, elements) {
  const same = [...(elements[place]?.querySelectorAll("button") || [])].find((button) => button.getAttribute("aria-label") === name && !button.disabled);
  const next = box.contains(focused) ? focused : (name && same) || at("talk");
  next.focus({ preventScroll: true });
}

// Shows the turns that have changed, once before the next frame.
function draw() {
  timer = 0;
  const begin = performance.now(), nodes = path(current);
  for (const id of waiting) turns.get(id)?.update(nodes, nodes.findIndex((node) => node.id === id));
  waiting = new Set();
  settle();
  next = performance.now() + (performance.now() - begin) * SHARE;
}

library.addEventListener("turn", ({ detail: node }) => {
  waiting.add(node.id);
  // Frames do not come while the page is hidden; timers do.
  timer ||= setTimeout(draw, Math.max(16, next - performance.now()));
});
library.addEventListener("show", ({ detail }) => showPath(detail));

export const start = () => showPath({ same: false });
