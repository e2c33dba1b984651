// What tests look at, and a server that says what they want.
window.at = (id) => document.getElementById(id);

// The page's modules: the same ones that the page has.
window.modules = null;
addEventListener("load", async () => {
  if (!location.protocol.startsWith("http")) return;
  const names = ["shared/server", "tiers/cells", "tiers/experts", "tiers/lanes", "tiers/metrics"];
  const found = await Promise.all(names.map((name) => import(`/page/${name}.js`)));
  window.modules = Object.fromEntries(names.map((name, index) => [name.split("/")[1], found[index]]));
});

window.middleOf = (selector) => {
  const box = document.querySelector(selector).getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
};

// Whether all of an element is to be seen without scrolling, with nothing above it.
window.inView = (selector) => {
  const element = document.querySelector(selector), box = element?.getBoundingClientRect();
  if (!box?.width || box.left < 0 || box.top < 0 || box.right > innerWidth || box.bottom > innerHeight) return false;
  const top = document.elementFromPoint(...middleOf(selector));
  return element.contains(top) || top.contains(element);
};

// Drops a file on the page; a text of bytes, or any other text.
window.dropFile = (name, content, binary = false) => {
  const files = new DataTransfer(), bytes = binary ? Uint8Array.from(content, (letter) => letter.charCodeAt(0)) : content;
  files.items.add(new File([bytes], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
};

// Puts a file into a box for files.
window.chooseFile = (id, name, content) => {
  const files = new DataTransfer();
  files.items.add(new File([content], name));
  at(id).files = files.files;
  at(id).dispatchEvent(new Event("change"));
};

window.lastTurn = () => [...document.querySelectorAll(".turn")].at(-1);
window.textOf = (selector) => document.querySelector(selector)?.textContent;

// Answers to chats come from the test, piece by piece: `feed` sends one, `finish` ends it. `sent` is the request.
window.script = () => {
  const real = window.fetch, bytes = new TextEncoder();
  window.sent = null;
  window.fetch = (path, options) => {
    if (!String(path).endsWith("chat/completions")) return real(path, options);
    window.sent = JSON.parse(options.body);
    const body = new ReadableStream({
      start(control) {
        options.signal.addEventListener("abort", () => { try { control.error(options.signal.reason); } catch { /* It has ended. */ } });
        const write = (text) => control.enqueue(bytes.encode(`data: ${text}\n\n`));
        window.feed = (delta, more = {}) => write(JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }], ...more }));
        window.say = (content) => feed({ content });
        window.finish = (reason = "stop") => {
          write(JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: reason }] }));
          write("[DONE]");
          control.close();
        };
        window.refuse = (message) => { write(JSON.stringify({ error: { message } })); control.close(); };
        window.cut = () => control.error(new TypeError("network error"));
      },
    });
    return Promise.resolve(new Response(body));
  };
};
