// A turn of the conversation on the page: a question, or an answer with what is known of it.
import { element, say, set, terms } from "../shared/dom.js";
import { copyButton, iconButton, textButton } from "../shared/buttons.js";
import { again, answer, ask } from "./answers.js";
import { choose, isLeftOut, parentOf, siblings } from "./conversation.js";
import { details, ending, speed, waiting } from "./facts.js";
import { changedPath, save } from "./library.js";
import { sentFiles } from "./files.js";
import { showMarkdown } from "../markdown/show.js";
import { thumbnails } from "./pictures.js";
import { isRunning } from "./running.js";
import { Calls } from "./tools.js";
import { Thoughts } from "./thoughts.js";

export class Turn {
  constructor(conversation, node) {
    Object.assign(this, { conversation, node });
    const user = node.role === "user";
    this.body = element(user ? "div.bubble" : "div.prose");
    this.branch = element("div.branch");
    this.actions = element("div.actions");
    this.element = element(user ? "article.turn.user" : "article.turn.assistant", { "aria-label": user ? "You" : "Model" });
    if (user) {
      this.note = element("p.note", { hidden: true }, "No response: the model does not see this message.");
      const pictures = node.pictures || [];
      if (pictures.length) this.element.append(element("div.pictures", ...thumbnails(pictures)));
      if (node.files?.length) this.element.append(element("div.files", ...sentFiles(node.files)));
      this.cut = element("div.cut", { hidden: true }, element("span", "The model no longer sees what is above."), textButton("Include it again", () => this.uncut()));
      this.element.prepend(this.cut);
      this.element.append(this.body, this.note, element("footer", this.branch, this.actions));
      this.actions.append(iconButton("edit", "Edit", () => this.edit()), copyButton(() => this.node.text));
      return;
    }
    this.thoughts = new Thoughts();
    this.calls = new Calls((results) => this.conclude(results));
    this.facts = element("span");
    this.more = element("dl.facts");
    this.told = element("details.told", element("summary", this.facts), this.more);
    this.problem = element("div.problem", { hidden: true, role: "alert" }, element("p"), textButton("Try again", () => again(this.conversation, this.node), "again"));
    this.again = iconButton("again", "Answer again", () => again(this.conversation, this.node));
    this.actions.append(copyButton(() => this.node.text), this.again);
    this.element.append(this.thoughts.element, this.body, this.calls.element, this.problem, element("footer", this.branch, this.actions, this.told));
  }

  // Shows the turn as it is now, at its place among those that are shown.
  update(nodes, index) {
    this.showBranch();
    if (this.node.role === "user") this.updateQuestion(nodes, index);
    else this.updateAnswer();
  }

  updateQuestion(nodes, index) {
    if (!this.editing) say(this.body, this.node.text);
    this.cut.hidden = !this.node.cut;
    this.body.hidden = !this.editing && !this.node.text;
    this.note.hidden = index + 2 >= nodes.length || !isLeftOut(nodes, index);
  }

  updateAnswer() {
    const { node } = this, runs = node.state === "running";
    this.element.classList.toggle("running", runs);
    set(this.element, { "aria-busy": String(runs) });
    this.thoughts.update(node);
    showMarkdown(this.body, node.text);
    this.calls.update(node, !runs);
    const facts = [...speed(node), runs ? waiting(node) : ending(node)].filter(Boolean);
    say(this.facts, facts.join(" · "));
    const known = runs ? {} : details(node);
    terms(this.more, known);
    this.told.classList.toggle("closed", !Object.keys(known).length);
    const empty = !runs && !node.text && !node.calls.length && node.state === "done" ? "The answer is empty." : "";
    const problem = node.error || empty;
    this.problem.hidden = !problem;
    say(this.problem.firstChild, problem);
    this.actions.hidden = runs;
  }

  // Where there are several turns in this one's place, one can choose.
  showBranch() {
    const others = siblings(this.conversation, this.node), at = others.indexOf(this.node);
    this.branch.hidden = others.length < 2;
    if (this.branch.hidden || this.branch.shown === `${at}/${others.length}`) return;
    this.branch.shown = `${at}/${others.length}`;
    const to = (index) => {
      choose(this.conversation, others[index]);
      save(this.conversation);
      changedPath(this.conversation);
    };
    const before = iconButton("left", "Previous version", () => to(at - 1)), after = iconButton("right", "Next version", () => to(at + 1));
    before.disabled = at === 0;
    after.disabled = at === others.length - 1;
    this.branch.replaceChildren(before, element("span", `${at + 1} of ${others.length}`), after);
  }

  // Replaces the question by a box in which it can be changed; what is sent becomes another version of it.
  edit() {
    if (this.editing || isRunning(this.conversation)) return;
    this.editing = true;
    const text = element("textarea", { "aria-label": "Edit message", rows: 3 }), begin = this.node.text;
    text.value = begin;
    const close = () => {
      this.editing = false;
      this.element.classList.remove("editing");
      this.body.replaceChildren(this.node.text);
      this.actions.firstChild.focus();
    };
    const send = () => {
      if (!text.value.trim()) return;
      close();
      ask(this.conversation, text.value.trim(), parentOf(this.conversation, this.node), this.node.pictures, this.node.files, { cut: this.node.cut, summaryOf: this.node.summaryOf });
    };
    text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); close(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    const primary = textButton("Send", send);
    primary.classList.add("primary");
    this.body.replaceChildren(text, element("div.row", textButton("Cancel", close), primary));
    this.element.classList.add("editing");
    text.focus();
  }

  uncut() {
    delete this.node.cut;
    save(this.conversation);
    changedPath(this.conversation);
  }

  // The tools' results are known: the model goes on.
  conclude(results) {
    this.node.calls.forEach((call, index) => { call.result = results[index]; });
    answer(this.conversation, this.node);
  }
}
