//! Templates in the styles of published models. The expected texts are the output of
//! `apply_chat_template`.

use super::ask::{Ask, Source};
use super::desk::Desk;
use super::{ChatTemplateError, Conversation, Message, ReasoningFormat, ToolChoice};
use serde_json::{Value, json};

fn parse(source: &str, bos: &str, eos: &str) -> Result<Desk, ChatTemplateError> {
    let mut desk = Desk::default();
    desk.answer(&Ask::Parse(Source { text: source.into(), bos: bos.into(), eos: eos.into() }))?;
    Ok(desk)
}

fn render(source: &str, messages: &[Message], generate: bool) -> Result<String, ChatTemplateError> {
    let mut desk = parse(source, "<s>", "</s>")?;
    let conversation = Conversation { add_generation_prompt: generate, ..Conversation::of(messages) };
    let applied = desk.answer(&Ask::Apply(serde_json::to_string(&conversation).unwrap().into()))?;
    let applied: serde_json::Value = serde_json::from_str(&applied).unwrap();
    Ok(applied["prompt"].as_str().unwrap().to_owned())
}
fn talk() -> Vec<Message> {
    vec![
        Message::new("system", "Be brief."),
        Message::new("user", " Hi <there> & 'you' "),
        Message::new("assistant", "Hello."),
        Message::new("user", "Bye"),
    ]
}

#[test]
fn chatml() {
    let source = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + \
                  '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <there> & 'you' <|im_end|>\n\
                    <|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n";
    assert_eq!(render(source, &talk(), true).unwrap(), format!("{expected}<|im_start|>assistant\n"));
    assert_eq!(render(source, &talk(), false).unwrap(), expected);
}

