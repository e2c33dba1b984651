// Markdown's blocks, line by line. A text is read once for each level of quotes and lists, of which there are a
// few at most: whatever a model writes, the time grows with its length alone.

const DEEPEST = 12;
const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/, RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/, ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(?=\S)|[ \t]*$)/, QUOTE = /^ {0,3}> ?/;
const NOTE = /^ {0,3}\[\^([^\]\s]{1,50})\]:[ \t]*/;
const TASK = /^\[([ xX])\][ \t]+/, CELL = /^:?-+:?$/;

const isBlank = (line) => line.trim() === "";
const indent = (line) => line.length - line.trimStart().length;

// Blocks with their source, to see which ones are the same as before.
export function blocksOf(text) {
  return read(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), 0);
}

function read(lines, depth) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) { at++; continue; }
    const [block, next] = (depth > DEEPEST ? plain : readBlock)(lines, at, depth);
    block.raw = lines.slice(at, next).join("\n");
    blocks.push(block);
    at = next;
  }
  return blocks;
}

const plain = (lines, at) => [{ type: "plain", text: lines.slice(at).join("\n") }, lines.length];

function readBlock(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return fence(lines, at);
  if (HEADING.test(line)) return [heading(line), at + 1];
  if (RULE.test(line)) return [{ type: "rule" }, at + 1];
  if (QUOTE.test(line)) return quote(lines, at, depth);
  if (ITEM.test(line)) return list(lines, at, depth);
  if (depth === 0 && NOTE.test(line)) return note(lines, at);
  if (isTable(lines, at)) return table(lines, at);
  if (/^ {0,3}(?:\\\[|\$\$)/.test(line)) return formula(lines, at) || paragraph(lines, at);
  if (indent(line) >= 4) return indented(lines, at);
  return paragraph(lines, at);
}

// Until a fence of the same kind, or the end: a block that is still being written is one already.
function fence(lines, at) {
  const [, before, marks, info] = FENCE.exec(lines[at]), inside = [];
  let next = at + 1;
  for (; next < lines.length; next++) {
    const end = lines[next].trim();
    if (end.length >= marks.length && end[0] === marks[0] && indent(lines[next]) < 4 && end === marks[0].repeat(end.length)) { next++; break; }
    inside.push(lines[next].slice(Math.min(before.length, indent(lines[next]))));
  }
  const language = info.trim().split(" ")[0], text = inside.join("\n");
  return [language === "math" ? { type: "formula", text } : { type: "code", language, text }, next];
}

// A footnote: its first line, what follows it at once, and what is indented.
function note(lines, at) {
  const [whole, label] = NOTE.exec(lines[at]), inside = [lines[at].slice(whole.length)];
  let next = at + 1;
  for (let blank = false; next < lines.length; next++) {
    const line = lines[next];
    if (isBlank(line)) { blank = true; inside.push(""); continue; }
    if (NOTE.test(line) || (indent(line) < 2 && (blank || interrupts(line)))) break;
    inside.push(line.slice(Math.min(4, indent(line))));
    blank = false;
  }
  return [{ type: "note", label, blocks: read(inside, 1) }, next];
}

function heading(line) {
  const [, marks, text = ""] = HEADING.exec(line), words = text.trim().split(" ");
  if (/^#+$/.test(words.at(-1))) words.pop();
  return { type: "heading", level: marks.length, text: words.join(" ") };
}

function quote(lines, at, depth) {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next])) next++;
  return [{ type: "quote", blocks: read(lines.slice(at, next).map((line) => line.replace(QUOTE, "")), depth + 1) }, next];
}

// What begins another block in the middle of a paragraph. Numbers do so only from 1 on: years begin lines, too.
const interrupts = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
  (ITEM.test(line) && /^ {0,3}(?:[-*+]|1[.)]) +\S/.test(line));

const kindOf = (mark) => mark.at(-1);

