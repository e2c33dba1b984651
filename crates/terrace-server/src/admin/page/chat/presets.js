// Presets of system prompts: some to begin with, and the user's own.
import { at, element } from "../shared/dom.js";

const KEY = "presets", MOST = 200;
const GIVEN = [
  { name: "Brief", text: "Answer briefly and precisely. Leave out introductions and summaries." },
  { name: "Step by step", text: "Explain step by step, so that a beginner can follow. Say where you are not sure." },
  { name: "Code review", text: "Review the code that I show you: errors first, then what is hard to read, then smaller points. Quote the lines that you mean." },
  { name: "Translator", text: "Translate what I write into English, and English into the language of my last other text. Answer with the translation alone." },
];

// The user's own.
export function presets() {
  try { return cleaned(JSON.parse(localStorage.getItem(KEY))); } catch { return []; }
}

// Those of a list that are presets: it may be of a file.
export const cleaned = (list) => (Array.isArray(list) ? list : [])
  .filter((one) => typeof one?.name === "string" && one.name.trim() && typeof one.text === "string")
  .map(({ name, text }) => ({ name: name.trim().slice(0, 60), text })).slice(0, MOST);

// Keeps presets; of two with one name, the later.
export function addPresets(list) {
  const all = new Map([...presets(), ...cleaned(list)].map((one) => [one.name, one]));
  keep([...all.values()]);
}

const keep = (list) => { localStorage.setItem(KEY, JSON.stringify(list)); };

const choice = at("preset"), name = at("preset-name"), text = at("system");

export function fillPresets() {
  const own = presets(), options = (list) => list.map((one) => element("option", one.name));
  choice.replaceChildren(element("option", { value: "" }, "Presets"), ...(own.length ? [element("optgroup", { label: "Yours" }, ...options(own))] : []), element("optgroup", { label: "Built-in" }, ...options(GIVEN)));
  name.value = "";
  offer();
}

const chosenOwn = () => presets().find((one) => one.name === choice.value);

function offer() {
  at("preset-save").disabled = !name.value.trim() || !text.value.trim();
  at("preset-delete").disabled = !chosenOwn();
}

choice.addEventListener("change", () => {
  const found = chosenOwn() || GIVEN.find((one) => one.name === choice.value);
  if (found) {
    text.value = found.text;
    text.dispatchEvent(new Event("input"));
  }
  offer();
});
at("preset-save").addEventListener("click", () => {
  const kept = name.value.trim();
  try {
    addPresets([{ name: kept, text: text.value }]);
    fillPresets();
    choice.value = kept;
    at("settings-done").textContent = "Preset saved.";
  } catch { at("settings-done").textContent = "This browser keeps nothing."; }
  offer();
});
at("preset-delete").addEventListener("click", () => { keep(presets().filter((one) => one.name !== choice.value)); fillPresets(); });
for (const box of [name, text]) box.addEventListener("input", offer);
// In this box, Enter saves and does not close the settings.
name.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); at("preset-save").click(); } });
