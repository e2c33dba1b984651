// Follows a growing text while its end is in view, and leaves the reader alone who has scrolled up.
import { at } from "../shared/dom.js";

const box = at("talk"), button = at("to-end"), NEAR = 24;
let following = true, held = false, top = 0;

const isAtEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight <= NEAR;

// Goes to the end, and stays there.
export function toEnd() {
  following = true;
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
  // Upwards only the reader goes.
  else if (box.scrollTop < top - 1) following = false;
  top = box.scrollTop;
  button.hidden = isAtEnd();
}, { passive: true });

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
