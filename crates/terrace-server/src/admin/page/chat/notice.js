// What the user has to know now, above the message box: never below the fold.
import { at, element } from "../shared/dom.js";
import { iconButton, textButton } from "../shared/buttons.js";

const AWHILE = 10_000;
let timer = null;

// Shows a text, in place of the last one. Errors stay until they are closed or something else happens.
export function notice(text, { error = false, action = "", act = null } = {}) {
  clearTimeout(timer);
  const box = element(error ? "div.notice.error" : "div.notice", { role: error ? "alert" : "status" }, element("p", text));
  if (act) box.append(textButton(action, () => { clear(); act(); }));
  box.append(iconButton("close", "Close", clear));
  at("notices").replaceChildren(box);
  if (!error) timer = setTimeout(clear, AWHILE);
}

export function clear() {
  clearTimeout(timer);
  at("notices").replaceChildren();
}

// Tells what is read aloud, and not shown.
export const announce = (text) => { at("spoken").textContent = text; };
