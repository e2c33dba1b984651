// The experts: where each is, and how much it is used. One number after another, layer after layer.

export const RAM = 1, DEVICE = 2, READING = 4;
const HALF_LIFE = 4;

export const cells = { layers: [], uses: [], places: [], heat: new Float32Array(0), pairs: [], columns: 0, rowOf: [], startOf: [] };
let cooled = 0;

// Sets the layers; all experts are on disk and unused. Says whether they are other ones than before.
export function setLayers(list, keep) {
  Object.assign(cells, { layers: list, startOf: [], rowOf: [] });
  let count = 0;
  list.forEach((layer, row) => {
    cells.startOf.push(count);
    for (let i = 0; i < layer.experts; i++) cells.rowOf.push(row);
    count += layer.experts;
  });
  cells.columns = Math.max(1, ...list.map((layer) => layer.experts));
  if (keep && count === cells.uses.length) return false;
  Object.assign(cells, { uses: new Float64Array(count), places: new Uint8Array(count), heat: new Float32Array(count) });
  return true;
}

// Takes what has changed; uses count as heat unless they are from before.
export function takeCells(event, first) {
  each(event.uses, (index, count) => {
    if (!first) cells.heat[index] += count - cells.uses[index];
    cells.uses[index] = count;
  });
  each(event.places, (index, place) => { cells.places[index] = place; });
  cells.pairs = event.layer_pairs;
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

export function cool(time) {
  const factor = 0.5 ** (Math.max(0, time - cooled) / HALF_LIFE);
  for (let i = 0; i < cells.heat.length; i++) cells.heat[i] *= factor;
  cooled = time;
}

// Room for copies on devices.
export const slots = () => cells.layers.reduce((sum, layer) => sum + (layer.slots || 0), 0);

// How many experts are in such a place.
export const countIn = (bit) => cells.places.reduce((sum, place) => sum + (place & bit ? 1 : 0), 0);
