// Formulas: where they end in a text, and how they are set.
import { element } from "../shared/dom.js";
import { katex } from "../shared/libraries.js";

// Setting a formula takes time that grows with its length.
const LONGEST = 4000;
const OPTIONS = { throwOnError: true, strict: "ignore", trust: false, maxSize: 50, maxExpand: 500 };
let library = null;

// An element with a formula: as it is written until the library is there, and where it cannot be set.
export function formula(tex, display) {
  const box = element(display ? "span.math.display" : "span.math", element("code.tex", tex));
  if (display) { box.tabIndex = 0; box.setAttribute("role", "group"); box.setAttribute("aria-label", "Formula"); }
  if (library) set(box, tex, display);
  else katex().then((found) => { library = found; set(box, tex, display); }, () => {});
  return box;
}

function set(box, tex, display) {
  if (tex.length > LONGEST) return;
  try {
    const tree = library.__renderToDomTree(tex, { ...OPTIONS, displayMode: display });
    putAside(tree);
    const made = tree.toNode();
    for (const one of made.querySelectorAll("[data-style]")) { one.style.cssText = one.dataset.style; one.removeAttribute("data-style"); }
    box.replaceChildren(made);
    box.dataset.tex = tex;
  } catch { /* It is no formula: it stays as it is written. */ }
}

// The policy forbids style attributes, and lets scripts set the same styles: they are put aside until there are elements.
function putAside(node) {
  if (node.attributes?.style) { node.attributes["data-style"] = node.attributes.style; delete node.attributes.style; }
  for (const child of node.children || []) putAside(child);
}

// Ends of formulas in a text, each looked at once: a text of dollars alone takes no longer than another one.
export class Formulas {
  constructor(text) {
    this.text = text;
    this.ends = {};
    this.next = {};
  }

  // The formula that begins at a place, with its end; null if there is none.
  at(from) {
    const { text } = this;
    if (text.startsWith("$$", from)) return this.until(from, "$$", true);
    if (text[from] === "$") return this.money(from);
    if (text.startsWith("\\(", from)) return this.until(from, "\\)", false);
    if (text.startsWith("\\[", from)) return this.until(from, "\\]", true);
    return null;
  }

  until(from, mark, display) {
    const end = this.after(mark, from + 2), tex = end < 0 ? "" : this.text.slice(from + 2, end).trim();
    return tex && tex.length <= LONGEST && !tex.includes("\n\n") ? { tex, display, end: end + 2 } : null;
  }

  // Between single dollars: not where they are prices.
  money(from) {
    const { text } = this, first = text[from + 1];
    if (!first || /[\s$]/.test(first) || /[\p{L}\p{N}]/u.test(text[from - 1] || "")) return null;
    const end = this.after("$", from + 1);
    if (end < 0 || end - from > LONGEST) return null;
    const tex = text.slice(from + 1, end);
    // "$5 million or 6$", "$5 a month (EUR$)": a number and words that no command names.
    if (/[`$]/.test(tex.replaceAll("\\$", "")) || tex.includes("\n\n") || (/^\d[\d.,]*\s+(?:and|or|to|per|[a-z]{3,})\b/i.test(tex) && !tex.includes("\\"))) return null;
    return { tex, display: false, end: end + 1 };
  }

  // The next end from a place on; −1 if there is none.
  after(mark, from) {
    const ends = (this.ends[mark] ||= endsOf(this.text, mark));
    let next = this.next[mark] || 0;
    while (next < ends.length && ends[next] < from) next++;
    this.next[mark] = next;
    return ends[next] ?? -1;
  }
}

function endsOf(text, mark) {
  if (mark !== "$") return [...text.matchAll(mark === "$$" ? /\$\$/g : mark === "\\)" ? /\\\)/g : /\\\]/g)].map(({ index }) => index);
  // A dollar ends a formula if it follows one of its letters, and no number and no name of a variable follows it.
  return [...text.matchAll(/(?<![\s\\$])\$(?![\dA-Z_$])/g)].map(({ index }) => index);
}
