// The grid: a row for each layer, a cell for each expert, one pixel each, enlarged.
import { at, say } from "../shared/dom.js";
import { percent } from "../shared/format.js";
import { oncePerFrame } from "../shared/frame.js";
import { colour, dark } from "../shared/theme.js";
import { cells, DEVICE, RAM, READING, slots } from "./cells.js";

// Beside the cells, in CSS pixels: the layers' numbers, and the shares that devices compute.
const BEFORE = 30, BESIDE = 44;
let chosen = -1;
const small = document.createElement("canvas");

// Colours of the theme as pixels: by place, from unused to the most used of the layer.
let pixels = null;
function palette() {
  if (pixels) return pixels;
  const rgb = (name) => {
    const text = colour(name).slice(1), full = text.length === 3 ? [...text].map((c) => c + c).join("") : text;
    return [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16));
  };
  const pixel = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  const ground = rgb("--panel");
  pixels = Uint32Array.from(["--disk", "--ram", "--device", "--reading"].flatMap((name) => {
    const full = rgb(name);
    return Array.from({ length: 64 }, (_, level) => {
      const share = 0.16 + 0.84 * level / 63;
      return pixel(full.map((value, i) => Math.round(ground[i] + (value - ground[i]) * share)));
    });
  }));
  return pixels;
}
dark.addEventListener("change", () => { pixels = null; redraw(); });

// Draws a pixel for each expert; cells that no expert has stay clear.
let image = null;
function drawCells() {
  const { layers, heat, places, columns, startOf } = cells, rows = layers.length, all = palette(), draw = small.getContext("2d");
  if (small.width !== columns || small.height !== rows || !image) {
    Object.assign(small, { width: columns, height: rows });
    image = draw.createImageData(columns, rows);
  }
  const out = new Uint32Array(image.data.buffer);
  out.fill(0);
  for (let row = 0; row < rows; row++) {
    const start = startOf[row], experts = layers[row].experts;
    let most = 1;
    for (let i = start; i < start + experts; i++) if (heat[i] > most) most = heat[i];
    const scale = 64 / Math.log1p(most);
    for (let column = 0, i = start; column < experts; column++, i++) {
      const place = places[i], kind = place & DEVICE ? 2 : place & RAM ? 1 : place & READING ? 3 : 0;
      out[row * columns + column] = all[64 * kind + Math.min(63, Math.floor(scale * Math.log1p(heat[i])))];
    }
  }
  draw.putImageData(image, 0, 0);
}

function drawGrid() {
  const { layers, columns, rowOf, startOf, pairs: layerPairs } = cells, canvas = at("grid"), rows = layers.length;
  if (!rows || !at("frame").clientWidth) return;
  drawCells();
  const scale = devicePixelRatio, width = at("frame").clientWidth, room = slots();
  at("beside").textContent = room ? "; beside it the share that its device computes" : "";
  const high = Math.max(5, Math.min(18, Math.round(340 / rows))), height = rows * high;
  canvas.style.height = height + "px";
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const draw = canvas.getContext("2d"), [left, right] = sides(w, scale), each = (right - left) / columns;
  draw.clearRect(0, 0, w, h);
  draw.imageSmoothingEnabled = false;
  draw.drawImage(small, left, 0, right - left, h);
  // Lines between cells, where there is room for them.
  const gap = Math.round(scale);
  draw.fillStyle = colour("--panel");
  if (each >= 5 * scale) for (let c = 1; c < columns; c++) draw.fillRect(Math.round(left + c * each), 0, gap, h);
  if (high >= 6) for (let r = 1; r < rows; r++) draw.fillRect(left, Math.round(r * h / rows), right - left, gap);
  // Numbers as far apart as their height needs.
  draw.font = `${10 * scale}px system-ui, sans-serif`;
  draw.textAlign = "right";
  draw.textBaseline = "middle";
  const skip = [1, 2, 5, 10, 20, 50, 100, 200].find((rows) => rows * high >= 12) || 500;
  layers.forEach((layer, row) => {
    const middle = Math.max((row + 0.5) * h / rows, 6 * scale);
    draw.fillStyle = colour("--quiet");
    if (row % skip === 0) draw.fillText(layer.layer, left - 6 * scale, middle);
    if (!layer.slots) return;
    const [pairs, hot] = [layerPairs[2 * row] || 0, layerPairs[2 * row + 1] || 0];
    const [from, long] = [right + 6 * scale, w - right - 6 * scale], top = Math.round(row * h / rows) + gap;
    const thick = Math.max(scale, Math.floor(h / rows) - 2 * gap);
    draw.fillStyle = colour("--line");
    draw.fillRect(from, top, long, thick);
    draw.fillStyle = colour(layer.problem ? "--error" : "--device");
    draw.fillRect(from, top, layer.problem ? long : long * hot / Math.max(1, pairs), thick);
  });
  if (chosen >= 0) {
    const row = rowOf[chosen], column = chosen - startOf[row];
    draw.strokeStyle = colour("--text");
    draw.lineWidth = 2 * scale;
    draw.strokeRect(left + column * each, row * h / rows, Math.max(each, 2 * scale), h / rows);
  }
}

