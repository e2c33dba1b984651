// Pictures that go with a message, for models that read images.
import { at, element } from "../shared/dom.js";
import { iconButton } from "../shared/buttons.js";
import { notice } from "./notice.js";

const tray = at("pictures");
// Each request carries all pictures of its conversation, and servers bound requests: models see no more than this.
const SIDE = 1600, SMALL = 300_000;
let urls = [], changed = () => {};

export const hasPictures = () => urls.length > 0;

// The pictures of the message that is sent now.
export function takePictures() {
  const taken = urls;
  urls = [];
  draw();
  return taken;
}

export const onPictures = (done) => { changed = done; };

// Small pictures, that look like what is sent.
export const thumbnails = (pictures) => pictures.map((url, index) => element("img", { src: url, alt: `Picture ${index + 1}` }));

function draw() {
  const remove = (index) => { urls.splice(index, 1); draw(); changed(); };
  tray.hidden = !urls.length;
  tray.replaceChildren(...thumbnails(urls).map((image, index) => element("span", image, iconButton("close", `Remove picture ${index + 1}`, () => remove(index)))));
}

export async function addPictures(files) {
  for (const one of files) {
    try {
      urls.push(await read(one));
    } catch {
      notice(`“${one.name}” is not a picture that this browser can read.`, { error: true });
    }
  }
  draw();
  changed();
}

// A data URL: of the file itself, or, where that is large, of the picture drawn smaller.
async function read(one) {
  const picture = await createImageBitmap(one);
  if (one.size <= SMALL && ["image/png", "image/jpeg"].includes(one.type)) return asUrl(one);
  const scale = Math.min(1, SIDE / Math.max(picture.width, picture.height)), canvas = element("canvas");
  [canvas.width, canvas.height] = [picture.width, picture.height].map((length) => Math.max(1, Math.round(length * scale)));
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.92);
}

const asUrl = (one) => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.addEventListener("load", () => done(reader.result));
  reader.addEventListener("error", failed);
  reader.readAsDataURL(one);
});
