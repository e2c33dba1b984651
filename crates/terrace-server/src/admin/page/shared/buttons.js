// Buttons that are made by scripts.
import { element } from "./dom.js";
import { icon } from "./icons.js";

// A button that shows an icon alone; its name is read aloud, and shown when pointed at.
export const iconButton = (name, label, click) =>
  element("button.quiet.square", { type: "button", "aria-label": label, title: label, click }, icon(name));

export const textButton = (label, click, name) =>
  element("button", { type: "button", click }, name && icon(name), label);

// A button that copies a text, and says that it has.
export function copyButton(textOf, label = "Copy") {
  const button = iconButton("copy", label, async () => {
    const done = await copy(textOf());
    button.replaceChildren(icon(done ? "check" : "close"));
    button.setAttribute("aria-label", done ? "Copied" : "Could not be copied");
    button.title = button.getAttribute("aria-label");
    clearTimeout(button.timer);
    button.timer = setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.setAttribute("aria-label", label);
      button.title = label;
    }, 1500);
  });
  return button;
}

// Browsers have a clipboard for scripts only where there is TLS or the host is this machine.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea.unseen", { readonly: true, "aria-hidden": "true" });
    // Within an open dialog: what is outside of it cannot be selected.
    const back = document.activeElement, room = back?.closest("dialog") || document.body;
    field.value = text;
    room.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    back?.focus();
    return done;
  }
}
