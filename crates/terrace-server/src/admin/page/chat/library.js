// All conversations, and the one that is shown. Tabs of one browser share them.
import { newConversation, titleOf } from "./conversation.js";
import { startSettings } from "./settings.js";
import { notice } from "./notice.js";
import { isRunning } from "./running.js";
import * as storage from "./storage.js";

// `list`: the list is another one. `show`: another conversation is shown, or another branch of it. `turn`: a turn
// that is shown has changed.
export const library = new EventTarget();
const all = new Map(), tabs = new BroadcastChannel("terrace");
export let current = newConversation(startSettings());

// An answer that has not been saved for so long is written by no tab any more.
const DEAD = 5000;

export const conversations = () => [...all.values()].sort((a, b) => b.updated - a.updated);
export const find = (id) => all.get(id);
export const has = (conversation) => all.has(conversation.id);

const tell = (name, detail) => library.dispatchEvent(new CustomEvent(name, { detail }));

// Says that something of a conversation is different.
export const changedTurn = (conversation, node) => { if (conversation === current) tell("turn", node); };
export const changedPath = (conversation, follow) => { if (conversation === current) tell("show", { same: true, follow }); };

export function show(conversation) {
  if (conversation === current) return;
  current = conversation;
  remember();
  tell("show", { same: false });
  tell("list");
}

// A tab that is loaded again shows the same conversation.
const remember = () => sessionStorage.setItem("shown", current.id);

// Shows an empty conversation.
export const begin = () => show(newConversation(startSettings()));

// Keeps a conversation; the list shows the newest first.
export async function save(conversation) {
  conversation.updated = Date.now();
  remember();
  await keep(conversation);
}

// Keeps a conversation as it is.
export async function keep(conversation) {
  all.set(conversation.id, conversation);
  tell("list");
  try {
    await storage.write(conversation);
    tabs.postMessage(conversation.id);
  } catch (error) {
    notice("This conversation could not be kept in the browser: " + (error?.message || "its storage is full") + ".", { error: true });
  }
}

// Removes a conversation. It can be brought back as long as the notice is there.
export async function remove(conversation) {
  all.delete(conversation.id);
  if (conversation === current) begin(); else tell("list");
  notice(`“${titleOf(conversation)}” was deleted.`, { action: "Undo", act: () => { save(conversation); show(conversation); } });
  await storage.remove(conversation.id).catch(() => {});
  tabs.postMessage(conversation.id);
}

// Ends answers that nothing writes any more: the tab that did was closed.
function settle(conversation) {
  const dead = Date.now() - conversation.updated > DEAD;
  for (const node of Object.values(conversation.nodes)) {
    if (node.state === "running" && dead) Object.assign(node, { state: "stopped", error: "The page was closed meanwhile." });
  }
  return conversation;
}

// Reads what is kept; shows what this tab has shown last.
export async function load() {
  try {
    for (const conversation of await storage.open()) all.set(conversation.id, settle(conversation));
  } catch (error) {
    notice("Conversations are not kept: this browser gives the page no storage.", { error: true });
  }
  const last = all.get(sessionStorage.getItem("shown"));
  if (last) show(last); else tell("list");
}

// Another tab has changed a conversation.
tabs.onmessage = async ({ data: id }) => {
  // What this tab is writing is newer.
  if (all.has(id) && isRunning(all.get(id))) return;
  const found = await storage.read(id);
  if (found) all.set(id, settle(found)); else all.delete(id);
  if (id === current.id && found) { current = found; tell("show", { same: true }); }
  tell("list");
};
