// All conversations and presets as one file, and back.
import { at, element, unique } from "../shared/dom.js";
import { count } from "../shared/format.js";
import { cleaned } from "./cleaned.js";
import { conversations, find, keep } from "./library.js";
import { notice } from "./notice.js";
import { addPresets, presets } from "./presets.js";

const FORMAT = "terrace-conversations", VERSION = 1;

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function save() {
  const all = { format: FORMAT, version: VERSION, exported: new Date().toISOString(), presets: presets(), conversations: conversations() };
  download(`terrace-conversations-${all.exported.slice(0, 10)}.json`, "application/json", JSON.stringify(all, null, 1));
}

async function add(file) {
  try {
    const all = JSON.parse(await file.text());
    if (all?.format !== FORMAT || !Array.isArray(all.conversations)) throw new Error("it has no conversations of this page");
    if (all.version > VERSION) throw new Error("it was saved by a later version of this page");
    const counts = { added: 0, known: 0, wrong: 0 };
    for (const given of all.conversations) counts[await addOne(cleaned(given))]++;
    addPresets(all.presets);
    const others = [counts.known && `${counts.known} already here`, counts.wrong && `${counts.wrong} could not be read`].filter(Boolean);
    notice(`${count(counts.added, "conversation")} imported${others.length ? ", " + others.join(", ") : ""}.`, { error: counts.wrong > 0 });
  } catch (error) {
    notice(`“${file.name}” cannot be imported: ${error instanceof SyntaxError ? "it is not JSON" : error.message}.`, { error: true });
  }
}

// What is here stays: of a conversation that has changed since, the file's becomes another one.
async function addOne(conversation) {
  if (!conversation) return "wrong";
  const here = find(conversation.id);
  if (here?.updated === conversation.updated) return "known";
  if (here) conversation.id = unique();
  await keep(conversation);
  return "added";
}

at("export").addEventListener("click", save);
at("import").addEventListener("click", () => at("import-file").click());
at("import-file").addEventListener("change", async () => {
  const [file] = at("import-file").files;
  if (file) await add(file);
  at("import-file").value = "";
});
