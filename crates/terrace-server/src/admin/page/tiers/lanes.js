// What each side did, layer after layer, on a time axis: the CPU with its waits, and devices beside it.
import { at } from "../shared/dom.js";
import { colour, dark } from "../shared/theme.js";

const PARTS = [["cpu", "computing"], ["stall", "waiting for disk"], ["wait", "waiting for a device"], ["device", "device"]];
export let times = [];
let pointed = -1;

// Takes the layers' sums of seconds, now and a second ago. Without work in between, the last picture stays.
export function takeTimes(now, then) {
  if (!then) return;
  const made = [];
  for (const number of Object.keys(now).map(Number).sort((a, b) => a - b)) {
    const since = (name) => Math.max(0, (now[number][name] || 0) - (then[number]?.[name] || 0));
    const stall = since("stall_seconds_total"), lane = since("cpu_seconds_total");
    // With copies, the CPU's part includes its waits for disk.
    const cpu = lane > 0 ? Math.max(0, lane - stall) : since("expert_seconds_total");
    const layer = { number, cpu, stall, wait: since("hot_wait_seconds_total"), device: since("hot_seconds_total") };
    if (cpu + stall + layer.device > 0) made.push(layer);
  }
  if (made.length) { times = made; drawLanes(); }
}

const spanOf = (layer) => Math.max(layer.cpu + layer.stall + layer.wait, layer.device);

function drawLanes() {
  at("lanes-figure").hidden = !times.length;
  if (!times.length) return;
  const canvas = at("lanes"), scale = devicePixelRatio, box = canvas.getBoundingClientRect();
  const devices = times.some((layer) => layer.device > 0), rows = devices ? 2 : 1;
  const high = 26 * rows + 22;
  canvas.style.height = high + "px";
  const [width, height] = [Math.round(box.width * scale), Math.round(high * scale)];
  if (!width) return;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const draw = canvas.getContext("2d");
  draw.clearRect(0, 0, width, height);
  draw.font = `${11 * scale}px system-ui, sans-serif`;
  const left = 52 * scale, all = times.reduce((sum, layer) => sum + spanOf(layer), 0);
  const x = (time) => left + time / all * (width - left);
  draw.fillStyle = colour("--quiet");
  draw.textAlign = "left";
  draw.fillText("CPU", 0, 16 * scale);
  if (devices) draw.fillText("devices", 0, 42 * scale);
  let time = 0;
  times.forEach((layer, index) => {
    const bar = (row, from, part, name) => {
      draw.fillStyle = colour(name);
      if (part > 0) draw.fillRect(x(from), (row * 26 + 4) * scale, Math.max(scale / 2, x(from + part) - x(from)), 16 * scale);
    };
    if (index === pointed) { draw.fillStyle = colour("--line"); draw.fillRect(x(time), 0, x(time + spanOf(layer)) - x(time), rows * 26 * scale); }
    bar(0, time, layer.cpu, "--ram");
    bar(0, time + layer.cpu, layer.stall, "--disk");
    bar(0, time + layer.cpu + layer.stall, layer.wait, "--wait");
    bar(1, time, layer.device, "--device");
    const [from, to] = [x(time), x(time + spanOf(layer))];
    draw.fillStyle = colour("--panel");
    draw.fillRect(to - scale, 0, scale, rows * 26 * scale);
    draw.fillStyle = colour("--quiet");
    draw.textAlign = "center";
    if (to - from > 18 * scale) draw.fillText(layer.number, (from + to) / 2, (rows * 26 + 10) * scale);
    time += spanOf(layer);
  });
  draw.textAlign = "left";
  draw.fillText("layer", 0, (rows * 26 + 10) * scale);
}

function tellLane() {
  const layer = times[pointed];
  const ms = (seconds) => (seconds * 1000).toFixed(1) + " ms";
  const parts = layer ? PARTS.filter(([name]) => layer[name] > 0).map(([name, what]) => `${what} ${ms(layer[name])}`) : [];
  at("lane-readout").textContent = layer ? `layer ${layer.number}: ${parts.join(", ")}` : "";
}

at("lanes").onpointermove = (event) => {
  const box = at("lanes").getBoundingClientRect(), all = times.reduce((sum, layer) => sum + spanOf(layer), 0);
  let time = (event.clientX - box.left - 52) / (box.width - 52) * all;
  pointed = times.findIndex((layer) => (time -= spanOf(layer)) < 0);
  drawLanes(); tellLane();
};
at("lanes").onpointerleave = () => { pointed = -1; drawLanes(); tellLane(); };
at("lanes").onkeydown = (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
  if (!step || !times.length) return;
  event.preventDefault();
  pointed = Math.max(0, Math.min(times.length - 1, pointed + step));
  drawLanes(); tellLane();
};
new ResizeObserver(drawLanes).observe(at("lanes-figure"));
dark.addEventListener("change", drawLanes);
