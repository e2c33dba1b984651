// Blocks of code: their language, their words in colours, and a button that copies them.
import { element } from "../shared/dom.js";
import { copyButton } from "../shared/buttons.js";
import { highlighter } from "../shared/libraries.js";

// Longer code, and code that would take longer than this (in ms), stays in one colour. Of some texts the library takes
// a time that grows with the square of their length: so it gets twice as much at most as it has coped with.
const LONGEST = 40_000, SLOW = 400, FIRST = 1000;
// While code grows, it is coloured so often (in ms).
const EVERY = 300;

export function codeBlock(block) {
  const language = languageOf(block), code = element("code", block.text);
  const pre = element("pre", { tabindex: 0, "aria-label": language ? "Code: " + language : "Code" }, code);
  const box = element("div.code", element("div.code-head", element("span", language || "text"), copyButton(() => code.textContent, "Copy code")), pre);
  const colours = language ? new Colours(code, language.toLowerCase()) : null;
  colours?.ask(0);
  // Takes more of the same block; false if it is another one.
  box.grow = (next) => {
    if (languageOf(next) !== language || !next.text.startsWith(code.textContent)) return false;
    const more = next.text.slice(code.textContent.length);
    if (!more) return true;
    if (code.lastChild instanceof Text) code.lastChild.appendData(more); else code.append(more);
    colours?.ask(EVERY);
    return true;
  };
  return box;
}

const languageOf = (block) => block.language.slice(0, 30);

class Colours {
  constructor(code, language) {
    Object.assign(this, { code, language, timer: 0, slow: false, tried: FIRST / 2, took: 0 });
  }

  ask(later) {
    if (!this.slow) this.timer ||= setTimeout(() => this.draw(), later);
  }

  async draw() {
    const { code, language } = this, library = await highlighter().catch(() => null), text = code.textContent;
    this.timer = 0;
    if (!library?.getLanguage(language) || text.length > LONGEST) return;
    // What is selected is not taken away.
    if (selected(code)) return this.ask(EVERY * 3);
    try {
      const tree = this.read(library, text);
      if (tree) code.replaceChildren(...nodesOf(tree)); else this.slow = true;
    } catch { /* It stays as it is. */ }
  }

  // The tree of a text; null if it would take too long.
  read(library, text) {
    for (;;) {
      const length = Math.min(text.length, this.tried * 2), begin = performance.now();
      if (this.took * (length / this.tried) ** 2 > SLOW) return null;
      const { _emitter } = library.highlight(text.slice(0, length), { language: this.language, ignoreIllegals: true });
      Object.assign(this, { took: performance.now() - begin, tried: Math.max(length, FIRST) });
      if (length === text.length) return _emitter.rootNode;
    }
  }
}

function selected(code) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(code, true);
}

// The library's tree as elements: its HTML would not be allowed here.
const nodesOf = (node) => node.children.map((child) =>
  (typeof child === "string" ? child : element("span" + (child.scope ? ".hl-" + child.scope.split(".")[0] : ""), ...nodesOf(child))));