#[test]
fn llama_3() {
    let source = "{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now(\"%d %b %Y\") %}
    {%- else %}
        {%- set date_string = \"26 Jul 2024\" %}
    {%- endif %}
{%- endif %}
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = \"\" %}
{%- endif %}
{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}
{{- \"Today Date: \" + date_string + \"\\n\\n\" }}
{%- if tools is not none %}
    {{- \"tools\" }}
{%- endif %}
{{- system_message }}
{{- \"<|eot_id|>\" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
";
    let text = render(source, &talk(), true).unwrap();
    // The date is that of the machine.
    assert!(text.starts_with("<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: "), "{text}");
    assert!(
        text.contains(
            "\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi <there> & 'you'<|eot_id|>"
        ),
        "{text}"
    );
    assert!(text.ends_with("Bye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"), "{text}");
    assert!(!text.contains("tools"));
}

const MISTRAL: &str = "{%- if messages[0][\"role\"] == \"system\" %}
    {%- set system_message = messages[0][\"content\"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if (message[\"role\"] == \"user\") != (ns.index % 2 == 0) %}
        {{- raise_exception(\"After the optional system message, conversation roles must alternate user/assistant/user/assistant/...\") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message[\"role\"] == \"user\" %}
        {%- if loop.last and system_message is defined %}
            {{- \"[INST] \" + system_message + \"\\n\\n\" + message[\"content\"] + \"[/INST]\" }}
        {%- else %}
            {{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}
        {%- endif %}
    {%- elif message[\"role\"] == \"assistant\" %}
        {{- \" \" + message[\"content\"] + eos_token}}
    {%- endif %}
{%- endfor %}
";

#[test]
fn mistral() {
    assert_eq!(
        render(MISTRAL, &talk(), true).unwrap(),
        "<s>[INST]  Hi <there> & 'you' [/INST] Hello.</s>[INST] Be brief.\n\nBye[/INST]"
    );
}

#[test]
fn a_refusal_is_in_the_templates_words() {
    let twice = [Message::new("user", "a"), Message::new("user", "b")];
    let error = render(MISTRAL, &twice, true).unwrap_err();
    assert!(matches!(&error, ChatTemplateError::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("must alternate"), "{error}");
}

#[test]
fn qwen3_reversed_loop_namespace_and_thinking() {
    let source = "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == \"assistant\" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}{{- message.tool_calls | tojson }}{%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}";
    let talk = [
        Message::new("user", "one"),
        Message::new("assistant", "<think>\nhm\n</think>\n\nfirst"),
        Message::new("user", "two"),
    ];
    // Only thoughts after the last question are kept.
    assert_eq!(
        render(source, &talk, true).unwrap(),
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\nfirst<|im_end|>\n\
         <|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(
        render(source, &talk[..2], false).unwrap(),
        "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nfirst<|im_end|>\n"
    );
}

#[test]
fn gemma() {
    let source = "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
        {% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}{% endif %}\
        {% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
        {{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}\
        {% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}";
    assert_eq!(
        render(source, &talk()[1..], true).unwrap(),
        "<s><start_of_turn>user\nHi <there> & 'you'<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n\
         <start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    );
    // What the template has no role for goes into the first question.
    let text = render(source, &talk(), true).unwrap();
    assert!(text.starts_with("<s><start_of_turn>user\nBe brief.\n Hi <there>"), "{text}");
}

#[test]
fn tojson_writes_as_python_does() {
    let source = "{{ {'a': [1, 2.5, none], 'b': '<é\"&>'} | tojson }}";
    assert_eq!(render(source, &[], false).unwrap(), r#"{"a": [1, 2.5, null], "b": "<é\"&>"}"#);
    let source = "{{ {'a': [true], 'b': {}} | tojson(indent=2) }}";
    assert_eq!(render(source, &[], false).unwrap(), "{\n  \"a\": [\n    true\n  ],\n  \"b\": {}\n}");
}

#[test]
fn generation_tags_are_plain_blocks() {
    let source =
        "{% for m in messages %}\n{%- generation -%}\n  {{ m.content }}\n{%- endgeneration %}\n{% endfor %}|";
    assert_eq!(render(source, &[Message::new("user", "x")], false).unwrap(), "x|");
}

#[test]
fn errors_are_one_line_and_name_the_template_line() {
    let Err(error) = parse("a\n{% for x in %}", "", "") else { panic!("that is no template") };
    assert!(matches!(error, ChatTemplateError::Syntax(_)), "{error:?}");
    assert!(!error.to_string().contains('\n'), "{error}");
    let error = render("a\n\n{{ messages.foo.bar() }}", &talk(), false).unwrap_err();
    assert!(matches!(error, ChatTemplateError::Render(_)), "{error:?}");
    assert!(error.to_string().contains("line 3") && !error.to_string().contains('\n'), "{error}");
}

#[test]
fn the_seeds_of_the_fuzz_target_are_rendered_or_refused() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/chat_template");
    let mut rendered = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        let text = std::fs::read_to_string(seed.unwrap().path()).unwrap();
        let source = text.split('\0').next().unwrap();
        match render(source, &talk(), true) {
            Ok(_) => rendered += 1,
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    assert!(rendered > 2, "{rendered}");
}

/// Templates with a call in their form: Qwen's and Llama's.
const CALLERS: [(&str, &str, &str); 2] = [
    (
        include_str!("../../../terrace/tests/it/tools.jinja"),
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"R\"}}\n</tool_call>",
        "tags",
    ),
    (LLAMA_CALLS, "{\"name\": \"weather\", \"parameters\": {\"city\": \"R\"}}", "bare JSON"),
];

const LLAMA_CALLS: &str = "{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<|start|>assistant<|end|>\n\n' }}
        {%- set call = message.tool_calls[0].function %}
        {{- '{\"name\": \"' + call.name + '\", ' }}
        {{- '\"parameters\": ' }}
        {{- call.arguments | tojson }}
        {{- '}' }}
        {{- '<|eot|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start|>ipython<|end|>\n\n' + message.content + '<|eot|>' }}
    {%- else %}
        {{- '<|start|>' + message.role + '<|end|>\n\n' }}
        {%- if loop.first and tools %}
            {%- for t in tools %}{{- t | tojson }}{{- '\n' }}{%- endfor %}
        {%- endif %}
        {{- message.content + '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant<|end|>\n\n' }}{%- endif %}";

fn with_tool_and_schema(choice: ToolChoice) -> Conversation {
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let schema =
        json!({"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]});
    Conversation {
        tools: vec![json!({"type": "function", "function": {
            "name": "weather", "description": "", "parameters": city,
        }})],
        tool_choice: choice,
        json_schema: schema.to_string(),
        reasoning_format: ReasoningFormat::None,
        ..Conversation::of(&talk()[1..2])
    }
}

/// Content of a text and the names of its calls, read in pieces of `step` bytes.
fn read(desk: &mut Desk, form: &impl serde::Serialize, text: &str, step: usize) -> (String, Vec<String>) {
    desk.answer(&Ask::Read(serde_json::to_string(form).unwrap().into())).unwrap();
    let (mut content, mut calls) = (String::new(), Vec::new());
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(step).collect();
    for (number, piece) in bytes.iter().enumerate() {
        let text = std::str::from_utf8(piece).unwrap().into();
        let Ok(added) = desk.answer(&Ask::Push { text, more: number + 1 < bytes.len() }) else { continue };
        for one in serde_json::from_str::<Vec<Value>>(&added).unwrap() {
            content += one["content"].as_str().unwrap_or_default();
            calls.extend(one["call"]["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    (content, calls)
}

#[test]
fn with_tools_and_a_schema_the_answer_is_a_call_or_json() {
    for (source, call, style) in CALLERS {
        let mut desk = parse(source, "", "").unwrap();
        let answer = "{\"answer\": \"a <tool_call> is none\"}";
        let written = super::template::write(&with_tool_and_schema(ToolChoice::Auto), true, &mut |ask| {
            desk.answer(ask)
        })
        .unwrap();
        let grammar = written.grammar.unwrap();
        assert!(!grammar.lazy, "{style}");
        for part in ["call-root | json-root", "weather", "answer"] {
            assert!(grammar.text.contains(part), "{style}: {part}: {}", grammar.text);
        }
        let root = grammar.text.lines().find(|line| line.starts_with("call-root")).unwrap();
        assert!(!root.contains("until-"), "{style}: nothing else comes before a call: {root}");
        let form = written.form.unwrap();
        for step in [1, 3, 1000] {
            assert_eq!(read(&mut desk, &form, answer, step), (answer.into(), vec![]), "{style} by {step}");
            let (content, calls) = read(&mut desk, &form, call, step);
            assert_eq!((content.trim(), &calls[..]), ("", &["weather".to_owned()][..]), "{style} by {step}");
        }
        let written = super::template::write(&with_tool_and_schema(ToolChoice::Required), true, &mut |ask| {
            desk.answer(ask)
        })
        .unwrap();
        let grammar = written.grammar.unwrap().text;
        assert!(grammar.contains("weather") && !grammar.contains("answer"), "{style}: {grammar}");
        let written = super::template::write(&with_tool_and_schema(ToolChoice::None), true, &mut |ask| {
            desk.answer(ask)
        })
        .unwrap();
        let grammar = written.grammar.unwrap().text;
        assert!(grammar.contains("answer") && !grammar.contains("weather"), "{style}: {grammar}");
    }
}

/// The token limit cut the call off, and the client gives back what it got.
#[test]
fn calls_that_were_cut_off_are_texts() {
    let items = "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}<{{ c.function.name }}\
        {% for k, v in c.function.arguments | items %} {{ k }}={{ v }}{% endfor %}>{% endfor %}\
        {% else %}{{ m.content }};{% endif %}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}";
    let text = "{% for m in messages %}{% if m.tool_calls %}<{{ m.tool_calls[0].function.name }} \
        {{ m.tool_calls[0].function.arguments + '' }}>{% else %}{{ m.content }};{% endif %}{% endfor %}\
        {% if tools %}{{ tools | tojson }}{% endif %}";
    for source in [CALLERS[0].0, CALLERS[1].0, items, text] {
        for cut in ["{", "{\"city\": \"R", "", "[1]", "null"] {
            let mut desk = Desk::default();
            let source = Source { text: source.into(), bos: String::new(), eos: String::new() };
            let caps: Value = serde_json::from_str(&desk.answer(&Ask::Parse(source)).unwrap()).unwrap();
            let call =
                json!({"type": "function", "id": "c", "function": {"name": "weather", "arguments": cut}});
            let messages = vec![
                json!({"role": "user", "content": "Hi"}),
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                json!({"role": "tool", "content": "cut off", "tool_call_id": "c"}),
                json!({"role": "user", "content": "Again"}),
            ];
            let talk = Conversation { messages, ..Conversation::default() };
            let takes_objects = caps["supports_object_arguments"] == true;
            let written = super::template::write(&talk, takes_objects, &mut |ask| desk.answer(ask));
            let prompt = written.unwrap_or_else(|error| panic!("{cut}: {error}")).prompt;
            assert!(prompt.contains("weather") && prompt.contains("Again"), "{prompt}");
            let escaped = json!(cut).to_string();
            assert!(prompt.contains(cut) || prompt.contains(&escaped), "{cut}: {prompt}");
        }
    }
}
