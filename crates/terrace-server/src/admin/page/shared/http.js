// Requests to the server, with the key.

const KEY = "key";
let key = sessionStorage.getItem(KEY) || "";

// Keeps a key until the tab is closed.
export function useKey(text) {
  key = text;
  sessionStorage.setItem(KEY, text);
}

// What the server refused, and why.
export class Refused extends Error {
  constructor(status, body) {
    super(body?.error?.message || "HTTP " + status);
    this.status = status;
    this.code = body?.error?.code;
    this.body = body;
  }
}

// Asks the server. Paths are relative to the page's, so that it may be behind a prefix.
export async function request(path, options = {}) {
  const headers = { ...options.headers, ...(key ? { Authorization: "Bearer " + key } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  let body = null;
  try { body = await response.json(); } catch { /* Not of this server. */ }
  if (response.status === 401) dispatchEvent(new Event("locked"));
  throw new Refused(response.status, body);
}

export const get = async (path, options) => (await request(path, options)).json();

export const post = (path, body, options = {}) =>
  request(path, { ...options, method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// The data of server-sent events, one line each, as they come.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = "";;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// An error in words for people.
export function reason(error) {
  if (error instanceof Refused) return error.message;
  if (error.name === "TimeoutError") return "the server does not answer";
  // What `fetch` throws, in other words in each browser.
  return error instanceof TypeError ? "the server cannot be reached" : error.message;
}
