//! What answers may be: calls of tools, JSON by a schema, texts of a grammar; what samplers do, and
//! what is reported of tokens. The bundled model, with a template that knows tools, writes whatever
//! its grammar allows.

use crate::common::bundled;
use crate::server::{Server, streamed_text};
use serde_json::{Value, json};
use tempfile::TempDir;
use terrace_testkit::write_edited;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// A server whose model has a template with tools and thoughts. The folder holds the model.
pub fn with_tools() -> (Server, TempDir) {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("tools.gguf");
    write_edited(&bundled(), &model, &[("tokenizer.chat_template", include_str!("tools.jinja"))]).unwrap();
    (Server::start(&model, ["--ctx", "2048", "--parallel", "2"]), dir)
}

/// `body` with the fields of `more`.
pub fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn asked(more: &Value) -> Value {
    let weather = json!({
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"enum": [1, 2]}},
            "required": ["city", "days"],
        },
    });
    let body = json!({
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "max_tokens": 200,
        "temperature": 0,
        "tools": [
            {"type": "function", "function": weather},
            {"type": "function", "function": {"name": "now"}},
        ],
    });
    with(body, more)
}

/// The calls of a stream, put together.
fn calls_of(events: &[Value]) -> Vec<Value> {
    let mut calls: Vec<Value> = Vec::new();
    let deltas = events.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array());
    for delta in deltas.flatten() {
        let index = usize::try_from(delta["index"].as_u64().unwrap()).unwrap();
        let arguments = delta["function"]["arguments"].as_str().unwrap();
        if index == calls.len() {
            assert!(delta["id"].as_str().is_some_and(|id| !id.is_empty()), "{delta}");
            calls.push(json!({"name": delta["function"]["name"], "arguments": arguments}));
        } else {
            let all = calls[index]["arguments"].as_str().unwrap().to_owned() + arguments;
            calls[index]["arguments"] = all.into();
        }
    }
    calls
}

#[test]
fn a_required_call_is_made_whole_and_streamed() {
    let (server, _dir) = with_tools();
    let choice = json!({
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": false,
        // A model that was not trained for that would think without end.
        "reasoning_format": "none",
    });
    let whole = server.post(CHAT, &asked(&choice)).ok();
    let answer = &whole["choices"][0];
    assert_eq!(answer["finish_reason"], "tool_calls", "{whole}");
    let [call] = &answer["message"]["tool_calls"].as_array().unwrap()[..] else { panic!("{whole}") };
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("weather")));
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["city"].is_string(), "{arguments}");
    assert!([json!(1), json!(2)].contains(&arguments["days"]), "{arguments}");

    let events = server.post(CHAT, &with(asked(&choice), &json!({"stream": true}))).events();
    assert_eq!(calls_of(&events), [call["function"].clone()]);
    let last = events.iter().rev().find_map(|event| event["choices"][0]["finish_reason"].as_str());
    assert_eq!(last, Some("tool_calls"));

    // The result goes back to the model.
    let talk = json!({"messages": [
        {"role": "user", "content": "What is the weather in Rome?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "Sunny."},
    ]});
    let prompt = server.post("/apply-template", &talk).ok()["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains("<tool_call>\n{\"name\": \"weather\""), "{prompt}");
    assert!(prompt.contains("\nSunny.\n"), "{prompt}");
    server.post(CHAT, &json!({"messages": talk["messages"], "max_tokens": 5})).ok();
}

#[test]
fn ollamas_formats_and_calls_are_understood() {
    let (server, _dir) = with_tools();
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]});
    let body = json!({
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": false,
        "format": schema,
        "options": {"temperature": 0, "num_predict": 400},
    });
    let answer = server.post("/api/chat", &body).ok();
    let text = answer["message"]["content"].as_str().unwrap();
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert!(value["a"].is_boolean());
    let call = json!({"function": {"name": "now", "arguments": {"a": 1}}});
    let talk = json!({
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_name": "now", "content": "12:00"},
        ],
        "tools": [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}],
        "stream": false,
        "options": {"num_predict": 3},
    });
    assert!(server.post("/api/chat", &talk).ok()["message"]["content"].is_string());
    let image = json!({"messages": [{"role": "user", "content": "Hi", "images": ["AAAA"]}]});
    assert_eq!(server.post("/api/chat", &image).status, 400);
}