// Draws once before the next frame, however much has changed until then.
export const redraw = oncePerFrame(() => { drawGrid(); describe(); });

// Where cells begin and end.
const sides = (width, scale) => [BEFORE * scale, width - (slots() ? BESIDE * scale : 0)];

export function choose(index) {
  chosen = index;
  redraw();
}

// Says where the chosen expert is, and how much it is used.
function describe() {
  if (chosen < 0) return say(at("readout"), "");
  const { layers, uses, places, rowOf, startOf, pairs: layerPairs } = cells, row = rowOf[chosen], layer = layers[row], place = places[chosen];
  const where = [];
  if (place & DEVICE) where.push("on " + (layer.device || "its device"));
  if (place & RAM) where.push("in RAM");
  if (place & READING) where.push("being read");
  if (!where.length) where.push("on disk");
  let all = 0;
  for (let i = startOf[row]; i < startOf[row] + layer.experts; i++) all += uses[i];
  const text = `layer ${layer.layer}, expert ${chosen - startOf[row]}: ${where.join(", ")}; ` +
    `${uses[chosen].toLocaleString()} uses, ${percent(uses[chosen], all)} of its layer` +
    (layer.slots ? `; its device computed ${percent(layerPairs[2 * row + 1], layerPairs[2 * row])} of the layer` : "") +
    (layer.problem ? `; ${layer.problem}` : "");
  say(at("readout"), text);
}

function cellAt(event) {
  const { layers, columns, startOf } = cells;
  const box = at("grid").getBoundingClientRect();
  const row = Math.min(layers.length - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * layers.length)));
  const [left, right] = sides(box.width, 1);
  const column = Math.floor((event.clientX - box.left - left) / (right - left) * columns);
  return startOf[row] + Math.max(0, Math.min(layers[row].experts - 1, column));
}

at("grid").onpointermove = (event) => { if (cells.layers.length) choose(cellAt(event)); };
at("grid").onpointerdown = (event) => { if (cells.layers.length) choose(cellAt(event)); };
at("grid").onkeydown = (event) => {
  const { layers, rowOf, startOf } = cells;
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9] }[event.key];
  if (!step || !layers.length) return;
  event.preventDefault();
  const now = Math.max(0, chosen), row = Math.max(0, Math.min(layers.length - 1, rowOf[now] + step[0]));
  const column = Math.max(0, Math.min(layers[row].experts - 1, now - startOf[rowOf[now]] + step[1]));
  choose(startOf[row] + column);
};
at("grid").onpointerleave = () => { if (document.activeElement !== at("grid")) choose(-1); };
new ResizeObserver(drawGrid).observe(at("frame"));
