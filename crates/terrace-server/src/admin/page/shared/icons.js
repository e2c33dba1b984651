// Icons, drawn with lines in a square of 24.

const PATHS = {
  menu: "M4 6h16M4 12h16M4 18h16",
  plus: "M12 5v14M5 12h14",
  panel: "M4 5h16v14H4zM14 5v14",
  send: "M12 19V5M6 11l6-6 6 6",
  sliders: "M4 8h8M18 8h2M12 8a3 3 0 1 0 6 0a3 3 0 1 0-6 0M4 16h2M12 16h8M6 16a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12l5 5 9-10",
  again: "M20 11a8 8 0 1 0-2 6M20 5v6h-6",
  edit: "M4 20l1-5L16 4l4 4L9 19zM13 7l4 4",
  bin: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  save: "M12 4v11M7 10l5 5 5-5M4 20h16",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  clip: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.5 3.5 0 0 1 5 5l-8.5 8.5a2 2 0 0 1-3-3L14 7",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  open: "M12 15V4M7 9l5-5 5 5M4 20h16",
  help: "M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .8-1 1.7M12 17v.5M3 12a9 9 0 1 0 18 0a9 9 0 1 0-18 0",
  close: "M6 6l12 12M18 6L6 18",
  tool: "M14 7a4 4 0 0 1 6-1l-3 3 1 2 2 1 1-1a4 4 0 0 1-6 4l-7 6-3-3 6-7a4 4 0 0 1 3-4z",
};
const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

// Draws the icons that the markup names.
for (const place of document.querySelectorAll("[data-icon]")) place.prepend(icon(place.dataset.icon));