#[test]
fn answers_follow_schemas_and_grammars() {
    let server = Server::start(&bundled(), ["--ctx", "1024"]);
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "n": {"type": "integer", "minimum": 3, "maximum": 5},
        },
        "required": ["name", "n"],
        "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let talk = json!([{"role": "user", "content": "Hi"}]);
    let chat = json!({"messages": talk, "response_format": format, "max_tokens": 120});
    let plain = json!({"prompt": "Here is JSON:", "json_schema": schema, "max_tokens": 120});
    for seed in [1, 2, 3] {
        let (chat, plain) =
            (with(chat.clone(), &json!({"seed": seed})), with(plain.clone(), &json!({"seed": seed})));
        let texts = [
            server.post(CHAT, &chat).ok()["choices"][0]["message"]["content"].clone(),
            server.post(TEXT, &plain).ok()["choices"][0]["text"].clone(),
            server.post("/completion", &plain).ok()["content"].clone(),
        ];
        for text in texts {
            let text = text.as_str().unwrap();
            let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(value["name"].is_string(), "{value}");
            assert!((3..=5).contains(&value["n"].as_i64().unwrap()), "{value}");
        }
    }
    let grammar = json!({"prompt": "x", "grammar": "root ::= (\"yes\" | \"no\") \"!\"", "max_tokens": 20});
    let text = server.post(TEXT, &grammar).ok()["choices"][0]["text"].clone();
    assert!(["yes!", "no!"].contains(&text.as_str().unwrap()), "{text}");
    for (body, part) in [
        (json!({"prompt": "x", "grammar": "root ::= ("}), "grammar"),
        (json!({"prompt": "x", "grammar": "root ::= root \"x\""}), "grammar"),
        (json!({"prompt": "x", "json_schema": {"$ref": "#/nowhere"}}), "JSON schema"),
    ] {
        let error = server.post(TEXT, &body).error(400);
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    server.post(TEXT, &json!({"prompt": "x", "max_tokens": 1})).ok();
}

#[test]
fn samplers_do_what_their_names_say() {
    let server = Server::start(&bundled(), ["--ctx", "1024"]);
    let answer = |more: &Value| {
        let body = json!({"prompt": "And God said", "max_tokens": 24, "temperature": 0});
        server.post("/completion", &with(body, more)).ok()
    };
    let text = |more: Value| answer(&more)["content"].as_str().unwrap().to_owned();
    let greedy = text(json!({}));
    // Neutral values change nothing, through llama.cpp's own samplers as well.
    assert_eq!(text(json!({"repeat_penalty": 1.0, "presence_penalty": 0, "n_probs": 2})), greedy);
    assert_eq!(text(json!({"logit_bias": [[5, 0.0]]})), greedy);
    let tokens = server.post("/tokenize", &json!({"content": greedy})).ok()["tokens"].clone();
    let never = json!({tokens[0].to_string(): -100});
    assert_ne!(text(json!({"logit_bias": never})), greedy, "the first token is forbidden");
    assert_ne!(text(json!({"repeat_penalty": 1.5, "repeat_last_n": -1})), greedy);
    let drawn = |more: &Value, seed: u64| text(with(json!({"temperature": 1.5, "seed": seed}), more));
    let none = json!({});
    assert_eq!(drawn(&none, 7), drawn(&none, 7));
    assert_ne!(drawn(&none, 7), drawn(&none, (1 << 40) | 7), "seeds have 64 bits");
    for one in [
        json!({"top_k": 1}),
        json!({"samplers": ["top_k"], "top_k": 1}),
        json!({"samplers": "k", "top_k": 1}),
    ] {
        assert_eq!(drawn(&one, 9), greedy, "{one}");
    }
    for kind in [
        json!({"mirostat": 2}),
        json!({"typical_p": 0.5}),
        json!({"top_n_sigma": 1.0}),
        json!({"xtc_probability": 1.0, "xtc_threshold": 0.05}),
        json!({"dynatemp_range": 0.5}),
        json!({"dry_multiplier": 5.0, "dry_allowed_length": 1}),
        json!({"adaptive_target": 0.3}),
    ] {
        assert_eq!(drawn(&kind, 3), drawn(&kind, 3), "{kind}");
    }
    let endless = answer(&json!({"ignore_eos": true, "max_tokens": 200}));
    assert_eq!((&endless["stop_type"], &endless["tokens_predicted"]), (&json!("limit"), &json!(200)));
    assert_eq!(endless["generation_settings"]["ignore_eos"], true);
    for (body, param) in [
        (json!({"prompt": "x", "samplers": ["guess"]}), "samplers"),
        (json!({"prompt": "x", "logit_bias": {"99999": 1}}), "logit_bias"),
        (json!({"prompt": "x", "mirostat": 3}), "mirostat"),
        (json!({"prompt": "x", "seed": "x"}), "seed"),
    ] {
        assert_eq!(server.post("/completion", &body).error(400)["param"], param);
    }
}

