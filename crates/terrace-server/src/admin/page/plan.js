
// The plan, and reloads of tensors.
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
  at("plan-facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
    const item = element("div");
    item.append(element("dt", name), element("dd", value));
    return item;
  }));
  const slots = {};
  for (const copies of placed?.hot || []) slots[copies.layer] = (slots[copies.layer] || 0) + copies.slots;
  at("plan-layers").replaceChildren(...rowsOf(placed?.layers || [], slots).map(({ from, to, weights, text, shares }) => {
    const row = element("tr"), cell = element("td");
    row.insertCell().textContent = from === to ? from : `${from} to ${to}`;
    row.insertCell().textContent = weights;
    if (text) {
      const bar = element("div", undefined, "share");
      for (const [name, share] of shares) {
        const part = element("span", undefined, name);
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
    showPlan((await (await request("/props")).json()).terrace.plan);
  } catch (error) {
    planned = false;
    at("plan-facts").replaceChildren(element("p", error.message, "error"));
  }
}
at("plan").ontoggle = plan;

async function reload() {
  at("reload").disabled = true;
  at("reloaded").replaceChildren(element("p", "…"));
  const said = [];
  try {
    const headers = { "Content-Type": "application/json", ...(key ? { Authorization: "Bearer " + key } : {}) };
    const response = await fetch("/v1/tensors/reload", { method: "POST", headers, body: "{}" });
    const report = await response.json();
    if (response.ok) {
      const tensors = report.swapped, context = report.cleared ? ", contexts begin again" : "";
      said.push(element("p", tensors.length
        ? `${tensors.length} tensors replaced in ${(report.seconds * 1000).toFixed(0)} ms: epoch ${report.epoch}${context}`
        : "nothing has changed in the model’s files"));
      if (report.unchanged) said.push(element("p", `${report.unchanged} tensors of changed files have the same bytes`));
      for (const one of tensors.slice(0, 100)) said.push(element("p", `${one.tensor}: ${one.from} → ${one.to}, ${one.state}`, "quiet"));
    } else {
      said.push(element("p", report.error.message, "error"));
      for (const one of (report.refused || []).slice(0, 100)) said.push(element("p", `${one.tensor}: ${one.reason}`, "quiet"));
    }
  } catch (error) {
    said.push(element("p", error.message, "error"));
  }
  at("reloaded").replaceChildren(...said);
  at("reload").disabled = false;
  planned = false;
  plan();
}
at("reload").onclick = reload;
