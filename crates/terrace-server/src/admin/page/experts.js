
// The live view: follows the stream of the experts, and steers what is copied.
let cursor = null, last = null, watching = null;

async function watch() {
  watching?.abort();
  if (document.hidden) return;
  const mine = watching = new AbortController();
  while (watching === mine && !mine.signal.aborted) {
    try {
      const since = cursor === null ? "" : "?since=" + cursor;
      const response = await request("/v1/experts/stream" + since, { signal: mine.signal });
      for await (const data of events(response)) take(JSON.parse(data));
    } catch {
      if (mine.signal.aborted) return;
    }
    // The server has ended, or is about to.
    last = null;
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

function take(event) {
  const time = performance.now() / 1000;
  cursor = event.cursor;
  if (event.layers) setLayers(event.layers, !event.whole);
  else if (event.whole) setLayers(layers, false);
  at("experts").hidden = !layers.length;
  if (!layers.length) return;
  cool(time);
  const first = event.whole === true;
  each(event.uses, (index, count) => {
    if (!first) heat[index] += count - uses[index];
    uses[index] = count;
  });
  each(event.places, (index, place) => { places[index] = place; });
  if (last && !first) {
    const since = (name) => (event[name] || 0) - (last[name] || 0);
    addPoint(time, slots() ? [since("pairs_on_devices"), since("pairs")] : [0, 0],
      [since("hits"), since("hits") + since("misses") + since("joined")]);
  }
  layerPairs = event.layer_pairs;
  showGauges(event, time);
  if (at("mode") !== document.activeElement) at("mode").value = event.mode;
  last = { ...event, time };
  redraw();
}

// Draws once before the next frame, however much has changed until then.
let drawing = false;
function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; drawGrid(); drawChart(); describe(); });
}

const slots = () => layers.reduce((sum, layer) => sum + (layer.slots || 0), 0);

function gauge(name, value, note, part, all) {
  const made = element("div", undefined, "gauge");
  made.append(element("small", name), element("b", value));
  if (all > 0) {
    const meter = element("meter");
    Object.assign(meter, { max: all, value: part });
    meter.setAttribute("aria-label", name);
    made.append(meter);
  }
  if (note) made.append(element("small", note));
  return made;
}

let shown = 0, reading = 0, speed = 0;
function showGauges(event, time) {
  if (last && time > last.time) {
    const now = (name) => ((event[name] || 0) - (last[name] || 0)) / (time - last.time);
    reading += (now("read_bytes") - reading) * 0.3;
    speed += (now("generated_tokens") - speed) * 0.3;
  }
  if (time - shown < 0.5) return;
  shown = time;
  const count = (bit) => places.reduce((sum, place) => sum + (place & bit ? 1 : 0), 0);
  const made = [], room = slots(), onDevices = count(DEVICE);
  made.push(gauge("generated", (speed < 0.05 ? 0 : speed.toFixed(1)) + " tokens/s", event.generated_tokens.toLocaleString() + " in all"));
  if (room) {
    const lost = layers.filter((layer) => layer.problem).length;
    made.push(gauge("copies on devices", `${onDevices} of ${room}`, size(event.device_bytes) + (lost ? `; ${lost} layers lost` : ""), onDevices, room));
    made.push(gauge("computed on devices", percent(event.pairs_on_devices, event.pairs), event.exchanged.toLocaleString() + " experts copied"));
  }
  if (event.capacity_bytes) {
    made.push(gauge("slots in RAM", size(event.resident_bytes), "of " + size(event.capacity_bytes), event.resident_bytes, event.capacity_bytes));
    made.push(gauge("read from disk", size(Math.max(0, reading)) + "/s", `${size(event.read_bytes)} in all, waited ${(event.stall_ms / 1000).toFixed(1)} s`));
  }
  made.push(gauge("experts in RAM", `${count(RAM).toLocaleString()} of ${places.length.toLocaleString()}`, `${layers.length} layers`, count(RAM), places.length));
  at("gauges").replaceChildren(...made);
  for (const id of ["apply", "apply-save"]) at(id).disabled = busy || !room;
}

// Buttons. One at a time: each says what it did.
let busy = false;
async function act(what) {
  if (busy) return;
  busy = true;
  for (const button of document.querySelectorAll(".buttons button")) button.disabled = true;
  at("done").className = "";
  at("done").textContent = "…";
  try {
    at("done").textContent = await what();
  } catch (error) {
    at("done").className = "error";
    at("done").textContent = error.message;
  }
  busy = false;
  for (const button of document.querySelectorAll(".buttons button")) button.disabled = false;
}

async function apply(save) {
  const learned = await (await request("/moe-layer-perf")).json();
  const done = await (await post("/moe-hot-cache", save ? { ...learned, save_to_disk: true } : learned)).json();
  const saved = done.saved_to_disk ? ", saved as " + done.path : "";
  return `${done.exchanged} of ${done.candidates} experts copied in ${done.layers_changed} layers${saved}`;
}

at("apply").onclick = () => act(() => apply(false));
at("apply-save").onclick = () => act(() => apply(true));
at("reset").onclick = () => act(async () => {
  await post("/moe-layer-perf", { mode: at("mode").value });
  return "the window begins now";
});
at("mode").onchange = () => act(async () => {
  await post("/moe-layer-perf", { mode: at("mode").value });
  at("mode").blur();
  return at("mode").value === "off" ? "nothing is reported, and nothing exchanged" : "the window begins now";
});
at("save").onclick = () => act(async () => {
  const blob = await (await request("/moe-layer-perf")).blob();
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = (at("model").textContent || "model").replace(/[^\w.-]+/g, "_") + ".learned.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  return link.download + " saved";
});
document.addEventListener("visibilitychange", () => { last = null; watch(); refresh(); });
