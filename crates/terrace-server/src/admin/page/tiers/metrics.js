// The server's counters and slots, once a second while they are in view.
import { at, element, say, terms } from "../shared/dom.js";
import { percent, size } from "../shared/format.js";
import { get, request } from "../shared/http.js";
import { isShown } from "../shared/layout.js";
import { server, signals } from "../shared/server.js";
import { takeTimes } from "./lanes.js";

const PATIENCE = 5000;

function parse(text) {
  const values = {};
  for (const line of text.split("\n")) {
    const match = /^terrace_([a-z_]+)(\{on="[^}]*\})? (\S+)$/.exec(line);
    if (match) values[match[1] + (match[2] || "")] = Number(match[3]);
  }
  return values;
}

// Sums of each layer, by its number.
function layersOf(text) {
  const found = {};
  for (const line of text.split("\n")) {
    const match = /^terrace_layer_(\w+)\{layer="(\d+)"[^}]*\} (\S+)$/.exec(line);
    if (!match) continue;
    const layer = found[match[2]] ||= {};
    layer[match[1]] = (layer[match[1]] || 0) + Number(match[3]);
  }
  return found;
}

const rate = (now, then, count, seconds = "uptime_seconds") => {
  if (!then) return "";
  const time = now[seconds] - then[seconds];
  return time > 0 ? ((now[count] - then[count]) / time).toFixed(1) : "0";
};

function factsOf(now, then) {
  // Where experts are shown, their gauges have these already.
  const generated = at("experts").hidden ? { "generated tokens/s": rate(now, then, "generated_tokens_total"), "tokens generated": now.generated_tokens_total } : {};
  const facts = {
    "epoch": now.epoch,
    ...generated,
    "prompt tokens/s in prefill": rate(now, then, "prompt_tokens_total", "prefill_seconds_total"),
    "prompt tokens": now.prompt_tokens_total,
    "prompt tokens reused": now.prompt_tokens_reused_total,
    "requests waiting": now.requests_waiting,
  };
  const uses = (now.store_hits_total || 0) + (now.store_misses_total || 0) + (now.store_joined_total || 0);
  if (uses) {
    Object.assign(facts, {
      "weights found in RAM": percent(now.store_hits_total, uses),
      "read from disk": size(now.store_read_bytes_total),
      "waited for disk": now.store_stall_seconds_total.toFixed(1) + " s",
    });
  }
  const [device, cpu] = [now['expert_pairs_total{on="device"}'], now['expert_pairs_total{on="cpu"}']];
  if (device !== undefined) {
    Object.assign(facts, {
      "pairs computed on devices": percent(device, device + cpu),
      "experts copied": now.hot_filled_total + " + " + now.hot_exchanged_total + " exchanged",
    });
  }
  return facts;
}

// The counters of the last time; null if the server did not answer.
export let before = null;
let layersBefore = null, asking = false;

async function refresh() {
  if (asking || !isShown("tiers")) return;
  asking = true;
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    const metrics = await (await request("metrics", { signal })).text(), now = parse(metrics), sums = layersOf(metrics);
    takeTimes(sums, layersBefore);
    layersBefore = sums;
    terms(at("facts"), factsOf(now, before));
    before = now;
    showSlots(await get("slots", { signal }));
  } catch {
    // The server's state says why.
    before = layersBefore = null;
  } finally {
    asking = false;
  }
}

function showSlots(slots) {
  at("slots").replaceChildren(...slots.map((slot) => {
    const row = element("tr");
    for (const value of [slot.id, slot.state, `${slot.held_tokens} of ${slot.n_ctx}`, slot.prompt_tokens, slot.generated_tokens, slot.epoch ?? ""]) {
      row.insertCell().textContent = value;
    }
    row.lastChild.className = "roomy";
    return row;
  }));
}

// Slots and rates are of now: of a server that does not answer, they are not known.
signals.addEventListener("change", () => {
  if (server.state === "up") return;
  before = layersBefore = null;
  at("slots").replaceChildren();
  for (const value of at("facts").querySelectorAll("dd")) say(value, "–");
});
signals.addEventListener("beat", refresh);
addEventListener("layout", refresh);
