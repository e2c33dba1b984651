
// What all parts share: requests with the key, sizes, elements.
const at = (id) => document.getElementById(id);
let key = sessionStorage.getItem("key") || "";

async function request(path, options = {}) {
  const headers = { ...options.headers, ...(key ? { Authorization: "Bearer " + key } : {}) };
  const response = await fetch(path, { ...options, headers });
  const locked = response.status === 401;
  if (at("login").hidden === locked) {
    at("login").hidden = !locked;
    if (locked) at("key").focus();
  }
  if (response.ok) return response;
  let message = "HTTP " + response.status;
  try { message = (await response.json()).error.message; } catch { /* Not of this server. */ }
  throw new Error(message);
}

// The data of server-sent events, one line each, as they come.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

const post = (path, body) =>
  request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

const size = (bytes) =>
  bytes >= 2 ** 30 ? (bytes / 2 ** 30).toFixed(2) + " GiB" : (bytes / 2 ** 20).toFixed(1) + " MiB";
const percent = (part, all) => (all > 0 ? (100 * part / all).toFixed(1) + " %" : "–");

// The theme's colours by name; read again when the theme changes.
const dark = matchMedia("(prefers-color-scheme: dark)");
let colours = {};
const colour = (name) => colours[name] ||= getComputedStyle(document.documentElement).getPropertyValue(name).trim();
dark.addEventListener("change", () => { colours = {}; });

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

at("login").onsubmit = (event) => {
  event.preventDefault();
  key = at("key").value;
  sessionStorage.setItem("key", key);
  refresh();
  watch();
};
