// Numbers of the tiers, with bars where there is a whole.
import { at, element } from "../shared/dom.js";
import { percent, size } from "../shared/format.js";
import { cells, countIn, DEVICE, RAM, slots } from "./cells.js";

const EVERY = 0.5, SMOOTH = 0.3;

function gauge(name, value, note, part, all) {
  const made = element("div.gauge", element("small", name), element("b", value));
  if (all > 0) {
    const meter = element("meter", { "aria-label": name });
    Object.assign(meter, { max: all, value: part });
    made.append(meter);
  }
  if (note) made.append(element("small", note));
  return made;
}

let shown = 0, reading = 0, speed = 0;

// Shows an event's numbers, and what they have grown by since the last one.
export function showGauges(event, last, time) {
  if (last && time > last.time) {
    const now = (name) => ((event[name] || 0) - (last[name] || 0)) / (time - last.time);
    reading += (now("read_bytes") - reading) * SMOOTH;
    speed += (now("generated_tokens") - speed) * SMOOTH;
  }
  if (time - shown < EVERY) return;
  shown = time;
  const { layers, places } = cells, made = [], room = slots(), onDevices = countIn(DEVICE);
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
  made.push(gauge("experts in RAM", `${countIn(RAM).toLocaleString()} of ${places.length.toLocaleString()}`, `${layers.length} layers`, countIn(RAM), places.length));
  at("gauges").replaceChildren(...made);
}
