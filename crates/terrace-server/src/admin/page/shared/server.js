// The server: whether it answers, its model and properties. Asked once a second.
import { get, reason, Refused } from "./http.js";

const EVERY = 1000, PATIENCE = 5000;

// `state`: connecting, up, loading, locked or lost. `seen`: when it last answered.
export const server = { state: "connecting", why: "connecting", model: "", props: null, seen: 0 };

// `change`: something of the above is different. `beat`: it has answered.
export const signals = new EventTarget();

let locked = false;
addEventListener("locked", () => { locked = true; update("locked", "needs an API key"); });
addEventListener("unlocked", () => { locked = false; poll(); });

function update(state, why, more = {}) {
  const before = JSON.stringify([server.state, server.why, server.model]);
  Object.assign(server, { state, why }, more);
  if (before !== JSON.stringify([state, why, server.model]) || more.props) signals.dispatchEvent(new Event("change"));
}

let polling = false;
export async function poll() {
  if (polling || document.hidden) return;
  polling = true;
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    // Needs no key.
    const models = await get("v1/models", { signal }), model = models.data[0].id;
    server.seen = Date.now();
    if (locked) {
      update("locked", "needs an API key", { model });
    } else {
      const known = server.props && server.state === "up" && server.model === model;
      const props = known ? null : await get("props", { signal });
      update("up", "up", { model, ...(props && { props }) });
      signals.dispatchEvent(new Event("beat"));
    }
  } catch (error) {
    if (error instanceof Refused && error.status === 401) update("locked", "needs an API key");
    else if (error instanceof Refused && error.code === "loading") update("loading", "loading the model");
    else update("lost", reason(error));
  } finally {
    polling = false;
  }
}

document.addEventListener("visibilitychange", poll);
setInterval(poll, EVERY);
