// Links, to pages and letters alone.
import { element } from "../shared/dom.js";
import { unescaped } from "./entities.js";

const LONGEST = 1000;

// A link, if it leads to a page or a letter; otherwise its text.
export function link(target, children) {
  let to = null;
  try { to = new URL(target); } catch { /* Relative: to nowhere. */ }
  if (!["http:", "https:", "mailto:"].includes(to?.protocol)) return element("span", ...children);
  return element("a", { href: to.href, title: to.href, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

// Where a link leads to, of which `(` is at `from`, and where it ends; null if it is none.
export function targetAt(text, from) {
  const most = Math.min(text.length, from + LONGEST);
  let open = 1, at = from + 1, end = -1;
  for (; at < most && open; at++) {
    const letter = text[at];
    if (letter === "\n") return null;
    if (letter === "\\") at++;
    else if (letter === "(") open++;
    else if (letter === ")") open--;
    // A title may follow.
    else if (letter === " " && end < 0) { end = at; if (text[at + 1] !== "\"" && text[at + 1] !== "'" && text[at + 1] !== ")") return null; }
  }
  if (open) return null;
  const target = text.slice(from + 1, end < 0 ? at - 1 : end).replace(/^<|>$/g, "");
  return { target: unescaped(target.replace(/\\([!-/:-@[-`{-~])/g, "$1")), end: at };
}

// An address in the text, without the punctuation that follows it.
export function bare(found) {
  let address = found.replace(/[.,:;!?'"*_~]{1,20}$/, "");
  while (address.endsWith(")") && address.split(")").length > address.split("(").length) address = address.slice(0, -1);
  return address;
}
