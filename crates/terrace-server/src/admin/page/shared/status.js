// The server's state, always in view.
import { at, say } from "./dom.js";
import { server, signals } from "./server.js";
import { duration } from "./format.js";

function update() {
  const { state, why, seen, model } = server;
  say(at("model"), model);
  at("model").title = model;
  const ago = state === "lost" && seen ? `, for ${duration(Date.now() - seen)}` : "";
  say(at("state-text"), why);
  say(at("ago"), ago);
  at("state").className = state;
  // Numbers of a server that does not answer are old.
  document.body.classList.toggle("stale", state !== "up");
}

signals.addEventListener("change", update);
setInterval(() => { if (server.state === "lost") update(); }, 1000);
update();
