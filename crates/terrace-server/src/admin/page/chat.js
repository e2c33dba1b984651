
// A chat with the model.
let talk = [], running = null;

function line(kind, text) {
  const box = at("talk"), atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  const p = element("p", text, kind);
  box.append(p);
  if (atEnd) box.scrollTop = box.scrollHeight;
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
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const data of lines.filter((l) => l.startsWith("data: ")).map((l) => l.slice(6))) {
        if (data === "[DONE]") continue;
        const event = JSON.parse(data);
        if (event.error) throw new Error(event.error.message);
        text += event.choices[0]?.delta?.content || "";
        const box = at("talk"), atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
        p.textContent = text;
        if (atEnd) box.scrollTop = box.scrollHeight;
      }
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
