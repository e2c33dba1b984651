
// Shares over time.
const SPAN = 180;
const points = [];

// Adds the shares of what happened since the last point; null where nothing did.
function addPoint(time, device, ram) {
  points.push({ time, device, ram });
  while (points.length && points[0].time < time - SPAN) points.shift();
}

function drawChart() {
  const canvas = at("chart"), scale = devicePixelRatio, box = canvas.getBoundingClientRect();
  const [width, height] = [Math.round(box.width * scale), Math.round(120 * scale)];
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  canvas.style.height = "120px";
  const draw = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
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
  const x = (time) => width - (end - time) / SPAN * (width - left);
  for (let ago = 60; ago < SPAN; ago += 60) {
    draw.textAlign = "center";
    draw.fillText(`−${ago / 60} min`, x(end - ago), height - 4 * scale);
  }
  draw.lineWidth = 1.75 * scale;
  draw.lineJoin = "round";
  for (const [name, of] of [["--ram", "ram"], ["--device", "device"]]) {
    draw.strokeStyle = colour(name);
    draw.beginPath();
    let open = false;
    for (const point of points) {
      if (point[of] === null) { open = false; continue; }
      if (open) draw.lineTo(x(point.time), y(point[of])); else draw.moveTo(x(point.time), y(point[of]));
      open = true;
    }
    draw.stroke();
  }
}
