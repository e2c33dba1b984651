// The list of conversations.
import { at, element } from "../shared/dom.js";
import { iconButton } from "../shared/buttons.js";
import { when } from "../shared/format.js";
import { markdownOf, titleOf } from "./conversation.js";
import { begin, conversations, current, library, remove, save, show } from "./library.js";
import { isRunning, stop } from "./running.js";
import { download } from "./transfer.js";
import { closeDrawer } from "../shared/layout.js";

const list = at("conversations"), search = at("search"), FEW = 8;
let renamed = null, drawn = "";

function draw() {
  const all = conversations(), wanted = search.value.trim().toLowerCase();
  search.hidden = all.length < FEW && !wanted;
  const found = all.filter((one) => !wanted || titleOf(one).toLowerCase().includes(wanted) || Object.values(one.nodes).some((node) => node.text.toLowerCase().includes(wanted)));
  // It is asked for again each time that a part of an answer is saved.
  const now = JSON.stringify([renamed, current.id, found.map((one) => [one.id, titleOf(one), isRunning(one), when(one.created)])]);
  if (now === drawn) return;
  drawn = now;
  const focused = document.activeElement?.closest?.("#conversations li")?.dataset.id, kind = document.activeElement?.getAttribute("aria-label");
  list.replaceChildren(...found.map(entry));
  at("no-conversations").hidden = found.length > 0;
  at("no-conversations").textContent = wanted ? "Nothing found." : "No conversations yet.";
  // The list was made again under the user's hands.
  if (focused && !list.contains(document.activeElement)) {
    const row = list.querySelector(`[data-id="${focused}"]`);
    ([...(row?.querySelectorAll("button, input") || [])].find((button) => button.getAttribute("aria-label") === kind) || row?.querySelector("button"))?.focus();
  }
}

function entry(conversation) {
  const title = titleOf(conversation), shown = conversation === current, runs = isRunning(conversation);
  const row = element("li", { "data-id": conversation.id });
  if (renamed === conversation.id) {
    row.append(rename(conversation, title));
    return row;
  }
  const open = element("button.open", { type: "button", "aria-current": shown ? "true" : null, title, click: () => { show(conversation); closeDrawer(); } },
    element("span.name", title), element("small", runs ? "generating…" : when(conversation.created)));
  if (runs) row.classList.add("running");
  row.append(open, element("div.tools",
    iconButton("edit", "Rename " + title, () => { renamed = conversation.id; draw(); list.querySelector("input")?.select(); }),
    iconButton("save", "Save as Markdown " + title, () => saveAsMarkdown(conversation)),
    iconButton("bin", "Delete " + title, () => { stop(conversation); remove(conversation); at("new").focus(); })));
  return row;
}

function rename(conversation, title) {
  const input = element("input", { "aria-label": "Name", maxlength: 200 });
  input.value = title;
  const close = (keep) => {
    if (renamed === null) return;
    renamed = null;
    if (keep && input.value.trim() !== title) { conversation.title = input.value.trim(); save(conversation); } else draw();
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === "Escape") { event.stopPropagation(); close(event.key === "Enter"); }
  });
  input.addEventListener("blur", () => close(true));
  return input;
}

const saveAsMarkdown = (conversation) =>
  download(titleOf(conversation).replace(/[^\p{L}\p{N} .-]+/gu, "_").slice(0, 60) + ".md", "text/markdown", markdownOf(conversation));

at("new").addEventListener("click", () => { begin(); closeDrawer(); at("text").focus(); });
search.addEventListener("input", draw);
for (const name of ["list", "show"]) library.addEventListener(name, draw);

export const start = draw;
