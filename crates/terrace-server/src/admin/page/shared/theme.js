// The theme's colours, for what is drawn.

export const dark = matchMedia("(prefers-color-scheme: dark)");

let colours = {};
dark.addEventListener("change", () => { colours = {}; });

// A colour by its name in the style.
export const colour = (name) =>
  colours[name] ||= getComputedStyle(document.documentElement).getPropertyValue(name).trim();
