// Elements: found, made, filled.

export const at = (id) => document.getElementById(id);

// Makes an element: its name with classes after dots, attributes if there are any, children.
export function element(what, ...children) {
  const [name, ...classes] = what.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  const first = children[0];
  if (first && typeof first === "object" && !(first instanceof Node)) set(made, children.shift());
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// Sets attributes; functions are listeners, named like their events.
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  return element;
}

// Changes a text only if it is another one: what reads the page aloud is not told twice.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Terms with their values.
export function terms(list, values) {
  list.replaceChildren(...Object.entries(values).map(([name, value]) =>
    element("div", element("dt", name), element("dd", String(value ?? "")))));
}

// A number that no other element or conversation has. (`randomUUID` is missing where there is no TLS.)
export const unique = () => [...crypto.getRandomValues(new Uint32Array(3))].map((word) => word.toString(36)).join("");