#[test]
fn several_answers_and_prompts_have_numbers() {
    let server = Server::start(&bundled(), ["--ctx", "512", "--parallel", "2"]);
    let body = json!({
        "prompt": ["And God", "The hacker"], "n": 2, "max_tokens": 6, "temperature": 0, "echo": true,
        "cache_prompt": false,
    });
    let whole = server.post(TEXT, &body).ok();
    let choices = whole["choices"].as_array().unwrap();
    let texts: Vec<&str> = choices.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 4);
    assert_eq!((texts[0], texts[2]), (texts[1], texts[3]), "the same greedy answers");
    assert!(texts[0].starts_with("And God") && texts[2].starts_with("The hacker"), "{texts:?}");
    assert_eq!(whole["usage"]["completion_tokens"], 24);
    let events = server.post(TEXT, &with(body, &json!({"stream": true}))).events();
    for (number, expected) in texts.iter().enumerate() {
        let numbered = |event: &&Value| event["choices"][0]["index"] == number;
        let of_one: Vec<Value> = events.iter().filter(numbered).cloned().collect();
        assert_eq!(streamed_text(&of_one), *expected, "answer {number}");
    }
    let talk = json!([{"role": "user", "content": "Hi"}]);
    let body = json!({"messages": talk, "n": 3, "seed": 1, "temperature": 2, "max_tokens": 12});
    let drawn = server.post(CHAT, &body).ok();
    let choices = drawn["choices"].as_array().unwrap();
    assert!(choices.len() == 3 && choices[0]["message"] != choices[1]["message"], "{drawn}");
}

