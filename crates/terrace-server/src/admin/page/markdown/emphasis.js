// Marks of emphasis: which of them belong together. Marks that may be the first of a pair wait on a stack; those that
// are passed over are dropped, so each is looked at twice at most.
import { element } from "../shared/dom.js";

const SPACE = /\s/, PUNCTUATION = /[\p{P}\p{S}]/u;
// Where words have no spaces between them.
const DENSE = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}]/u;
// Pages that are nested more deeply are hard to draw.
const DEEPEST = 12;

export class Emphasis {
  // `nodes` is what was made so far.
  constructor(nodes) {
    Object.assign(this, { nodes, waiting: [], counts: { "*": 0, "_": 0, "~": 0 }, depths: new WeakMap() });
  }

  // Takes a run of marks, between two letters or the text's ends.
  take(run, before, after) {
    const mark = run[0], spaceBefore = !before || SPACE.test(before), spaceAfter = !after || SPACE.test(after);
    const pointBefore = !spaceBefore && PUNCTUATION.test(before), pointAfter = !spaceAfter && PUNCTUATION.test(after);
    const left = !spaceAfter && (!pointAfter || spaceBefore || pointBefore || DENSE.test(before));
    const right = !spaceBefore && (!pointBefore || spaceAfter || pointAfter || DENSE.test(after));
    const opens = left && (mark !== "_" || !right || pointBefore), closes = right && (mark !== "_" || !left || pointAfter);
    const all = run.length, both = opens && closes;
    if (mark === "~" && all !== 2) return this.nodes.push(run);
    const count = closes ? this.close(mark, all, both) : all;
    if (!count) return;
    this.nodes.push(mark.repeat(count));
    if (opens) {
      this.waiting.push({ mark, count, all, both, at: this.nodes.length - 1 });
      this.counts[mark]++;
    }
  }

  // Closes as many pairs as there are. Returns how many marks are left.
  close(mark, all, both) {
    let count = all;
    while (count && this.counts[mark]) {
      let opener = this.waiting.at(-1);
      while (opener.mark !== mark) { this.drop(); opener = this.waiting.at(-1); }
      // In `**a*b*c**` the second mark does not end what the first one begins.
      if ((both || opener.both) && (opener.all + all) % 3 === 0 && (opener.all % 3 || all % 3)) break;
      const used = mark === "~" ? 2 : Math.min(2, opener.count, count);
      if (!this.wrap(opener, used === 2 ? (mark === "~" ? "del" : "strong") : "em", used)) { this.forget(0); break; }
      count -= used;
      opener.count -= used;
      if (!opener.count) this.drop();
    }
    return count;
  }

  drop() { this.counts[this.waiting.pop().mark]--; }

  // Puts all nodes since a mark into an element.
  wrap(opener, name, used) {
    const inside = this.nodes.slice(opener.at + 1), depth = 1 + inside.reduce((most, node) => Math.max(most, this.depths.get(node) || 0), 0);
    if (depth > DEEPEST) return false;
    const made = element(name, ...inside), rest = opener.count - used;
    this.depths.set(made, depth);
    this.nodes.length = opener.at;
    // What is left of the mark stays where it was.
    this.nodes.push(...(rest ? [opener.mark.repeat(rest)] : []), made);
    return true;
  }

  // Forgets marks from a place on: what is there is a link now.
  forget(from) {
    while (this.waiting.length && this.waiting.at(-1).at >= from) this.drop();
  }
}
