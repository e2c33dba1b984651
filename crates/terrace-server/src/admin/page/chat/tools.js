// Tools that the model calls: what it calls them with, and what they answer, which the user fills in.
import { element, say } from "../shared/dom.js";
import { icon } from "../shared/icons.js";
import { textButton } from "../shared/buttons.js";

export class Calls {
  // `conclude` takes the results of all calls.
  constructor(conclude) {
    this.list = element("div");
    this.send = textButton("Send results", () => conclude(this.rows.map((row) => row.result.value)));
    this.send.classList.add("primary");
    this.element = element("div.calls", { hidden: true }, this.list, element("div.row", this.send));
    this.rows = [];
  }

  update({ calls }, complete) {
    this.element.hidden = !calls.length;
    while (this.rows.length < calls.length) this.rows.push(this.add());
    calls.forEach((call, index) => {
      const row = this.rows[index], known = call.result !== undefined;
      say(row.name, call.name);
      say(row.input, pretty(call.input));
      row.answer.hidden = !complete;
      row.result.readOnly = known;
      if (known) row.result.value = call.result;
    });
    this.send.parentElement.hidden = !complete || calls.every((call) => call.result !== undefined);
  }

  add() {
    const name = element("code"), input = element("code"), result = element("textarea", { rows: 2 });
    const answer = element("label", { hidden: true }, "Result", result);
    const box = element("section.call", { "aria-label": "Tool call" }, element("div.call-head", icon("tool"), "Calls ", name), element("pre", { tabindex: 0, "aria-label": "Arguments" }, input), answer);
    this.list.append(box);
    return { name, input, result, answer };
  }
}

// Arguments are JSON once they are complete.
function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
