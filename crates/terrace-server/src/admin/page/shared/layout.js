// Which parts are beside the chat: the list of conversations, the server. Kept for the next time.
import { at, set } from "./dom.js";

const ROOM = { list: matchMedia("(min-width: 94rem)"), tiers: matchMedia("(min-width: 62rem)") };
const BUTTONS = { list: at("show-list"), tiers: at("show-tiers") }, PARTS = { list: at("list"), tiers: at("tiers") };
const open = {};

// Emitted on `window` when what is shown has changed.
const changed = () => dispatchEvent(new Event("layout"));

function apply(name, shown) {
  open[name] = shown;
  PARTS[name].hidden = !shown;
  document.body.classList.toggle("with-" + name, shown);
  set(BUTTONS[name], { "aria-expanded": String(shown) });
  changed();
}

// Where there is no room beside the chat, what is shown covers it, and is not kept.
const wanted = (name) => ROOM[name].matches && localStorage.getItem("show-" + name) !== "no";

function toggle(name) {
  const shown = !open[name];
  if (ROOM[name].matches) try { localStorage.setItem("show-" + name, shown ? "yes" : "no"); } catch { /* Not kept. */ }
  if (shown && !ROOM[name].matches) for (const other of Object.keys(ROOM)) if (other !== name && !ROOM[other].matches) apply(other, false);
  apply(name, shown);
  if (shown && name === "list" && !ROOM.list.matches) at("new").focus();
}

// Closes the list where it covers the chat.
export function closeDrawer() {
  if (ROOM.list.matches || !open.list) return;
  apply("list", false);
  BUTTONS.list.focus();
}

export const isShown = (name) => open[name];

for (const name of Object.keys(ROOM)) {
  BUTTONS[name].addEventListener("click", () => toggle(name));
  ROOM[name].addEventListener("change", () => apply(name, wanted(name)));
  apply(name, wanted(name));
}
at("shade").addEventListener("click", closeDrawer);
at("list").addEventListener("keydown", (event) => { if (event.key === "Escape") closeDrawer(); });
// The keyboard does not go under it.
at("list").addEventListener("focusout", (event) => { if (event.relatedTarget && !at("list").contains(event.relatedTarget)) closeDrawerQuietly(); });

function closeDrawerQuietly() {
  if (!ROOM.list.matches && open.list) apply("list", false);
}
