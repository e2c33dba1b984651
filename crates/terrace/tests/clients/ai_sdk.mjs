// Vercel's AI SDK over its providers of OpenAI's API (chat and responses) and of Ollama's, of the folder PACKAGES.
// Writes how many tests used each endpoint.
import assert from "node:assert/strict";
import {createRequire} from "node:module";
import {after, afterEach, beforeEach, test} from "node:test";
import {writeFileSync} from "node:fs";

const require = createRequire(`${process.env.PACKAGES}/package.json`);
const {embedMany, generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool} = require("ai");
const {createOpenAICompatible} = require("@ai-sdk/openai-compatible");
const {createOpenAI} = require("@ai-sdk/openai");
const {createOllama} = require("ollama-ai-provider-v2");
const {z} = require("zod");
const {URL: server, KEY: apiKey, MODEL: name, EMBEDDING: embedding, PROVIDER: provider} = process.env;

const used = {};
let requests = new Set();
// Bodies get what the SDK has no word for: fields of Terrace, which make this model's answers short, and equal to each other.
let more = {};
async function counted(url, options) {
    requests.add(`${options.method.toUpperCase()} ${new URL(url).pathname}`);
    return fetch(url, {...options, body: JSON.stringify({...JSON.parse(options.body), ...more})});
}
beforeEach(() => ((requests = new Set()), (more = {reasoning_format: "none", cache_prompt: false})));
afterEach(() => {
    for (const endpoint of requests) used[endpoint] = (used[endpoint] ?? 0) + 1;
});
after(() => writeFileSync(process.env.USED_BY_JS, JSON.stringify(used)));

const base = {apiKey, fetch: counted};
const compatible = (baseURL) => createOpenAICompatible({...base, name: "terrace", baseURL, includeUsage: true, supportsStructuredOutputs: true});
const openai = (baseURL) => createOpenAI({...base, baseURL});
const ollama = (url) => createOllama({baseURL: `${url}/api`, headers: {Authorization: `Bearer ${apiKey}`}, fetch: counted});
const model = {
    compatible: () => compatible(`${server}/v1`)(name),
    chat: () => openai(`${server}/v1`).chat(name),
    responses: () => openai(`${server}/v1`).responses(name),
    ollama: () => ollama(server)(name),
}[provider]();
const ofOllama = provider === "ollama";

// The provider of Ollama's API sends limits and temperatures where Ollama does not look for them, unless they are its options.
const limited = (tokens, temperature = 0) => ({
    model, maxRetries: 0,
    ...(ofOllama ? {providerOptions: {ollama: {options: {num_predict: tokens, temperature}}}} : {temperature, maxOutputTokens: tokens}),
});
const asked = {...limited(12), prompt: "Hi"};
const question = {...limited(300), prompt: "What is the weather in Rome?"};
const place = z.object({city: z.string().max(12), days: z.union([z.literal(1), z.literal(2)])}).strict();
const weather = (seen) => tool({
    description: "Tells the weather.", inputSchema: place, execute: async (input) => (seen.push(input), "Sunny."),
});

test("whole and streamed", async () => {
    // Ollama's API has no word for `cache_prompt`: the second answer and the third one have the same part kept.
    if (ofOllama) await generateText(asked);
    const whole = await generateText(asked);
    assert.ok(whole.text);
    assert.equal(whole.finishReason, "length");
    assert.equal(whole.usage.outputTokens, 12);
    const stream = streamText(asked);
    let text = "";
    for await (const part of stream.textStream) text += part;
    assert.equal(text, whole.text);
    assert.equal((await stream.usage).outputTokens, 12);
    assert.equal(await stream.finishReason, "length");
});

test("objects by a schema, whole and streamed", async () => {
    const room = {...limited(300), prompt: "Hi"};
    const whole = await generateObject({...room, schema: place});
    place.parse(whole.object);
    const stream = streamObject({...room, schema: place});
    for await (const part of stream.partialObjectStream) assert.ok(typeof part === "object");
    place.parse(await stream.object);
    const output = await generateText({...room, output: Output.object({schema: place})});
    place.parse(output.output);
});

// Ollama's API has no choice of tools.
test("a tool is called, and its result goes back", {skip: ofOllama}, async () => {
    const seen = [];
    const first = ({stepNumber}) => ({toolChoice: stepNumber === 0 ? "required" : "none"});
    const agent = {...question, stopWhen: stepCountIs(2), tools: {weather: weather(seen)}, prepareStep: first};
    more.parallel_tool_calls = false;
    const whole = await generateText(agent);
    assert.equal(whole.steps.length, 2);
    assert.equal(whole.steps[0].finishReason, "tool-calls");
    assert.equal(seen.length, 1);
    place.parse(seen[0]);
    assert.ok(whole.text);
    const stream = streamText(agent);
    const kinds = new Set();
    for await (const part of stream.fullStream) kinds.add(part.type);
    for (const kind of ["tool-call", "tool-result", "text-delta"]) assert.ok(kinds.has(kind), `${[...kinds]}`);
    assert.deepEqual(seen[1], seen[0]);
});

test("tools and an object together", {skip: ofOllama}, async () => {
    const seen = [];
    more.parallel_tool_calls = false;
    const answer = await generateText({
        ...question, stopWhen: stepCountIs(2),
        tools: {weather: weather(seen)}, output: Output.object({schema: z.object({sunny: z.boolean()}).strict()}),
        prepareStep: ({stepNumber}) => ({toolChoice: stepNumber === 0 ? "required" : "none"}),
    });
    assert.equal(seen.length, 1);
    assert.equal(typeof answer.output.sunny, "boolean");
});

test("tools of Ollama: offered, and their results read", {skip: !ofOllama}, async () => {
    const call = {type: "tool-call", toolCallId: "1", toolName: "weather", input: {city: "Rome", days: 1}};
    const result = {type: "tool-result", toolCallId: "1", toolName: "weather", output: {type: "text", value: "Sunny."}};
    const messages = [
        {role: "user", content: "What is the weather in Rome?"},
        {role: "assistant", content: [call]},
        {role: "tool", content: [result]},
    ];
    const tools = {weather: weather([])};
    const plain = await generateText({...limited(12), messages});
    const offered = await generateText({...limited(12), messages, tools});
    assert.ok(offered.text);
    assert.ok(offered.usage.inputTokens > plain.usage.inputTokens);
});

test("embeddings", async () => {
    const model = ofOllama
        ? ollama(embedding).textEmbeddingModel(name)
        : provider === "compatible" ? compatible(`${embedding}/v1`).textEmbeddingModel(name) : openai(`${embedding}/v1`).embedding(name);
    more = {};
    const {embeddings} = await embedMany({model, values: ["In the beginning", "A hacker"], maxRetries: 0});
    assert.equal(embeddings.length, 2);
    assert.ok(embeddings.every((one) => one.length === embeddings[0].length && one.length > 8));
});

test("a stream can be left", async () => {
    if (!ofOllama) more.ignore_eos = true;
    const abort = new AbortController();
    const stream = streamText({...limited(4000), prompt: "Hi", abortSignal: abort.signal, onError() {}});
    for await (const part of stream.textStream) abort.abort();
    more = {};
    assert.ok((await generateText(asked)).text);
});

test("errors", async () => {
    await assert.rejects(generateText({...limited(12, -1), prompt: "Hi"}), (error) => error.statusCode === 400 && /temperature/.test(error.message + error.responseBody));
});
