
// The plan, and reloads of tensors.
const HOMES = { ram: "in RAM", mapped: "mapped", disk: "on disk" };

// Layers with the same plan are one row.
function rowsOf(layers, slots) {
  const rows = [];
  for (const layer of layers) {
    const experts = layer.experts, copies = slots[layer.layer] || 0;
    const share = (part) => (experts && part > 0 ? (part * 100).toFixed(0) + " %" : "");
    const cells = [HOMES[layer.home] || layer.home, size(layer.resident), layer.streamed ? size(layer.streamed) : "",
      experts ? experts.count : "", experts ? share(experts.on_device / experts.count) : "", copies || "",
      experts ? share(experts.in_ram) : "", experts ? share(experts.on_disk) : ""];
    const name = layer.layer ?? "head", last = rows[rows.length - 1];
    if (last && last.cells.join("|") === cells.join("|")) last.to = name;
    else rows.push({ from: name, to: name, cells });
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
  for (const copies of placed?.hot || []) slots[copies.layer] = copies.slots;
  at("plan-layers").replaceChildren(...rowsOf(placed?.layers || [], slots).map(({ from, to, cells }) => {
    const row = element("tr");
    row.insertCell().textContent = from === to ? from : `${from} to ${to}`;
    for (const cell of cells) row.insertCell().textContent = cell;
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