#[test]
fn probabilities_are_those_of_the_tokens() {
    let server = Server::start(&bundled(), ["--ctx", "512"]);
    let talk = json!({
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 8, "temperature": 0, "logprobs": true, "top_logprobs": 3, "cache_prompt": false,
    });
    let whole = server.post(CHAT, &talk).ok();
    let choice = &whole["choices"][0];
    let probs = choice["logprobs"]["content"].as_array().unwrap();
    let text: String = probs.iter().map(|one| one["token"].as_str().unwrap()).collect();
    assert_eq!(choice["message"]["content"], text);
    for one in probs {
        let top = one["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert_eq!((&top[0]["token"], &top[0]["logprob"]), (&one["token"], &one["logprob"]), "greedy");
        let logs: Vec<f64> = top.iter().map(|one| one["logprob"].as_f64().unwrap()).collect();
        let sum: f64 = logs.iter().map(|log| log.exp()).sum();
        assert!(sum <= 1.0 + 1e-6 && logs.is_sorted_by(|a, b| a >= b), "{one}");
    }
    let events = server.post(CHAT, &with(talk, &json!({"stream": true}))).events();
    let lists = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(lists.flatten().cloned().collect::<Vec<_>>(), *probs);
    let body = json!({"prompt": "And", "max_tokens": 4, "temperature": 0, "logprobs": 2});
    let text = server.post(TEXT, &body).ok();
    let lists = &text["choices"][0]["logprobs"];
    assert_eq!(lists["tokens"].as_array().unwrap().len(), 4);
    assert_eq!(lists["text_offset"][0], 0);
    assert_eq!(lists["top_logprobs"][0].as_object().unwrap().len(), 2);
}

/// Clients slice the text by characters.
#[test]
fn offsets_of_tokens_are_in_characters() {
    let server = Server::start(&bundled(), ["--ctx", "512"]);
    let prompt = "éééééé漢漢漢x";
    let body =
        json!({"prompt": prompt, "max_tokens": 2, "temperature": 0, "logprobs": 5, "echo": true, "seed": 1});
    let whole = server.post(TEXT, &body).ok()["choices"][0].clone();
    let offsets = |choice: &Value| -> Vec<usize> {
        let all = choice["logprobs"]["text_offset"].as_array().into_iter().flatten();
        all.map(|at| usize::try_from(at.as_u64().unwrap()).unwrap()).collect()
    };
    let (text, found) = (whole["text"].as_str().unwrap(), offsets(&whole));
    let tokens = whole["logprobs"]["tokens"].as_array().unwrap();
    let characters: Vec<char> = text.chars().collect();
    assert!(text.starts_with(prompt) && found.is_sorted() && found.last().unwrap() <= &characters.len());
    for (token, &at) in tokens.iter().map(|token| token.as_str().unwrap()).zip(&found) {
        let slice: String = characters[at..].iter().take(token.chars().count()).collect();
        assert!(slice == token || token.contains('\u{fffd}'), "{token} at {at}");
    }
    let x = tokens.iter().position(|token| token.as_str().unwrap().ends_with('x')).unwrap();
    let length = tokens[x].as_str().unwrap().chars().count();
    assert_eq!(found[x] + length, prompt.chars().count(), "{tokens:?}: {found:?}");
    let tops = whole["logprobs"]["top_logprobs"].as_array().unwrap();
    assert!(tops[1..].iter().all(|top| top.as_object().unwrap().len() == 5), "{tops:?}");
    let events = server.post(TEXT, &with(body, &json!({"stream": true}))).events();
    let streamed: Vec<usize> = events.iter().flat_map(|event| offsets(&event["choices"][0])).collect();
    assert_eq!(streamed, found);
}

#[test]
fn probabilities_after_the_samplers_are_those_that_tokens_are_drawn_by() {
    let server = Server::start(&bundled(), ["--ctx", "512"]);
    let body = json!({
        "prompt": "And", "n_predict": 8, "temperature": 1.5, "top_k": 4, "top_p": 1, "min_p": 0, "seed": 3, "n_probs": 6,
        "post_sampling_probs": true, "cache_prompt": false,
    });
    let answer = server.post("/completion", &body).ok();
    let probs = answer["completion_probabilities"].as_array().unwrap();
    assert_eq!(probs.len(), 8);
    for one in probs {
        let top = one["top_probs"].as_array().unwrap();
        let values: Vec<f64> = top.iter().map(|one| one["prob"].as_f64().unwrap()).collect();
        assert!(top.len() == 4 && values.is_sorted_by(|a, b| a >= b), "four are left: {one}");
        assert!((values.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{one}");
        let own = top.iter().find(|other| other["id"] == one["id"]).unwrap();
        assert_eq!((&own["prob"], &own["token"]), (&one["prob"], &one["token"]));
        assert!(one.get("logprob").is_none() && one.get("top_logprobs").is_none());
    }
    let events = server.post("/completion", &with(body.clone(), &json!({"stream": true}))).text;
    let streamed =
        events.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let lists: Vec<Value> = streamed
        .filter_map(|event| event["completion_probabilities"].as_array().cloned())
        .flatten()
        .collect();
    assert_eq!(lists, *probs);
    // Greedily, there is nothing to draw.
    for one in server.post("/completion", &with(body.clone(), &json!({"temperature": 0}))).ok()
        ["completion_probabilities"]
        .as_array()
        .unwrap()
    {
        assert_eq!((&one["prob"], &one["top_probs"][0]["id"]), (&json!(1.0), &one["id"]), "{one}");
    }
    let before = server.post("/completion", &with(body, &json!({"post_sampling_probs": false}))).ok();
    assert_eq!(before["completion_probabilities"][0]["top_logprobs"].as_array().unwrap().len(), 6);
}

/// As lm-evaluation-harness asks and reads (`local-completions`).
#[test]
fn prompts_are_echoed_with_their_probabilities() {
    let server = Server::start(&bundled(), ["--ctx", "512", "--parallel", "2"]);
    let body = json!({"prompt": "In the beginning", "max_tokens": 8, "temperature": 0, "logprobs": 1});
    let told = server.post(TEXT, &body).ok()["choices"][0].clone();
    let tokens_of = |text: &str| {
        server.post("/tokenize", &json!({"content": text, "add_special": true})).ok()["tokens"].clone()
    };
    let prompt = tokens_of("In the beginning");
    let text = format!("In the beginning{}", told["text"].as_str().unwrap());
    let (whole, begin) = (tokens_of(&text), prompt.as_array().unwrap().len());
    let body = json!({
        "model": "any", "prompt": [whole, prompt], "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": true,
        "seed": 1234,
    });
    let answer = server.post(TEXT, &body).ok();
    for (choice, prompt) in answer["choices"].as_array().unwrap().iter().zip([&whole, &prompt]) {
        let (lists, n) = (&choice["logprobs"], prompt.as_array().unwrap().len());
        let list = |name: &str| lists[name].as_array().unwrap().clone();
        assert_eq!((list("token_logprobs").len(), list("tokens").len()), (n + 1, n + 1));
        assert_eq!((&lists["token_logprobs"][0], &lists["top_logprobs"][0]), (&Value::Null, &Value::Null));
        let text: String = list("tokens").iter().map(|token| token.as_str().unwrap()).collect();
        assert_eq!(choice["text"], text);
        let offsets = list("text_offset");
        let ends = list("tokens")
            .iter()
            .scan(0, |at, token| {
                let before = *at;
                *at += token.as_str().unwrap().chars().count();
                Some(json!(before))
            })
            .collect::<Vec<_>>();
        assert_eq!(offsets, ends);
        assert!(list("top_logprobs")[1..].iter().all(|top| top.as_object().unwrap().len() == 1));
    }
    // What was generated greedily is told as the most likely text, and as likely as then.
    let choice = &answer["choices"][0]["logprobs"];
    let n = whole.as_array().unwrap().len();
    for at in begin..n {
        let log = choice["token_logprobs"][at].as_f64().unwrap();
        let most = choice["top_logprobs"][at].as_object().unwrap().values().next().unwrap().as_f64();
        assert_eq!(Some(log), most, "{at}: {choice}");
        let then = told["logprobs"]["token_logprobs"][at - begin].as_f64().unwrap();
        assert!((log - then).abs() < 0.05, "{at}: {log} {then}");
    }
    // Streamed, it is the same in pieces; without a token, only the prompt is told.
    let streamed = server.post(TEXT, &with(body.clone(), &json!({"prompt": whole, "stream": true}))).events();
    let lists =
        streamed.iter().filter_map(|event| event["choices"][0]["logprobs"]["token_logprobs"].as_array());
    assert_eq!(lists.flatten().cloned().collect::<Vec<_>>(), *choice["token_logprobs"].as_array().unwrap());
    assert_eq!(streamed_text(&streamed), answer["choices"][0]["text"]);
    let none = server.post(TEXT, &with(body.clone(), &json!({"prompt": whole, "max_tokens": 0}))).ok();
    let lists = &none["choices"][0]["logprobs"];
    assert_eq!(
        lists["token_logprobs"].as_array().unwrap()[..],
        choice["token_logprobs"].as_array().unwrap()[..n]
    );
    assert_eq!(none["usage"]["completion_tokens"], 0);
    let many = json!({"prompt": vec!["water ".repeat(200); 80], "logprobs": 100});
    assert_eq!(server.post(TEXT, &with(body, &many)).error(400)["param"], "logprobs");
}

#[test]
fn anthropics_messages_are_answered_whole_and_streamed() {
    let (server, _dir) = with_tools();
    let path = "/v1/messages";
    let body = json!({
        "model": "any",
        "max_tokens": 12,
        "temperature": 0,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    });
    let whole = server.post(path, &body).ok();
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(whole["stop_reason"], "max_tokens");
    let text = whole["content"][0]["text"].as_str().unwrap();
    let stream = server.post(path, &with(body.clone(), &json!({"stream": true})));
    let mut names = Vec::new();
    let mut streamed = String::new();
    for event in stream.text.split("\n\n").filter(|event| event.starts_with("event: ")) {
        let (name, data) = event.trim_start_matches("event: ").split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        streamed += data["delta"]["text"].as_str().unwrap_or_default();
        if names.last() != Some(&name.to_owned()) {
            names.push(name.to_owned());
        }
    }
    assert_eq!(streamed, text);
    let order = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, order);
    let counted = server.post("/v1/messages/count_tokens", &body).ok()["input_tokens"].as_u64().unwrap();
    let usage = &whole["usage"];
    let read = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(counted, read);

    let tool = json!({
        "name": "weather",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 5}}, "required": ["city"]},
    });
    let result = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "Sunny."}]},
    ]);
    server.post(path, &with(body.clone(), &json!({"messages": result, "tools": [tool]}))).ok();
    for (wrong, part) in [
        (json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}), "source` is missing"),
        (
            json!({"messages": [{"role": "user", "content": [{
                "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAEC"},
            }]}]}),
            "this server reads no images",
        ),
        (json!({"tool_choice": {"type": "tool", "name": "none"}}), "names the tool `none`"),
    ] {
        let reply = server.post(path, &with(body.clone(), &wrong));
        let error = reply.json();
        assert_eq!(
            (reply.status, &error["type"], &error["error"]["type"]),
            (400, &json!("error"), &json!("invalid_request_error"))
        );
        assert!(error["error"]["message"].as_str().unwrap().contains(part), "{error}");
    }
}

#[test]
fn anthropics_output_follows_its_schema() {
    let (server, _dir) = with_tools();
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": false,
    });
    let body = json!({
        "max_tokens": 400,
        "temperature": 0,
        "messages": [{"role": "user", "content": "Hi"}],
        "thinking": {"type": "disabled"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        // Of Anthropic's own services.
        "cache_control": {"type": "ephemeral"},
        "speed": "standard",
    });
    let answer = server.post("/v1/messages", &body).ok();
    let text = answer["content"][0]["text"].as_str().unwrap();
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert!(value["a"].is_boolean(), "{answer}");
    let wrong = json!({"output_config": {"format": {"type": "xml"}}});
    let error = server.post("/v1/messages", &with(body, &wrong)).json();
    assert!(
        error["error"]["message"].as_str().unwrap().contains("`output_config.format.type` is `xml`"),
        "{error}"
    );
}

#[test]
fn ollama_says_what_the_template_can() {
    let (server, _dir) = with_tools();
    let shown = server.post("/api/show", &json!({"model": "tools"})).ok();
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking"]));
    assert_eq!(server.get("/v1/models").ok()["data"][0]["capabilities"], shown["capabilities"]);
}
