// What is shown where nothing was said yet.
import { element } from "../shared/dom.js";
import { server } from "../shared/server.js";
import { size } from "../shared/format.js";

export function welcome() {
  const { model, props, state } = server;
  const box = element("div.welcome", element("img", { src: "page/icon.svg", alt: "", width: 48, height: 48 }));
  box.append(element("h2", model ? "Chat with " + model : "Chat"));
  if (props) {
    const plan = props.terrace?.plan, context = props.default_generation_settings?.n_ctx;
    const facts = [context && `${context.toLocaleString()} tokens of context`, plan?.mode];
    if (plan?.placement?.budget) facts.push(size(plan.placement.budget) + " of RAM for weights");
    box.append(element("p", facts.filter(Boolean).join(" · ")));
    if (!props.chat_template) box.append(element("p.warn", "This model has no chat template: it may not know how to answer."));
  } else if (state === "loading") {
    box.append(element("p", "The model is being loaded."));
  }
  box.append(element("p.hint", "Conversations stay in this browser."));
  return box;
}
