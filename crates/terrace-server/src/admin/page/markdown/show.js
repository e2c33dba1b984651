// Markdown as elements. Texts of models become text nodes alone: no HTML is ever parsed, and nothing is loaded.
import { element } from "../shared/dom.js";
import { blocksOf } from "./blocks.js";
import { codeBlock } from "./code.js";
import { inlines } from "./inlines.js";
import { formula } from "./math.js";
import { footnote, numbersOf } from "./notes.js";

// Shows a text in a box. Blocks that are the same as before stay, and with them what is selected in them.
export function showMarkdown(box, text) {
  const blocks = blocksOf(text), shown = (box.shown ||= []), notes = numbersOf(blocks), labels = [...notes.keys()].join(" ");
  let same = 0;
  while (same < blocks.length && shown[same]?.raw === blocks[same].raw && shown[same].type === blocks[same].type) same++;
  // A footnote makes what is in brackets before it a reference.
  if (labels !== (box.labels || "")) same = Math.min(same, Math.max(0, blocks.findIndex(({ raw }) => raw.includes("[^"))));
  box.labels = labels;
  // A block of code grows: its box stays.
  if (blocks[same]?.type === "code" && box.children[same]?.grow?.(blocks[same])) same++;
  while (box.children.length > same) box.lastElementChild.remove();
  box.append(...blocks.slice(same).map((block) => show(block, notes)));
  box.shown = blocks.map(({ raw, type }) => ({ raw, type }));
}

function show(block, notes) {
  switch (block.type) {
    // The page has headings of its own above these.
    case "heading": return element("h" + Math.min(6, block.level + 2), ...inlines(block.text, notes));
    case "paragraph": return element("p", ...inlines(block.text, notes));
    case "code": return codeBlock(block);
    case "quote": return element("blockquote", ...block.blocks.map((inner) => show(inner, notes)));
    case "rule": return element("hr");
    case "list": return list(block, notes);
    case "table": return table(block, notes);
    case "formula": return element("p", formula(block.text, true));
    case "note": return footnote(block.label, notes, block.blocks.map((inner) => show(inner, notes)));
    default: return element("p.plain", block.text);
  }
}

function list({ ordered, start, loose, items }, notes) {
  return element(ordered ? "ol" : "ul", ordered && start !== 1 ? { start } : {}, ...items.map(({ task, done, blocks }) => element(task ? "li.task" : "li",
    task && element("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "to do" }),
    ...blocks.map((block) => (block.type === "paragraph" && !loose ? element("span", ...inlines(block.text, notes)) : show(block, notes))))));
}

function table({ header, rows, sides }, notes) {
  const row = (name, cells) => element("tr", ...cells.map((cell, column) => {
    const made = element(name, ...inlines(cell, notes));
    made.style.textAlign = sides[column] || "";
    return made;
  }));
  return element("div.table", { tabindex: 0, role: "region", "aria-label": "Table" },
    element("table", element("thead", row("th", header)), element("tbody", ...rows.map((cells) => row("td", cells)))));
}
