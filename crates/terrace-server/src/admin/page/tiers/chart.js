// Shares over time: of the uses in the second before each moment.
import { at } from "../shared/dom.js";
import { colour } from "../shared/theme.js";

const LONGEST = 180, SHORTEST = 30, SMOOTH = 1;
const points = [];

// Adds what happened since the last point: parts of all uses, on devices and in RAM.
export function addPoint(time, device, ram) {
  points.push({ time, device, ram });
  while (points[0].time < time - LONGEST - SMOOTH) points.shift();
}

// The curve of one kind: moments with their shares; null where nothing was used.
function curve(of) {
  let first = 0, part = 0, all = 0;
  return points.map((point) => {
    part += point[of][0]; all += point[of][1];
    for (; points[first].time <= point.time - SMOOTH; first++) { part -= points[first][of][0]; all -= points[first][of][1]; }
    return [point.time, all > 0 ? part / all : null];
  });
}

export function drawChart() {
  const canvas = at("chart"), scale = devicePixelRatio, box = canvas.getBoundingClientRect();
  const [width, height] = [Math.round(box.width * scale), Math.round(120 * scale)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  canvas.style.height = "120px";
  const draw = canvas.getContext("2d");
  draw.clearRect(0, 0, width, height);
  draw.font = `${11 * scale}px system-ui, sans-serif`;
  const left = 46 * scale, top = 8 * scale, bottom = height - 18 * scale;
  const y = (share) => bottom - share * (bottom - top);
  draw.strokeStyle = colour("--line");
  draw.fillStyle = colour("--quiet");
  draw.lineWidth = scale;
  for (const share of [0, 0.5, 1]) {
    draw.beginPath(); draw.moveTo(left, y(share)); draw.lineTo(width, y(share)); draw.stroke();
    draw.textAlign = "right";
    draw.fillText(100 * share + " %", left - 6 * scale, y(share) + 4 * scale);
  }
  const end = points.length ? points[points.length - 1].time : 0;
  const span = Math.max(SHORTEST, Math.min(LONGEST, points.length ? end - points[0].time : 0));
  const x = (time) => width - (end - time) / span * (width - left), step = span > 90 ? 60 : span > 45 ? 30 : 10;
  draw.textAlign = "center";
  for (let ago = step; ago < span; ago += step) {
    draw.fillText(ago < 60 ? `−${ago} s` : `−${ago / 60} min`, x(end - ago), height - 4 * scale);
  }
  draw.lineWidth = 1.75 * scale;
  draw.lineJoin = "round";
  for (const [name, of] of [["--ram", "ram"], ["--device", "device"]]) {
    draw.strokeStyle = colour(name);
    draw.beginPath();
    let open = false;
    for (const [time, share] of curve(of)) {
      if (share === null || x(time) < left) { open = false; continue; }
      if (open) draw.lineTo(x(time), y(share)); else draw.moveTo(x(time), y(share));
      open = true;
    }
    draw.stroke();
  }
}
