// The text of PDF files, page by page, within bounds of time and size.
import { pdf } from "../shared/libraries.js";

const LONGEST_MS = 120_000;

// A reason that is told as it is.
class Bounded extends Error {}

export const isPdf = (bytes) => new TextDecoder("latin1").decode(bytes.subarray(0, 1024)).includes("%PDF-");

// `told` hears how far it is; `wanted` says whether it is still asked for. The bytes are the library's from then on.
export async function textOfPdf(bytes, most, told, wanted) {
  const library = await pdf();
  // Fonts and pictures are not drawn, and code in the file is not run.
  const task = library.getDocument({ data: bytes, isEvalSupported: false, disableFontFace: true, useSystemFonts: false, enableXfa: false, useWorkerFetch: false, isOffscreenCanvasSupported: false, verbosity: 0 });
  let timer = 0;
  // The library lets others have their turn while it reads a page.
  const late = new Promise((_, failed) => { timer = setTimeout(() => failed(new Bounded("takes too long to read.")), LONGEST_MS); });
  try {
    return await Promise.race([read(task, most, told, wanted), late]);
  } catch (error) {
    if (error instanceof Bounded) throw error;
    throw new Error(error?.name === "PasswordException" ? "needs a password." : "is not a PDF file that can be read.");
  } finally {
    clearTimeout(timer);
    task.destroy();
  }
}

async function read(task, most, told, wanted) {
  const file = await task.promise, pages = [];
  for (let number = 1, length = 0; number <= file.numPages && wanted(); number++) {
    told(`page ${number} of ${file.numPages}`);
    const page = await file.getPage(number), text = lines((await page.getTextContent()).items);
    page.cleanup();
    pages.push(text);
    length += text.length;
    if (length > most) throw new Bounded(`has more than ${most.toLocaleString()} characters.`);
  }
  return pages.join("\n\n").trim();
}

const lines = (items) => items.map(({ str = "", hasEOL }) => str + (hasEOL ? "\n" : "")).join("").trim();
