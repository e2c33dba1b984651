// Files that go with a message as text: read in the page, counted by the server.
import { at, element } from "../shared/dom.js";
import { iconButton } from "../shared/buttons.js";
import { count } from "../shared/format.js";
import { post } from "../shared/http.js";
import { icon } from "../shared/icons.js";
import { server } from "../shared/server.js";
import { notice } from "./notice.js";
import { isPdf, textOfPdf } from "./pdf.js";

const tray = at("files"), LARGEST = 32 * 2 ** 20;
// More text than the largest contexts hold.
const MOST_TEXT = 4_000_000;
let files = [], changed = () => {};

export const hasFiles = () => files.length > 0;
export const contextSize = () => server.props?.default_generation_settings?.n_ctx || 0;
export const tokensOfFiles = () => files.reduce((sum, file) => sum + (file.tokens || 0), 0);

// Why the files cannot be sent; empty if they can.
export const problemOfFiles = () => (files.some((file) => file.text === null) ? "The files are still being read." : tooMany());

function tooMany() {
  const all = contextSize(), tokens = tokensOfFiles();
  return all && tokens >= all ? `The files have ${tokens.toLocaleString()} tokens, and the context holds ${all.toLocaleString()}. Remove one, or use a part of it.` : "";
}

// The files of the message that is sent now.
export function takeFiles() {
  const taken = files.map(({ name, text, tokens }) => ({ name, text, tokens }));
  files = [];
  draw();
  return taken;
}

export const onFiles = (done) => { changed = done; };

// What the model is told of files.
export const asText = (files) => files.map(({ name, text }) => `<file name="${name.replace(/["\n<>]/g, "_")}">\n${text.trimEnd()}\n</file>\n\n`).join("");

// Files that were sent; their text is made when it is opened.
export const sentFiles = (files) => files.map(({ name, text, tokens }) => {
  const body = element("pre", { tabindex: 0, "aria-label": "Text of " + name });
  const box = element("details.file", element("summary", icon("file"), element("span.name", name), tokens !== null && element("small", count(tokens, "token"))), body);
  box.addEventListener("toggle", () => { body.textContent = box.open ? text : ""; });
  return box;
});

function draw() {
  tray.hidden = !files.length;
  tray.replaceChildren(...files.map((file) => {
    const told = file.text === null ? file.state : file.tokens === null ? "tokens not known" : count(file.tokens, "token");
    const wide = contextSize() > 0 && file.tokens >= contextSize();
    return element(wide ? "span.file.error" : "span.file", icon("file"), element("span.name", file.name), element("small", told),
      iconButton("close", "Remove " + file.name, () => { files = files.filter((other) => other !== file); draw(); changed(); }));
  }));
}

export async function addFiles(given) {
  for (const one of given) {
    const file = { name: one.name || "text.txt", text: null, tokens: null, state: "reading" };
    files.push(file);
    draw();
    changed();
    try {
      file.text = await read(one, file);
      file.tokens = await tokensOf(file.text);
    } catch (error) {
      files = files.filter((other) => other !== file);
      notice(`“${file.name}” ${error.message}`, { error: true });
    }
    draw();
    changed();
    if (files.includes(file) && tooMany()) notice(tooMany(), { error: true });
  }
}

// Without an answer of the server it can be sent all the same.
async function tokensOf(text) {
  try {
    return (await (await post("tokenize", { content: text, parse_special: false })).json()).tokens.length;
  } catch {
    return null;
  }
}

async function read(one, file) {
  if (one.size > LARGEST) throw new Error(`is larger than ${LARGEST / 2 ** 20} MiB.`);
  const bytes = new Uint8Array(await one.arrayBuffer());
  const told = (state) => { file.state = state; draw(); }, paged = isPdf(bytes);
  const text = paged ? await textOfPdf(bytes, MOST_TEXT, told, () => files.includes(file)) : decoded(bytes);
  if (text === null) throw new Error("is neither text nor PDF.");
  if (!text.trim()) throw new Error(paged ? "has no text: its pages may be pictures." : "is empty.");
  if (text.length > MOST_TEXT) throw new Error(`has more than ${MOST_TEXT.toLocaleString()} characters.`);
  return text;
}

// UTF-8, UTF-16 with its mark, or one byte for each letter; null if it is no text.
function decoded(bytes) {
  const mark = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : null;
  if (mark) return new TextDecoder(mark).decode(bytes);
  if (bytes.subarray(0, 100_000).some((byte) => byte < 9 || (byte > 13 && byte < 27))) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes).replaceAll("\r\n", "\n");
  } catch {
    return new TextDecoder("windows-1252").decode(bytes).replaceAll("\r\n", "\n");
  }
}
