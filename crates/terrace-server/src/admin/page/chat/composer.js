// The box in which messages are written, with what belongs to it: send, stop, settings.
import { at, say, set } from "../shared/dom.js";
import { server, signals } from "../shared/server.js";
import { ask } from "./answers.js";
import { path } from "./conversation.js";
import { current, library } from "./library.js";
import { hasFiles, onFiles, problemOfFiles, takeFiles } from "./files.js";
import { notice } from "./notice.js";
import { hasPictures, onPictures, takePictures } from "./pictures.js";
import { isRunning, stop } from "./running.js";
import { summary } from "./settings.js";

const text = at("text"), send = at("send"), halt = at("stop"), DRAFT = "draft:";
let conversation = null;

const isEmpty = () => !text.value.trim() && !hasPictures() && !hasFiles();

function submit() {
  const said = text.value.trim(), problem = problemOfFiles();
  if (isEmpty() || isRunning(current)) return;
  if (problem) { notice(problem, { error: true }); return; }
  text.value = "";
  keep();
  grow();
  ask(current, said, path(current).at(-1) || null, takePictures(), takeFiles());
  update();
}

// As high as its text, up to what the style allows.
function grow() {
  text.style.height = "auto";
  text.style.height = text.scrollHeight + 2 + "px";
}

// Unsent texts are kept for as long as the tab.
function keep() {
  try {
    if (text.value) sessionStorage.setItem(DRAFT + current.id, text.value); else sessionStorage.removeItem(DRAFT + current.id);
  } catch { /* No room: it is only a draft. */ }
}

function update() {
  const runs = isRunning(current);
  if (runs !== !halt.hidden) {
    const had = [send, halt].includes(document.activeElement);
    halt.hidden = !runs;
    send.hidden = runs;
    if (had) text.focus();
  }
  send.disabled = isEmpty();
  set(text, { placeholder: server.model ? "Message " + server.model : "Message" });
  say(at("chosen"), summary(current.settings));
  if (conversation === current.id) return;
  conversation = current.id;
  text.value = sessionStorage.getItem(DRAFT + current.id) || "";
  send.disabled = isEmpty();
  grow();
}

at("ask").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
halt.addEventListener("click", () => stop(current));
text.addEventListener("input", () => { keep(); grow(); update(); });
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
  if (event.key === "ArrowUp" && !text.value) {
    const edits = document.querySelectorAll(".turn.user .actions button:first-child");
    if (edits.length) { event.preventDefault(); edits[edits.length - 1].click(); }
  }
});
at("chat").addEventListener("keydown", (event) => {
  if (event.key === "Escape" && isRunning(current)) { stop(current); text.focus(); }
});
for (const name of ["show", "list", "turn"]) library.addEventListener(name, update);
signals.addEventListener("change", update);
onPictures(update);
onFiles(update);
new ResizeObserver(grow).observe(at("ask"));

export const start = update;
