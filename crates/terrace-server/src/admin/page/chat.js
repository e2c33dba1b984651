
// A chat with the model.
let talk = [], running = null;

// Changes the talk, which stays at its end if it is there.
function change(what) {
  const box = at("talk"), atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  what(box);
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function line(kind, text) {
  const p = element("p", text, kind);
  change((box) => box.append(p));
  return p;
}

async function answer() {
  const mine = running = new AbortController(), turns = talk, p = line("assistant", "");
  at("send").textContent = "Stop";
  let text = "", failed = false;
  try {
    const response = await request("/v1/chat/completions", {
      method: "POST", signal: mine.signal, headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ messages: turns, stream: true }),
    });
    for await (const data of events(response)) {
      if (data === "[DONE]") continue;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      text += event.choices[0]?.delta?.content || "";
      change(() => { p.textContent = text; });
    }
  } catch (error) {
    if (error.name !== "AbortError" && turns === talk) { failed = true; line("error", error.message); }
  }
  if (running !== mine) return;
  running = null;
  at("send").textContent = "Send";
  // A turn without an answer would confuse the next one: it can be sent again.
  if (failed && !text) at("text").value = turns.pop().content;
  else turns.push({ role: "assistant", content: text });
}

at("ask").onsubmit = (event) => {
  event.preventDefault();
  if (running) return running.abort();
  const text = at("text").value.trim();
  if (!text) return;
  at("text").value = "";
  talk.push({ role: "user", content: text });
  line("user", text);
  answer();
};
at("text").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); at("ask").requestSubmit(); }
};
at("clear").onclick = () => {
  running?.abort();
  running = null;
  at("send").textContent = "Send";
  talk = [];
  at("talk").replaceChildren();
  at("text").focus();
};
refresh();
watch();
