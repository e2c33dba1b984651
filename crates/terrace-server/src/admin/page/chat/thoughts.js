// What the model thought before it answered: folded, but for the words that it is at.
import { element, say } from "../shared/dom.js";
import { duration } from "../shared/format.js";

export class Thoughts {
  constructor() {
    this.title = element("span");
    this.body = element("div.thoughts-text");
    this.element = element("details.thoughts", { hidden: true }, element("summary", this.title), this.body);
  }

  update({ thoughts, state, text, calls, facts }) {
    this.element.hidden = !thoughts;
    if (!thoughts) return;
    const thinks = state === "running" && !text && !calls.length;
    const time = facts?.thought !== undefined && facts.first !== undefined ? " for " + duration(facts.thought - facts.first) : "";
    say(this.title, thinks ? "Thinking…" : "Thought" + time);
    this.element.classList.toggle("thinking", thinks);
    const trimmed = thoughts.trim(), known = this.body.textContent;
    if (known && trimmed.startsWith(known)) this.body.firstChild.appendData(trimmed.slice(known.length));
    else say(this.body, trimmed);
  }
}
