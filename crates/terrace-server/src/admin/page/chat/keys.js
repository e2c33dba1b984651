// Keys that work anywhere on the page, and the list of them.
import { at, element } from "../shared/dom.js";
import { closeDrawer, isShown, toggle } from "../shared/layout.js";
import { begin, conversations, current, show } from "./library.js";

const help = at("help");
const message = () => at("text").focus();

// Shows the conversation that is so many places further down the list.
function step(by) {
  const all = conversations(), place = all.indexOf(current);
  const next = place < 0 ? all[by > 0 ? 0 : -1] : all[place + by];
  if (next) show(next);
}

function find() {
  if (!isShown("list")) toggle("list");
  const search = at("search");
  (search.hidden ? document.querySelector("#conversations .open") || at("new") : search).focus();
}

function openHelp() {
  if (!help.open) help.showModal();
}

// With Alt: letters alone are text. On a Mac, those with Option are text as well (@ on German keyboards).
const MAC = /^(Mac|iP)/.test(navigator.platform), HELD = MAC ? ["Ctrl", "Option"] : ["Alt"];
const isHeld = (event) => event.altKey && event.ctrlKey === MAC && !event.metaKey && !event.shiftKey;
const WITH_ALT = {
  KeyN: { keys: "N", does: "New chat", act: () => { begin(); closeDrawer(); message(); } },
  KeyM: { keys: "M", does: "To the message box", act: message },
  KeyK: { keys: "K", does: "Find a conversation", act: find },
  ArrowUp: { keys: "↑", does: "Conversation above", act: () => step(-1) },
  ArrowDown: { keys: "↓", does: "Conversation below", act: () => step(1) },
  KeyL: { keys: "L", does: "Show or hide conversations", act: () => toggle("list") },
  KeyP: { keys: "P", does: "Show or hide the server", act: () => toggle("tiers") },
  KeyS: { keys: "S", does: "Settings of this chat", act: () => at("show-settings").click() },
  KeyU: { keys: "U", does: "Add files", act: () => at("attach").click() },
};
const OTHERS = [
  [["Enter"], "Send"],
  [["Shift", "Enter"], "Break the line"],
  [["Esc"], "Stop the response; close what is open"],
  [["↑"], "Edit the last question, from an empty message box"],
  [["?"], "These keys, outside of text boxes"],
];

const row = (keys, does) => element("div", element("dt", ...keys.flatMap((key, index) => [index > 0 && "+", element("kbd", key)])), element("dd", does));
at("shortcuts").append(...OTHERS.map(([keys, does]) => row(keys, does)), ...Object.values(WITH_ALT).map(({ keys, does }) => row([...HELD, keys], does)));

const isText = (element) => element?.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

addEventListener("keydown", (event) => {
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  const found = isHeld(event) ? WITH_ALT[event.code] : null;
  if (found) {
    event.preventDefault();
    found.act();
  } else if (event.key === "?" && !event.ctrlKey && !event.metaKey && !isText(event.target)) {
    event.preventDefault();
    openHelp();
  }
});
at("show-help").addEventListener("click", openHelp);
help.addEventListener("click", (event) => { if (event.target === help) help.close(); });
