// Markdown within a line: emphasis, code, links. The text is read once, from its beginning to its end.
import { element } from "../shared/dom.js";
import { Emphasis } from "./emphasis.js";
import { unescaped } from "./entities.js";
import { Formulas, formula } from "./math.js";
import { reference } from "./notes.js";
import { bare, link, targetAt } from "./links.js";

// Letters that mean nothing, up to one that may. Addresses begin with `http`.
const PLAIN = /(?:(?!https?:\/\/)[^\\`*_~[\]!<&$\n])+/y, ADDRESS = /https?:\/\/[^\s<>`]{1,2000}/y, ENTITY = /&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z]{2,8});/y;
const ANGLED = /<((?:https?:\/\/|mailto:)[^\s<>]{1,1000})>/y, BREAK = /<br ?\/?>/iy, RUN = /\*+|_+|~+/y, TICKS = /`+/y, ESCAPED = /[!-/:-@[-`{-~]/;

const NOTE = /\[\^([^\]\s]{1,50})\]/y;

// Nodes and texts of a piece of Markdown. `notes` has the numbers of the text's footnotes.
export function inlines(text, notes) {
  const nodes = [], emphasis = new Emphasis(nodes), ticks = new Ticks(text), formulas = new Formulas(text);
  // Brackets that may begin a link.
  let brackets = [], at = 0;
  const match = (pattern) => { pattern.lastIndex = at; return pattern.exec(text); };
  const push = (node, end) => { nodes.push(node); at = end; };

  while (at < text.length) {
    const letter = text[at], plain = match(PLAIN);
    if (plain) { push(plain[0], at + plain[0].length); continue; }
    if (letter === "\n") {
      if (typeof nodes.at(-1) === "string") nodes.push(nodes.pop().trimEnd());
      push(element("br"), at + 1);
    } else if (letter === "\\") {
      const found = formulas.at(at);
      if (found) push(formula(found.tex, found.display), found.end);
      else if (text[at + 1] === "\n") push(element("br"), at + 2);
      else if (ESCAPED.test(text[at + 1] || "")) push(text[at + 1], at + 2);
      else push(letter, at + 1);
    } else if (letter === "$") {
      const found = formulas.at(at), end = found ? found.end : at + (text[at + 1] === "$" ? 2 : 1);
      push(found ? formula(found.tex, found.display) : text.slice(at, end), end);
    } else if (letter === "`") {
      const run = match(TICKS)[0], from = at + run.length, end = ticks.after(run.length, from);
      if (end < 0) push(run, from); else push(element("code", code(text.slice(from, end))), end + run.length);
    } else if ("*_~".includes(letter)) {
      const run = match(RUN)[0], end = at + run.length;
      emphasis.take(run, before(text, at), after(text, end));
      at = end;
    } else if (letter === "[" && notes?.has(match(NOTE)?.[1])) {
      const [whole, label] = match(NOTE);
      push(reference(label, notes), at + whole.length);
    } else if (letter === "[" || (letter === "!" && text[at + 1] === "[")) {
      brackets.push({ at: nodes.length });
      push(letter === "!" ? "![" : "[", at + (letter === "!" ? 2 : 1));
    } else if (letter === "]") {
      const open = brackets.pop(), found = open && text[at + 1] === "(" ? targetAt(text, at + 1) : null;
      // The bracket may be within an element by now: `*[a* b](c)`.
      if (!found || !["[", "!["].includes(nodes[open.at])) { push(letter, at + 1); continue; }
      emphasis.forget(open.at);
      const inside = nodes.splice(open.at).slice(1);
      // Pictures would be loaded from elsewhere: they are links, too, and these are not nested.
      push(link(found.target, inside.length ? inside : [found.target]), found.end);
      brackets = [];
    } else if (letter === "<") {
      const angled = match(ANGLED), end = angled ? null : match(BREAK);
      if (angled) push(link(angled[1], [angled[1].replace(/^mailto:/, "")]), at + angled[0].length);
      else if (end) push(element("br"), at + end[0].length);
      else push(letter, at + 1);
    } else if (letter === "&") {
      const entity = match(ENTITY)?.[0] || letter;
      push(unescaped(entity), at + entity.length);
    } else {
      const address = match(ADDRESS);
      if (address) { const target = bare(address[0]); push(link(target, [target]), at + target.length); } else push(letter, at + 1);
    }
  }
  return nodes;
}

// The letters beside a place, whole.
const after = (text, at) => (at < text.length ? String.fromCodePoint(text.codePointAt(at)) : "");
const before = (text, at) => (at === 0 ? "" : at > 1 && /[\udc00-\udfff]/.test(text[at - 1]) ? text.slice(at - 2, at) : text[at - 1]);

// Code without the spaces that only keep its ticks apart.
const code = (text) => {
  const line = text.replaceAll("\n", " ");
  return line.startsWith(" ") && line.endsWith(" ") && line.trim() ? line.slice(1, -1) : line;
};

// Runs of backticks by their length, each looked at once.
class Ticks {
  constructor(text) {
    this.places = new Map();
    for (const { 0: run, index } of text.matchAll(/`+/g)) {
      if (!this.places.has(run.length)) this.places.set(run.length, { list: [], next: 0 });
      this.places.get(run.length).list.push(index);
    }
  }

  // The next run of a length; −1 if there is none.
  after(length, from) {
    const places = this.places.get(length);
    while (places.next < places.list.length && places.list[places.next] < from) places.next++;
    return places.list[places.next] ?? -1;
  }
}
