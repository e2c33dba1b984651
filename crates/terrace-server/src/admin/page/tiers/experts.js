// The live view: follows the stream of the experts, and steers what is copied.
import { at, element } from "../shared/dom.js";
import { events, get, post, reason, request } from "../shared/http.js";
import { isShown } from "../shared/layout.js";
import { server, signals } from "../shared/server.js";
import { dark } from "../shared/theme.js";
import { cells, cool, setLayers, slots, takeCells } from "./cells.js";
import { addPoint, drawChart } from "./chart.js";
import { showGauges } from "./gauges.js";
import { choose, redraw } from "./grid.js";

let cursor = null, watching = null;
// The last event, with its time; null if the stream was interrupted since.
export let last = null;

// Whether there is someone to see it, and something to be seen.
const isWanted = () => !document.hidden && isShown("tiers") && server.state === "up";

async function watch() {
  watching?.abort();
  watching = null;
  if (!isWanted()) return;
  const mine = watching = new AbortController();
  while (watching === mine && !mine.signal.aborted) {
    try {
      const since = cursor === null ? "" : "?since=" + cursor;
      const response = await request("v1/experts/stream" + since, { signal: mine.signal });
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
  const time = performance.now() / 1000, first = event.whole === true;
  cursor = event.cursor;
  if ((event.layers || first) && setLayers(event.layers || cells.layers, !first)) choose(-1);
  at("experts").hidden = !cells.layers.length;
  if (!cells.layers.length) return;
  cool(time);
  takeCells(event, first);
  if (last && !first) {
    const since = (name) => (event[name] || 0) - (last[name] || 0);
    addPoint(time, slots() ? [since("pairs_on_devices"), since("pairs")] : [0, 0],
      [since("hits"), since("hits") + since("misses") + since("joined")]);
  }
  showGauges(event, last, time);
  for (const id of ["apply", "apply-save"]) at(id).disabled = busy || !slots();
  if (at("mode") !== document.activeElement) at("mode").value = event.mode;
  last = { ...event, time };
  redraw();
  drawChart();
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
    at("done").textContent = reason(error);
  }
  busy = false;
  for (const button of document.querySelectorAll(".buttons button")) button.disabled = false;
}

async function apply(save) {
  const learned = await get("moe-layer-perf");
  const done = await (await post("moe-hot-cache", save ? { ...learned, save_to_disk: true } : learned)).json();
  const saved = done.saved_to_disk ? ", saved as " + done.path : "";
  return `${done.exchanged} of ${done.candidates} experts copied in ${done.layers_changed} layers${saved}`;
}

at("apply").onclick = () => act(() => apply(false));
at("apply-save").onclick = () => act(() => apply(true));
at("reset").onclick = () => act(async () => {
  await post("moe-layer-perf", { mode: at("mode").value });
  return "a new window starts now";
});
at("mode").onchange = () => act(async () => {
  await post("moe-layer-perf", { mode: at("mode").value });
  at("mode").blur();
  return at("mode").value === "off" ? "nothing is reported, and nothing exchanged" : "a new window starts now";
});
at("save").onclick = () => act(async () => {
  const blob = await (await request("moe-layer-perf")).blob();
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = (at("model").textContent || "model").replace(/[^\w.-]+/g, "_") + ".learned.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  return link.download + " saved";
});

// Begins or ends what the page follows, if that is to be another thing than before.
function follow() {
  if (isWanted() === (watching !== null)) return;
  last = null;
  watch();
}
document.addEventListener("visibilitychange", follow);
addEventListener("layout", follow);
signals.addEventListener("change", follow);
dark.addEventListener("change", drawChart);
new ResizeObserver(drawChart).observe(at("frame"));
