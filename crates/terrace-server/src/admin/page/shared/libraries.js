// Libraries that are part of the program, loaded when something needs them first.
import { element } from "./dom.js";

const once = (load) => { let loading = null; return () => (loading ||= load()); };

// Typesets formulas; it registers itself on the window.
export const katex = once(async () => {
  const style = element("link", { rel: "stylesheet", href: "page/vendor/katex.min.css" });
  const styled = new Promise((done) => { style.onload = style.onerror = done; });
  document.head.append(style);
  await import("../vendor/katex.min.js");
  await styled;
  return window.katex;
});

// Finds keywords, strings and comments in code.
export const highlighter = once(async () => {
  const { default: highlight } = await import("../vendor/highlight.min.js");
  const { mermaid } = await import("../markdown/mermaid.js");
  highlight.registerLanguage("mermaid", mermaid);
  return highlight;
});

// Reads PDF, in the page itself: the policy lets no text become the address of a worker.
export const pdf = once(async () => {
  globalThis.pdfjsWorker = await import("../vendor/pdf.worker.min.mjs");
  return import("../vendor/pdf.min.mjs");
});
