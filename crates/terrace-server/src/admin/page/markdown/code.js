// Blocks of code: their language, and a button that copies them.
import { element } from "../shared/dom.js";
import { copyButton } from "../shared/buttons.js";

export function codeBlock(block) {
  const language = languageOf(block), code = element("code", block.text);
  const pre = element("pre", { tabindex: 0, "aria-label": language ? "Code: " + language : "Code" }, code);
  const box = element("div.code", element("div.code-head", element("span", language || "text"), copyButton(() => code.textContent, "Copy code")), pre);
  // Takes more of the same block; false if it is another one.
  box.grow = (next) => {
    if (languageOf(next) !== language || !next.text.startsWith(code.textContent)) return false;
    const more = next.text.slice(code.textContent.length);
    if (more) (code.firstChild || code.appendChild(new Text())).appendData(more);
    return true;
  };
  return box;
}

const languageOf = (block) => block.language.slice(0, 30);
