// The plan, and reloads of tensors.
import { at, element, terms } from "../shared/dom.js";
import { size } from "../shared/format.js";
import { get, post, reason } from "../shared/http.js";
import { server, signals } from "../shared/server.js";

// What a layer's weights are, where they are, and the shares of its experts by place.
function planOf(layer, copies) {
  const { experts, home } = layer, parts = [];
  const where = home === "ram" ? "in RAM" : home === "mapped" ? "mapped" : home === "disk" ? "on disk" : "on " + home;
  if (layer.resident || !layer.streamed) parts.push(`${size(layer.resident)} ${where}`);
  if (layer.streamed) parts.push(size(layer.streamed) + " streamed");
  if (!experts) return { weights: parts.join(", "), text: "", shares: [] };
  // Experts of a layer that does not stream are where the layer is.
  const device = experts.on_device / experts.count;
  const shares = [["device", device, "on a device"], ["ram", experts.in_ram, "in RAM"], ["disk", experts.on_disk, "on disk"]];
  const said = shares.filter(([, share]) => share > 0).map(([, share, place]) => `${(share * 100).toFixed(0)} % ${place}`);
  if (copies) said.push(`copies of ${copies} on devices`);
  return { weights: parts.join(", "), text: `${experts.count}: ${said.join(", ") || where}`, shares };
}

// Layers with the same plan are one row.
function rowsOf(layers, slots) {
  const rows = [];
  for (const layer of layers) {
    const of = planOf(layer, slots[layer.layer]), name = layer.layer ?? "head", last = rows[rows.length - 1];
    if (last && last.weights === of.weights && last.text === of.text) last.to = name;
    else rows.push({ from: name, to: name, ...of });
  }
  return rows;
}

function showPlan(plan) {
  const placed = plan.placement, facts = { "plan": placed ? placed.summary : plan.mode };
  if (placed) {
    facts["RAM for weights"] = size(placed.budget) + (placed.auto_budget ? ", chosen" : "");
    if (placed.slots) facts["slots in RAM"] = size(placed.slots);
    facts["context"] = `${plan.context.toLocaleString()} tokens, ${size(plan.context_bytes)}`;
    if (placed.estimate) {
      facts["expected"] = `${placed.estimate.decode_tok_s.toFixed(1)} tokens/s, bound by ${placed.estimate.bound}`;
    }
  }
  if (plan.hot) facts["copies on devices"] = plan.hot.inactive || plan.hot.devices.map((one) =>
    `${one.slots} of ${one.experts} experts in ${one.layers} layers on ${one.device} (${size(one.bytes)})`).join(", ");
  facts["threads"] = plan.threads;
  if (plan.io) facts["reads"] = plan.io + (plan.direct ? ", direct" : ", buffered");
  terms(at("plan-facts"), facts);
  const slots = {};
  for (const copies of placed?.hot || []) slots[copies.layer] = (slots[copies.layer] || 0) + copies.slots;
  at("plan-layers").replaceChildren(...rowsOf(placed?.layers || [], slots).map(({ from, to, weights, text, shares }) => {
    const row = element("tr"), cell = element("td");
    row.insertCell().textContent = from === to ? from : `${from} to ${to}`;
    row.insertCell().textContent = weights;
    if (text) {
      const bar = element("div.share");
      for (const [name, share] of shares) {
        const part = element("span." + name);
        part.style.width = 100 * share + "%";
        bar.append(part);
      }
      cell.append(bar, text);
    }
    row.append(cell);
    return row;
  }));
}

let planned = false;
async function plan() {
  if (planned || !at("plan").open) return;
  planned = true;
  try {
    showPlan((await get("props")).terrace.plan);
  } catch (error) {
    planned = false;
    at("plan-facts").replaceChildren(element("p.error", reason(error)));
  }
}
at("plan").addEventListener("toggle", plan);

// What a reload has replaced.
function replaced({ swapped, cleared, seconds, epoch, unchanged }) {
  const context = cleared ? ", contexts begin again" : "", said = [element("p", swapped.length
    ? `${swapped.length} tensors replaced in ${(seconds * 1000).toFixed(0)} ms: epoch ${epoch}${context}`
    : "nothing has changed in the model’s files")];
  if (unchanged) said.push(element("p", `${unchanged} tensors of changed files have the same bytes`));
  return [...said, ...swapped.slice(0, 100).map((one) => element("p.quiet", `${one.tensor}: ${one.from} → ${one.to}, ${one.state}`))];
}

async function reload() {
  at("reload").disabled = true;
  at("reloaded").replaceChildren(element("p", "…"));
  let said;
  try {
    said = replaced(await (await post("v1/tensors/reload", {})).json());
  } catch (error) {
    const refused = (error.body?.refused || []).slice(0, 100);
    said = [element("p.error", reason(error)), ...refused.map((one) => element("p.quiet", `${one.tensor}: ${one.reason}`))];
  }
  at("reloaded").replaceChildren(...said);
  at("reload").disabled = false;
  again();
}
at("reload").addEventListener("click", reload);

// Asks for the plan again: it may be another one.
function again() {
  planned = false;
  plan();
}
signals.addEventListener("change", () => { if (server.state === "up") again(); });
