// OpenAI's library for JavaScript, of the folder PACKAGES. Writes how many tests used each endpoint.
import assert from "node:assert/strict";
import {createRequire} from "node:module";
import {after, afterEach, beforeEach, test} from "node:test";
import {writeFileSync} from "node:fs";

const {default: OpenAI} = createRequire(`${process.env.PACKAGES}/package.json`)("openai");
const {URL: server, KEY: apiKey, MODEL: model} = process.env;

const used = {};
let requests = new Set();
async function counted(url, options) {
    requests.add(`${options.method.toUpperCase()} ${new URL(url).pathname}`);
    return fetch(url, options);
}
beforeEach(() => (requests = new Set()));
afterEach((context) => {
    for (const endpoint of requests) used[endpoint] = (used[endpoint] ?? 0) + 1;
});
after(() => writeFileSync(process.env.USED_BY_JS, JSON.stringify(used)));

const client = new OpenAI({baseURL: `${server}/v1`, apiKey, maxRetries: 0, fetch: counted});
const messages = [{role: "user", content: "Hi"}];
// A prompt that is partly kept is computed in other pieces, which rounds differently.
const asked = {model, messages, max_tokens: 12, temperature: 0, cache_prompt: false};
const place = {
    type: "object",
    properties: {city: {type: "string", maxLength: 12}, days: {enum: [1, 2]}},
    required: ["city", "days"],
    additionalProperties: false,
};
const tools = [{type: "function", function: {name: "weather", parameters: place}}];
const chat = (more) => client.chat.completions.create({...asked, ...more});

function checked(text) {
    const value = JSON.parse(text);
    assert.deepEqual(Object.keys(value).sort(), ["city", "days"]);
    assert.ok(typeof value.city === "string" && value.city.length <= 12 && [1, 2].includes(value.days), text);
    return value;
}

test("models", async () => {
    const names = [];
    for await (const one of client.models.list()) names.push(one.id);
    assert.deepEqual(names, [model]);
});

test("answers, whole and streamed", async () => {
    const whole = await chat({});
    const {content} = whole.choices[0].message;
    assert.ok(content);
    assert.equal(whole.choices[0].finish_reason, "length");
    assert.equal(whole.usage.completion_tokens, 12);
    let text = "", usage = null;
    for await (const chunk of await chat({stream: true, stream_options: {include_usage: true}})) {
        text += chunk.choices[0]?.delta.content ?? "";
        usage = chunk.usage ?? usage;
    }
    assert.equal(text, content);
    assert.deepEqual(usage.completion_tokens, 12);
});

test("seeds, several answers and probabilities", async () => {
    const drawn = async (seed) => (await chat({seed, temperature: 1.5})).choices[0].message.content;
    assert.equal(await drawn(1), await drawn(1));
    assert.notEqual(await drawn(1), await drawn(2));
    const two = await chat({n: 2, seed: 1, temperature: 1.5, logprobs: true, top_logprobs: 2});
    assert.equal(two.choices.length, 2);
    assert.notEqual(two.choices[0].message.content, two.choices[1].message.content);
    const {content} = two.choices[0].logprobs;
    // Those of the content: a token that it leaves out at its ends has none.
    assert.equal(content.map((one) => one.token).join(""), two.choices[0].message.content);
    assert.ok(content.length >= 11 && content.every((one) => one.top_logprobs.length === 2));
});

test("stop strings cut", async () => {
    const {content} = (await chat({})).choices[0].message;
    const stop = content.slice(5, 9);
    const cut = (await chat({stop})).choices[0];
    assert.equal(cut.message.content, content.slice(0, content.indexOf(stop)));
    assert.equal(cut.finish_reason, "stop");
});

test("JSON by a schema", async () => {
    const response_format = {type: "json_schema", json_schema: {name: "place", strict: true, schema: place}};
    const whole = await client.chat.completions.parse({...asked, max_tokens: 300, response_format});
    checked(whole.choices[0].message.content);
    const stream = client.chat.completions.stream({...asked, max_tokens: 300, response_format});
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
});

test("a named tool is called, whole and streamed", async () => {
    const more = {max_tokens: 300, tools, tool_choice: {type: "function", function: {name: "weather"}}, reasoning_format: "none"};
    const whole = (await chat(more)).choices[0];
    assert.equal(whole.finish_reason, "tool_calls");
    assert.equal(whole.message.tool_calls.length, 1);
    const {arguments: text} = whole.message.tool_calls[0].function;
    checked(text);
    const stream = client.chat.completions.stream({...asked, ...more});
    const final = (await stream.finalChatCompletion()).choices[0];
    assert.equal(final.message.tool_calls[0].function.arguments, text);
    const talk = [...messages, whole.message, {role: "tool", tool_call_id: whole.message.tool_calls[0].id, content: "Sunny."}];
    assert.ok((await chat({messages: talk, tools, tool_choice: "none"})).choices[0].message.content);
});

test("the library runs tools itself", async () => {
    const seen = [];
    const weather = {...tools[0].function, parse: JSON.parse, function: (place) => (seen.push(place), "Sunny.")};
    const runner = client.chat.completions.runTools({
        ...asked, max_tokens: 300, reasoning_format: "none", tools: [{type: "function", function: weather}],
        tool_choice: {type: "function", function: {name: "weather"}},
    });
    await runner.done();
    assert.equal(seen.length, 1);
    checked(JSON.stringify(seen[0]));
});

test("texts, whole and streamed", async () => {
    const plain = {model, prompt: "And God said unto", max_tokens: 12, temperature: 0, cache_prompt: false};
    const whole = await client.completions.create(plain);
    let text = "";
    for await (const chunk of await client.completions.create({...plain, stream: true})) text += chunk.choices[0].text;
    assert.ok(text);
    assert.equal(text, whole.choices[0].text);
});

test("errors", async () => {
    await assert.rejects(chat({temperature: -1}), (error) => error instanceof OpenAI.BadRequestError && /temperature/.test(error.message));
    const other = new OpenAI({baseURL: `${server}/v1`, apiKey: "wrong", maxRetries: 0});
    await assert.rejects(other.chat.completions.create(asked), OpenAI.AuthenticationError);
});

test("a stream can be left", async () => {
    const stream = await chat({stream: true, max_tokens: 4000, ignore_eos: true});
    for await (const chunk of stream) break;
    assert.ok((await chat({})).choices[0].message.content);
});
