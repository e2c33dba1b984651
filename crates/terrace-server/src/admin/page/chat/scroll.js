// Follows a growing text while its end is in view, and leaves the reader alone who has scrolled up.
import { at } from "../shared/dom.js";

const box = at("talk"), button = at("to-end"), NEAR = 24;
// For so long (in ms), what scrolls is the reader's doing.
const AWHILE = 1000;
let following = true, held = false, top = 0, acted = -AWHILE;

const isAtEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight <= NEAR;

// Goes to the end, and stays there.
export function toEnd() {
  following = true;
  acted = -AWHILE;
  settle();
}

// Whether the reader sees what comes.
export const isFollowing = () => following;

// To be called after the text has grown.
export function settle() {
  if (following && !held) box.scrollTop = box.scrollHeight;
  top = box.scrollTop;
  button.hidden = isAtEnd();
}

box.addEventListener("scroll", () => {
  if (isAtEnd()) following = true;
  // Upwards goes the reader, or a browser whose page has less to scroll for a moment.
  else if (box.scrollTop < top - 1 && (held || performance.now() < acted + AWHILE)) following = false;
  top = box.scrollTop;
  button.hidden = isAtEnd();
}, { passive: true });

for (const act of ["wheel", "touchmove", "pointerdown", "keydown"]) box.addEventListener(act, () => { acted = performance.now(); }, { passive: true });
// Who searches in the page is led anywhere.
addEventListener("keydown", (event) => { if (event.key === "F3" || ((event.ctrlKey || event.metaKey) && "fg".includes(event.key))) acted = Infinity; });

// Text may grow before the event of a scroll comes, and would take the reader back.
box.addEventListener("wheel", (event) => { if (event.deltaY < 0) following = false; }, { passive: true });
box.addEventListener("touchmove", () => { following = isAtEnd(); }, { passive: true });
box.addEventListener("keydown", (event) => { if (["PageUp", "Home", "ArrowUp"].includes(event.key)) following = false; });
// The scroll bar, and a selection that is drawn.
box.addEventListener("pointerdown", () => { held = true; });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { held = false; });

button.addEventListener("click", () => { toEnd(); at("text").focus(); });
new ResizeObserver(settle).observe(box);
new ResizeObserver(settle).observe(at("thread"));
