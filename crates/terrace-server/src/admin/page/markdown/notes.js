// Footnotes: references in the text, and what they refer to.
import { element } from "../shared/dom.js";

// The numbers of a text's footnotes, by their labels.
export function numbersOf(blocks) {
  const numbers = new Map();
  for (const { type, label } of blocks) if (type === "note" && !numbers.has(label)) numbers.set(label, numbers.size + 1);
  return numbers;
}

// Goes to what has a name within the same text; names of other texts may be the same.
function leadTo(selector) {
  return (event) => {
    event.preventDefault();
    const target = [...event.currentTarget.closest(".prose").querySelectorAll(selector)].find((one) => one.dataset.note === event.currentTarget.dataset.to);
    target?.scrollIntoView({ block: "nearest" });
    (target?.querySelector("a, button") || target)?.focus({ preventScroll: true });
  };
}

export function reference(label, notes) {
  const number = notes.get(label);
  return element("sup.reference", { "data-note": label },
    element("a", { href: "#", role: "doc-noteref", "aria-label": "Footnote " + number, "data-to": label, click: leadTo(".footnote") }, String(number)));
}

export function footnote(label, notes, blocks) {
  const number = notes.get(label);
  const back = element("a", { href: "#", role: "doc-backlink", "aria-label": "Back to the text from footnote " + number, "data-to": label, click: leadTo(".reference") }, number + ".");
  return element("aside.footnote", { role: "doc-footnote", "data-note": label }, back, element("div", ...blocks));
}