function list(lines, at, depth) {
  const [, , first] = ITEM.exec(lines[at]), items = [];
  let next = at, loose = false;
  while (next < lines.length) {
    const found = ITEM.exec(lines[next]);
    if (!found || kindOf(found[2]) !== kindOf(first) || RULE.test(lines[next])) break;
    const width = found[1].length + found[2].length + Math.min(found[3]?.length || 1, 4), inside = [lines[next].slice(width)];
    next++;
    for (let blank = false; next < lines.length; next++) {
      const line = lines[next];
      if (isBlank(line)) { blank = true; inside.push(""); continue; }
      const deep = indent(line);
      // Models indent by two where three would be right.
      if (deep >= width || (deep >= 2 && ITEM.test(line.slice(2)))) inside.push(line.slice(Math.min(deep, width)));
      else if (blank || ITEM.test(line) || interrupts(line)) break;
      else inside.push(line);
      if (blank) loose = true;
      blank = false;
    }
    const between = inside.length > 1 && isBlank(inside.at(-1));
    const other = next < lines.length ? ITEM.exec(lines[next]) : null;
    if (between && other && kindOf(other[2]) === kindOf(first)) loose = true;
    items.push(item(inside, depth));
  }
  const ordered = /\d/.test(first);
  return [{ type: "list", ordered, start: ordered ? parseInt(first, 10) : 1, loose, items }, next];
}

function item(lines, depth) {
  const task = TASK.exec(lines[0]);
  if (task) lines[0] = lines[0].slice(task[0].length);
  return { task: task !== null, done: task !== null && task[1] !== " ", blocks: read(lines, depth + 1) };
}

// Cells of a row; `\|` is no border.
function cells(line) {
  const row = line.trim().replaceAll("\\|", "\u0000").split("|").map((cell) => cell.trim().replaceAll("\u0000", "|"));
  if (row[0] === "") row.shift();
  if (row.at(-1) === "") row.pop();
  return row;
}

const isTable = (lines, at) => {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-") || !/^[\s|:-]+$/.test(lines[at + 1])) return false;
  const borders = cells(lines[at + 1]);
  return borders.every((cell) => CELL.test(cell)) && borders.length === cells(lines[at]).length;
};

function table(lines, at) {
  const side = (cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : cell.startsWith(":") ? "left" : "");
  const header = cells(lines[at]), rows = [];
  let next = at + 2;
  for (; next < lines.length && !isBlank(lines[next]) && !interrupts(lines[next]); next++) {
    const row = cells(lines[next]);
    rows.push(header.map((_, column) => row[column] ?? ""));
  }
  return [{ type: "table", header, rows, sides: cells(lines[at + 1]).map(side) }, next];
}

// A formula of its own; null if it does not end.
function formula(lines, at) {
  const first = lines[at].trim(), end = first.startsWith("$$") ? "$$" : "\\]";
  let text = first.slice(2);
  for (let next = at; ; text += "\n" + lines[next]) {
    const found = text.indexOf(end, text.length - (next === at ? text.length : lines[next].length));
    if (found >= 0) return text.slice(found + 2).trim() ? null : [{ type: "formula", text: text.slice(0, found).trim() }, next + 1];
    if (++next >= lines.length || isBlank(lines[next]) || next - at > 50) return null;
  }
}

function indented(lines, at) {
  let next = at;
  while (next < lines.length && (isBlank(lines[next]) || indent(lines[next]) >= 4)) next++;
  while (isBlank(lines[next - 1])) next--;
  return [{ type: "code", language: "", text: lines.slice(at, next).map((line) => line.slice(4)).join("\n") }, next];
}

function paragraph(lines, at) {
  let next = at + 1;
  for (; next < lines.length && !isBlank(lines[next]); next++) {
    if (/^ {0,3}=+\s*$/.test(lines[next])) return [{ type: "heading", level: 1, text: lines.slice(at, next).join("\n").trim() }, next + 1];
    if (interrupts(lines[next]) || isTable(lines, next)) break;
  }
  return [{ type: "paragraph", text: lines.slice(at, next).map((line) => line.trimStart()).join("\n").trimEnd() }, next];
}
