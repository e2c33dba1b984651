// Numbers as people read them.

export const size = (bytes) =>
  bytes >= 2 ** 30 ? (bytes / 2 ** 30).toFixed(2) + " GiB" : (bytes / 2 ** 20).toFixed(1) + " MiB";

export const percent = (part, all) => (all > 0 ? (100 * part / all).toFixed(1) + " %" : "–");

export const rate = (perSecond) => (perSecond >= 100 ? perSecond.toFixed(0) : perSecond.toFixed(1)) + " tokens/s";

export const count = (number, what) => number.toLocaleString() + " " + what + (number === 1 ? "" : "s");

export function duration(ms) {
  if (ms < 1000) return ms.toFixed(0) + " ms";
  if (ms < 60_000) return (ms / 1000).toFixed(1) + " s";
  return Math.floor(ms / 60_000) + " min " + Math.round(ms % 60_000 / 1000) + " s";
}

// When something was, from now: as short as it is clear.
export function when(time, now = Date.now()) {
  const then = new Date(time), today = new Date(now);
  if (then.toDateString() === today.toDateString()) return then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const year = then.getFullYear() === today.getFullYear() ? undefined : "numeric";
  return then.toLocaleDateString([], { day: "numeric", month: "short", year });
}
