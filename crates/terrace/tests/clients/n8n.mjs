// LangChain's classes for models, constructed and called as the nodes of n8n do: n8n.mjs URL
import assert from "node:assert/strict";
import {createRequire} from "node:module";

const require = createRequire(`${process.env.PLACE}/package.json`);
const {ChatOllama, Ollama} = require("@langchain/ollama");
const {ChatOpenAI} = require("@langchain/openai");
const url = process.argv[2];

// Both kinds of credentials are tested by a list of models, whose names the nodes then offer.
const {models} = await (await fetch(`${url}/api/tags`)).json();
const {data} = await (await fetch(`${url}/v1/models`, {headers: {Authorization: "Bearer none"}})).json();
const model = models[0].name;
assert.equal(model, data[0].id);

const tool = {
    name: "weather",
    description: "Tells the weather",
    schema: {type: "object", properties: {city: {type: "string"}}, required: ["city"]},
};
const nodes = {
    "Ollama Chat Model": new ChatOllama({
        baseUrl: url, model, format: undefined, keepAlive: "5m", numCtx: 2048, numPredict: 16, temperature: 0.7,
    }),
    "OpenAI Chat Model": new ChatOpenAI({
        apiKey: "none", model, maxTokens: 16, temperature: 0.7, timeout: 600000, maxRetries: 0,
        configuration: {baseURL: `${url}/v1`},
    }),
    "OpenAI Chat Model, by responses": new ChatOpenAI({
        apiKey: "none", model, maxTokens: 16, useResponsesApi: true, maxRetries: 0,
        configuration: {baseURL: `${url}/v1`},
    }),
};
const question = [["system", "You are a helpful assistant"], ["human", "Say hello"]];
for (const [name, node] of Object.entries(nodes)) {
    const agent = node.bindTools([tool]);
    let whole;
    for await (const part of await agent.stream(question)) whole = whole?.concat(part) ?? part;
    // Of a stream that the token limit cuts, which is `response.incomplete`, LangChain reads no usage.
    if (!name.endsWith("by responses") || whole.usage_metadata) {
        assert.ok(whole.usage_metadata.output_tokens > 0, name);
    }
    assert.ok(whole.text.length > 0 || whole.tool_calls.length > 0, name);
    const answer = await agent.invoke(question);
    assert.ok(answer.usage_metadata.output_tokens > 0, name);
}

const completed = await new Ollama({baseUrl: url, model, numPredict: 16}).invoke("Say hello");
assert.equal(typeof completed, "string");
