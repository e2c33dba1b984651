// What is chosen for a conversation: the system prompt, the sampling, tools. Also what new ones begin with.
import { at, element, set } from "../shared/dom.js";
import { server } from "../shared/server.js";
import { LIMITS, SAMPLING } from "./fields.js";
import { fillPresets } from "./presets.js";

const KEY = "settings", box = at("settings");

// Settings of new conversations.
export function startSettings() {
  try { return JSON.parse(localStorage.getItem(KEY)) || {}; } catch { return {}; }
}

// What differs from the server's own choice, in few words.
export function summary(settings) {
  const said = [];
  if (settings.system?.trim()) said.push("system prompt");
  if (settings.temperature !== undefined) said.push("temperature " + settings.temperature);
  const others = Object.keys(settings).filter((name) => !["system", "temperature"].includes(name) && settings[name] !== "").length;
  if (others) said.push(said.length ? `${others} more` : `${others} chosen`);
  return said.join(", ");
}

let settings = {}, changed = () => {};

// Opens the settings of a conversation. `done` is called after each change.
export function open(of, done) {
  [settings, changed] = [of, done];
  fill();
  box.showModal();
}

function fill() {
  const props = server.props, defaults = props?.default_generation_settings?.params || {}, template = props?.chat_template || "";
  at("system").value = settings.system || "";
  fillPresets();
  const offered = SAMPLING.filter(({ name }) => name in defaults || settings[name] !== undefined);
  at("numbers").replaceChildren(...offered.map((field) => number(field, defaults[field.name])), ...LIMITS.map((field) => number(field)));
  at("stops").value = settings.stop || "";
  choice("thinking", template.includes("enable_thinking"));
  choice("effort", template.includes("reasoning_effort"));
  at("tools").value = settings.tools || "";
  at("tools-row").hidden = !props?.chat_template_caps && !settings.tools;
  checkTools();
}

function number({ name, label, hint, none = "", ...limits }, preset) {
  const id = "set-" + name, input = element("input", { id, type: "number", inputmode: "decimal", "aria-describedby": id + "-hint", ...limits });
  if (typeof preset === "number") input.placeholder = String(Number(preset.toPrecision(6)));
  else input.placeholder = none;
  input.value = settings[name] ?? "";
  input.addEventListener("input", () => {
    const fine = input.validity.valid;
    set(input, { "aria-invalid": String(!fine) });
    choose(name, fine && input.value !== "" ? input.valueAsNumber : undefined);
  });
  return element("div.field", element("label", { for: id }, label), input, element("small", { id: id + "-hint" }, hint));
}

// A choice that this model's template may not know.
function choice(name, known) {
  at(name + "-row").hidden = !known && !settings[name];
  at(name).value = settings[name] || "";
}

function choose(name, value) {
  if (value === undefined || value === "") delete settings[name]; else settings[name] = value;
  changed();
}

// Tools are sent once they are a list.
function checkTools() {
  let problem = "";
  try {
    if (at("tools").value.trim() && !Array.isArray(JSON.parse(at("tools").value))) problem = "This is not a list.";
  } catch (error) {
    problem = "This is not JSON: " + error.message;
  }
  at("tools-wrong").textContent = problem;
  set(at("tools"), { "aria-invalid": String(problem !== "") });
  return !problem;
}

at("system").addEventListener("input", () => choose("system", at("system").value));
at("stops").addEventListener("input", () => choose("stop", at("stops").value));
for (const name of ["thinking", "effort"]) at(name).addEventListener("change", () => choose(name, at(name).value));
at("tools").addEventListener("input", () => { if (checkTools()) choose("tools", at("tools").value); });
at("settings-reset").addEventListener("click", () => {
  for (const name of Object.keys(settings)) delete settings[name];
  fill();
  changed();
});
at("settings-keep").addEventListener("click", () => {
  let said = "New chats begin like this.";
  try { localStorage.setItem(KEY, JSON.stringify(settings)); } catch { said = "This browser keeps nothing."; }
  at("settings-done").textContent = said;
});
box.addEventListener("close", () => { at("settings-done").textContent = ""; });
// A click beside it closes it.
box.addEventListener("click", (event) => { if (event.target === box) box.close(); });
