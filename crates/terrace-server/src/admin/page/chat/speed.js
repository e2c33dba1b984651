// One number for the speed, in the page's head: that of the last answer in the conversation.
import { at, say } from "../shared/dom.js";
import { rate } from "../shared/format.js";
import { oncePerFrame } from "../shared/frame.js";
import { path } from "./conversation.js";
import { perSecond } from "./facts.js";
import { current, library } from "./library.js";

const draw = oncePerFrame(() => {
  const fast = path(current).filter((node) => node.role === "assistant").map(perSecond).findLast((found) => found > 0) || 0;
  at("speed").hidden = !fast;
  say(at("speed"), fast ? rate(fast) : "");
});

for (const name of ["show", "turn"]) library.addEventListener(name, draw);
