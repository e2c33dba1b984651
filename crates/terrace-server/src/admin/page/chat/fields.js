// What can be chosen about answers, with the names of the API. What the server does not list among its
// defaults is not shown.

export const SAMPLING = [
  { name: "temperature", label: "Temperature", min: 0, max: 100, step: "any", hint: "0: always the most likely token" },
  { name: "top_p", label: "Top p", min: 0, max: 1, step: "any", hint: "the most likely tokens that make up this share" },
  { name: "top_k", label: "Top k", min: -1, step: 1, hint: "at most this many tokens; 0: all" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: "any", hint: "at least this share of the most likely one" },
  { name: "repeat_penalty", label: "Repeat penalty", min: 0, step: "any", hint: "1: none" },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: "any", hint: "0: none" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: "any", hint: "0: none" },
];
// Every server has these.
export const LIMITS = [
  { name: "max_tokens", label: "Max tokens", none: "no limit", min: 1, step: 1, hint: "per response" },
  { name: "seed", label: "Seed", none: "random", min: -1, step: 1, hint: "−1: another one each time" },
];

// The fields that a request carries: those that were filled in.
export function fieldsOf(settings) {
  const fields = {};
  for (const { name } of [...SAMPLING, ...LIMITS]) if (settings[name] !== undefined) fields[name] = settings[name];
  const stop = (settings.stop || "").split("\n").filter((line) => line !== "").map((line) => line.replaceAll("\\n", "\n"));
  if (stop.length) fields.stop = stop;
  if (settings.thinking) fields.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  if (settings.effort) fields.reasoning_effort = settings.effort;
  if (settings.tools?.trim()) fields.tools = JSON.parse(settings.tools);
  return fields;
}
