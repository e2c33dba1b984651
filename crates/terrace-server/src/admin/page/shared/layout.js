// Which parts are beside the chat: the list of conversations, the server. Kept for the next time.
import { at, set } from "./dom.js";

const ROOM = { list: matchMedia("(min-width: 64rem)"), tiers: matchMedia("(min-width: 64rem)") };
// There is room for both at once.
const BOTH = matchMedia("(min-width: 80rem)"), OTHER = { list: "tiers", tiers: "list" };
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

// Where there is no room beside the chat, what is shown covers it, and is not kept. The server is shown to those who ask.
const chosen = (name) => localStorage.getItem("show-" + name);
const wanted = {
  tiers: () => ROOM.tiers.matches && chosen("tiers") === "yes",
  list: () => ROOM.list.matches && chosen("list") !== "no" && (BOTH.matches || !wanted.tiers()),
};

export function toggle(name) {
  const shown = !open[name], other = OTHER[name];
  if (ROOM[name].matches) try { localStorage.setItem("show-" + name, shown ? "yes" : "no"); } catch { /* Not kept. */ }
  if (shown && !BOTH.matches) apply(other, false);
  apply(name, shown);
  // The list makes way for the server, and comes back.
  if (!shown && name === "tiers" && !BOTH.matches) apply("list", wanted.list());
  if (shown && name === "list" && !ROOM.list.matches) at("new").focus();
}

// Closes the list where it covers the chat.
export function closeDrawer() {
  if (ROOM.list.matches || !open.list) return;
  apply("list", false);
  BUTTONS.list.focus();
}

export const isShown = (name) => open[name];

for (const name of ["tiers", "list"]) {
  BUTTONS[name].addEventListener("click", () => toggle(name));
  for (const room of [ROOM[name], BOTH]) room.addEventListener("change", () => apply(name, wanted[name]()));
  apply(name, wanted[name]());
}
at("shade").addEventListener("click", closeDrawer);
at("list").addEventListener("keydown", (event) => { if (event.key === "Escape") closeDrawer(); });
// The keyboard does not go under it.
at("list").addEventListener("focusout", (event) => { if (event.relatedTarget && !at("list").contains(event.relatedTarget)) closeDrawerQuietly(); });

function closeDrawerQuietly() {
  if (!ROOM.list.matches && open.list) apply("list", false);
}
