// Asks for the key where the server needs one. Stays until a key is accepted, whatever is polled meanwhile.
import { at, say } from "./dom.js";
import { get, reason, Refused, useKey } from "./http.js";

const box = at("login"), key = at("key"), wrong = at("login-error");

addEventListener("locked", () => {
  if (box.open) return;
  box.showModal();
  key.focus();
});

// There is nothing to see without a key.
box.addEventListener("cancel", (event) => event.preventDefault());

at("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  useKey(key.value);
  say(wrong, "");
  try {
    await get("props");
  } catch (error) {
    // Any other refusal comes after the key was accepted.
    if (!(error instanceof Refused) || error.status === 401) {
      say(wrong, error.status === 401 ? "This key is not accepted." : reason(error));
      key.select();
      return;
    }
  }
  box.close();
  key.value = "";
  dispatchEvent(new Event("unlocked"));
});
