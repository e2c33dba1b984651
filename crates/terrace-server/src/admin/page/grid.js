
// The grid: a row for each layer, a cell for each expert, one pixel each, enlarged.
const RAM = 1, DEVICE = 2, READING = 4;
const HALF_LIFE = 4;
let layers = [], uses = [], places = [], heat = new Float32Array(0);
let columns = 0, rowOf = [], startOf = [], chosen = -1, cooled = 0;
const small = document.createElement("canvas");

// Sets the layers; all experts are on disk and unused.
function setLayers(list, keep) {
  layers = list;
  startOf = []; rowOf = [];
  let count = 0;
  list.forEach((layer, row) => {
    startOf.push(count);
    for (let i = 0; i < layer.experts; i++) rowOf.push(row);
    count += layer.experts;
  });
  columns = Math.max(1, ...list.map((layer) => layer.experts));
  if (!keep || count !== uses.length) {
    uses = new Float64Array(count); places = new Uint8Array(count); heat = new Float32Array(count);
    chosen = -1;
  }
}

// Reads a list of distances and values.
function each(list, take) {
  let next = 0;
  for (let i = 0; i < list.length; i += 2) {
    const index = next + list[i];
    take(index, list[i + 1]);
    next = index + 1;
  }
}

function cool(time) {
  const factor = 0.5 ** (Math.max(0, time - cooled) / HALF_LIFE);
  for (let i = 0; i < heat.length; i++) heat[i] *= factor;
  cooled = time;
}

const rgb = (name) => {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
  const full = text.length === 3 ? [...text].map((c) => c + c).join("") : text;
  return [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16));
};

function palette() {
  const ground = rgb("--panel");
  return ["--disk", "--ram", "--device", "--reading"].map((name) => {
    const full = rgb(name);
    return Array.from({ length: 64 }, (_, level) => {
      const share = 0.16 + 0.84 * level / 63;
      return full.map((value, i) => Math.round(ground[i] + (value - ground[i]) * share));
    });
  });
}

function drawGrid() {
  const canvas = at("grid"), rows = layers.length;
  if (!rows) return;
  const colours = palette(), none = rgb("--panel");
  small.width = columns; small.height = rows;
  const draw = small.getContext("2d"), image = draw.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    const start = startOf[row], experts = layers[row].experts;
    let most = 1;
    for (let i = start; i < start + experts; i++) most = Math.max(most, heat[i]);
    const top = Math.log1p(most);
    for (let column = 0; column < columns; column++) {
      let colour = none;
      if (column < experts) {
        const index = start + column, place = places[index];
        const kind = place & DEVICE ? 2 : place & RAM ? 1 : place & READING ? 3 : 0;
        colour = colours[kind][Math.min(63, Math.floor(64 * Math.log1p(heat[index]) / top))];
      }
      image.data.set([...colour, 255], 4 * (row * columns + column));
    }
  }
  draw.putImageData(image, 0, 0);
  const scale = devicePixelRatio, width = at("frame").clientWidth;
  const height = rows * Math.max(5, Math.min(18, Math.round(340 / rows)));
  canvas.style.height = height + "px";
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const to = canvas.getContext("2d");
  to.imageSmoothingEnabled = false;
  to.drawImage(small, 0, 0, w, h);
  const gap = Math.round(scale);
  // Lines between cells, where there is room for them.
  to.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--panel");
  if (w / columns >= 5 * scale) for (let c = 1; c < columns; c++) to.fillRect(Math.round(c * w / columns), 0, gap, h);
  if (h / rows >= 4 * scale) for (let r = 1; r < rows; r++) to.fillRect(0, Math.round(r * h / rows), w, gap);
  if (chosen >= 0) {
    const row = rowOf[chosen], column = chosen - startOf[row];
    to.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
    to.lineWidth = 2 * scale;
    to.strokeRect(column * w / columns, row * h / rows, Math.max(w / columns, 2 * scale), h / rows);
  }
}

function choose(index) {
  chosen = index;
  describe();
  drawGrid();
}

// Says where the chosen expert is, and how much it is used.
function describe() {
  if (chosen < 0) { at("readout").textContent = ""; return; }
  const row = rowOf[chosen], layer = layers[row], place = places[chosen];
  const where = [];
  if (place & DEVICE) where.push("on " + (layer.device || "its device"));
  if (place & RAM) where.push("in RAM");
  if (place & READING) where.push("being read");
  if (!where.length) where.push("on disk");
  let all = 0;
  for (let i = startOf[row]; i < startOf[row] + layer.experts; i++) all += uses[i];
  const text = `layer ${layer.layer}, expert ${chosen - startOf[row]}: ${where.join(", ")}; ` +
    `${uses[chosen].toLocaleString()} uses, ${percent(uses[chosen], all)} of its layer`;
  if (at("readout").textContent !== text) at("readout").textContent = text;
}

function cellAt(event) {
  const box = at("grid").getBoundingClientRect();
  const row = Math.min(layers.length - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * layers.length)));
  const column = Math.floor((event.clientX - box.left) / box.width * columns);
  return startOf[row] + Math.max(0, Math.min(layers[row].experts - 1, column));
}

at("grid").onpointermove = (event) => { if (layers.length) choose(cellAt(event)); };
at("grid").onpointerdown = (event) => { if (layers.length) choose(cellAt(event)); };
at("grid").onkeydown = (event) => {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9] }[event.key];
  if (!step || !layers.length) return;
  event.preventDefault();
  const now = Math.max(0, chosen), row = Math.max(0, Math.min(layers.length - 1, rowOf[now] + step[0]));
  const column = Math.max(0, Math.min(layers[row].experts - 1, now - startOf[rowOf[now]] + step[1]));
  choose(startOf[row] + column);
};
new ResizeObserver(() => { drawGrid(); drawChart(); }).observe(at("frame"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawGrid(); drawChart(); });
