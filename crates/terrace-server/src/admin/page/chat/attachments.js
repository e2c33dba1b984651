// What is chosen, pasted or dropped: pictures where the model reads them, and files whose text it reads.
import { at } from "../shared/dom.js";
import { server } from "../shared/server.js";
import { addFiles } from "./files.js";
import { notice } from "./notice.js";
import { addPictures } from "./pictures.js";

const file = at("file"), room = at("chat");
// SVG is text as well.
const isPicture = (one) => one.type.startsWith("image/") && one.type !== "image/svg+xml";

function take(files) {
  const pictures = files.filter(isPicture), others = files.filter((one) => !isPicture(one));
  if (pictures.length) {
    if (server.props?.modalities?.vision) addPictures(pictures);
    else notice("This model does not accept images.", { error: true });
  }
  if (others.length) addFiles(others);
  at("text").focus();
}

at("attach").addEventListener("click", () => file.click());
file.addEventListener("change", () => { take([...file.files]); file.value = ""; });
at("ask").addEventListener("paste", (event) => {
  const found = [...(event.clipboardData?.files || [])];
  if (found.length) { event.preventDefault(); take(found); }
});

// Files may be dropped anywhere on the chat. A browser would leave the page for one that is dropped beside it.
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
const mark = (on) => room.classList.toggle("dropping", on);
addEventListener("dragover", (event) => { if (hasFiles(event)) { event.preventDefault(); mark(true); } });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) mark(false); });
addEventListener("drop", (event) => {
  mark(false);
  if (!hasFiles(event)) return;
  event.preventDefault();
  take([...event.dataTransfer.files]);
});
