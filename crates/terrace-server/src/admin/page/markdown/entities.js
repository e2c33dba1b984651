// HTML's names of characters that appear in Markdown. Others stay as they are written.

const NAMES = {
  amp: "&", lt: "<", gt: ">", quot: "\"", apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™", deg: "°",
  ndash: "–", mdash: "—", hellip: "…", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", bull: "•", middot: "·",
  times: "×", divide: "÷", plusmn: "±", ne: "≠", le: "≤", ge: "≥", asymp: "≈", infin: "∞", rarr: "→", larr: "←",
  euro: "€", pound: "£", yen: "¥", sect: "§", para: "¶", shy: "\u00ad", ensp: "\u2002", emsp: "\u2003", thinsp: "\u2009",
};

export const unescaped = (text) => text.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([a-zA-Z]{2,8}));/g, (whole, decimal, hex, name) => {
  if (name) return NAMES[name] ?? whole;
  const code = decimal ? Number(decimal) : parseInt(hex, 16);
  return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
});
