use super::pattern::{pattern_grammar, written};
use super::*;
use terrace_ggml::common::{check_grammar, schema_grammar};

/// The schema, with a grammar of it that llama.cpp takes.
fn of(schema: Value) -> Schema {
    let read = Schema::of(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    let grammar = schema_grammar(&read.text).unwrap_or_else(|error| panic!("{}: {error}", read.text));
    check_grammar(&grammar).unwrap_or_else(|error| panic!("{error}: {grammar}"));
    read
}

fn text(schema: Value) -> Value {
    serde_json::from_str(&of(schema).text).unwrap()
}

#[test]
fn what_the_converter_does_not_hold_is_named() {
    for (schema, expected) in [
        (
            json!({"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
            vec!["#/exclusiveMaximum", "#/minimum"],
        ),
        (json!({"type": "integer", "multipleOf": 5}), vec!["#/multipleOf"]),
        (json!({"type": "array", "uniqueItems": true}), vec!["#/uniqueItems"]),
        (json!({"type": "array", "uniqueItems": false, "maxItems": 3}), vec![]),
        (json!({"type": "array", "contains": {"type": "null"}}), vec!["#/contains"]),
        (json!({"not": {"type": "string"}}), vec!["#/not"]),
        (json!({"type": "object", "if": {}, "then": {}, "title": "t"}), vec!["#/if", "#/then"]),
        (json!({"type": "string", "pattern": "^(?=a)b$"}), vec!["#/pattern"]),
        (json!({"type": "string", "pattern": "(a)\\1"}), vec!["#/pattern"]),
        (json!({"type": "string", "pattern": "^a$", "minLength": 5}), vec!["#/minLength"]),
        (json!({"type": "string", "format": "email"}), vec!["#/format"]),
        (json!({"type": "object", "minProperties": 1}), vec!["#/minProperties"]),
        (json!({"type": "object", "patternProperties": {"^a": {}}}), vec!["#/patternProperties"]),
        (
            json!({"properties": {"a": {"items": {"type": "number", "maximum": 2}}}}),
            vec!["#/properties/a/items/maximum"],
        ),
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}], "pattern": "a"}), vec!["#/pattern"]),
        (json!({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}), vec!["#/oneOf"]),
        (json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}), vec![]),
        (
            json!({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
                "a": {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]},
                "b": {"type": "object", "properties": {"k": {"const": 2}}, "required": ["k"]},
            }}),
            vec![],
        ),
        (json!({"allOf": [{"$ref": "#"}]}), vec!["#/allOf"]),
        (
            json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "number", "minimum": 1}, "unused": {"not": {}}}}),
            vec!["#/$defs/n/minimum"],
        ),
        (json!({"allOf": [{"type": "string", "maxLength": 2}, {"maxLength": 3}]}), vec!["#/allOf"]),
        (
            json!({"properties": {"foo": {}}, "patternProperties": {"^f": {"type": "null"}}}),
            vec!["#/patternProperties"],
        ),
        (json!({"type": "array", "items": false, "minItems": 1}), vec!["#/minItems"]),
        (json!({"type": "array", "minItems": 2.0, "maxItems": 1}), vec!["#/minItems"]),
        (
            json!({"type": "array", "prefixItems": [{"const": 1}], "minItems": 2, "unevaluatedItems": false}),
            vec!["#/unevaluatedItems"],
        ),
        (
            json!({"allOf": [
                {"properties": {"a": {}}, "additionalProperties": false},
                {"properties": {"b": {}}},
            ]}),
            vec!["#/allOf"],
        ),
        (json!({"allOf": [{"properties": {"a": true}}, {"unevaluatedProperties": false}]}), vec!["#/allOf"]),
        (json!({"oneOf": [{"const": 1}, {"const": 1.0}]}), vec!["#/oneOf"]),
        (
            json!({"properties": {"a": {"$id": "https://example.org/a", "items": {"$ref": "#"}}}}),
            vec!["#/properties/a/$id"],
        ),
        // What is nothing but a remark, or said of values of another type.
        (
            json!({"type": "integer", "title": "x", "propertyOrdering": [], "maxLength": 3, "format": "int32"}),
            vec![],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["a"], "additionalProperties": false}),
            vec![],
        ),
    ] {
        assert_eq!(of(schema.clone()).unenforced, expected, "{schema}");
    }
}

#[test]
fn what_the_converter_refuses_or_misses_is_said_in_its_words() {
    let any =
        json!({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false});
    assert_eq!(text(json!({"type": "object", "properties": {"a": true}, "required": ["a"]})), any);
    assert_eq!(text(json!({"items": true})), json!({"type": "array", "items": {}}));
    assert_eq!(text(json!({"type": "array", "items": false})), json!({"type": "array", "maxItems": 0}));
    let (number, string) = (json!({"type": "number"}), json!({"type": "string"}));
    assert_eq!(
        text(json!({"type": "array", "prefixItems": [number, true], "items": string, "minItems": 3})),
        json!({"type": "array", "prefixItems": [number, {}, string]})
    );
    let tree = text(json!({"type": "object", "properties": {"next": {"$ref": "#"}}}));
    assert_eq!(tree["properties"]["next"], json!({"$ref": "#/$defs/-0"}));
    assert_eq!(tree["$defs"]["-0"]["properties"]["next"], tree["properties"]["next"]);
    assert_eq!(
        text(json!({"type": "integer", "minimum": 1.5, "exclusiveMinimum": 3, "exclusiveMaximum": 9})),
        json!({"type": "integer", "minimum": 4, "maximum": 8})
    );
    assert_eq!(text(json!({"type": "string", "enum": ["a", 5, "b"], "const": "b"})), json!({"enum": ["b"]}));
    assert_eq!(
        text(json!({"allOf": [
            {"$ref": "#/$defs/a", "description": "x"},
            {"properties": {"b": string}, "required": ["b"]},
        ], "$defs": {"a": {"type": "object", "properties": {"a": number}, "required": ["a"]}}})),
        json!({"type": "object", "properties": {"a": number, "b": string}, "required": ["a", "b"],
            "additionalProperties": false})
    );
    for nothing in [json!({}), json!(true), json!({"description": "any"})] {
        let read = of(nothing);
        assert!(read.changed && read.text.contains("boolean"), "{}", read.text);
    }
    let plain = json!({"type": "object", "properties": {"a": string, "b": {"type": ["integer", "null"]}}});
    assert!(!of(plain).changed);
}

#[test]
fn patterns_are_those_of_the_written_text() {
    for (pattern, expected) in [
        ("^a-z$", Some(r"^(a-z)$")),
        (r"^\d{2,3}$", Some(r"^(([0-9]){2,3})$")),
        (r"^hello\\!$", Some(r"^(hello\\\\!)$")),
        (r#"^"x"$"#, Some(r#"^(\\"x\\")$"#)),
        (r"^(a|)b$", Some("^(((a)?)b)$")),
        (r"^[\d.\-]$", Some(r"^([\x2D-\x2E0-9])$")),
        (r"^a\/b$", Some("^(a/b)$")),
        ("^(?!x)a$", None),
        (r"^\bx$", None),
        ("^[a", None),
        ("^$", None),
    ] {
        assert_eq!(written(pattern).as_deref(), expected, "{pattern}");
    }
    // Without an anchor, anything may stand there.
    let free = written("b").unwrap();
    assert!(free.starts_with("^(([^") && free.contains(")*b(") && free.ends_with(")*)$"), "{free}");
    for pattern in
        ["b", r"\s", r"^[^a]+$", r"\D{3}", r"^(\d{3}-)?\w+@x\.(de|com)$", "^[\u{e4}-\u{fc}]*$", "^.{3,9}$"]
    {
        let schema = json!({"type": "string", "pattern": pattern});
        let grammar = schema_grammar(&of(schema).text).unwrap();
        let root = grammar.lines().find(|line| line.starts_with("root ::=")).unwrap();
        assert!(root.starts_with("root ::= \"\\\"\" ("), "any string is accepted: {pattern}: {grammar}");
    }
}

#[test]
fn what_is_no_schema_is_refused_with_its_place() {
    for (schema, part) in [
        (json!(false), "it allows nothing"),
        (json!(5), "`#` is neither an object nor a boolean"),
        (json!({"properties": {"a": 5}}), "`#/properties/a` is neither"),
        (json!({"type": "text"}), "`#/type` is `text`"),
        (json!({"$ref": "#/nowhere"}), "`#/$ref` is `#/nowhere`"),
        (json!({"$ref": "https://example.org"}), "only places in the schema itself"),
        (json!({"anyOf": []}), "`#/anyOf` is not an array with schemas"),
        (json!({"type": "integer", "minimum": 3, "maximum": 2}), "`#/maximum` is less"),
    ] {
        let error = Schema::of(&schema).unwrap_err().to_string();
        assert!(error.starts_with("cannot use the JSON schema: ") && error.contains(part), "{error}");
    }
}

#[test]
fn grammars_of_patterns_match_the_whole_text() {
    for (pattern, expected) in [
        (r"\d{3}-\d+", r#"root ::= ([0-9]){3,3} "-" ([0-9])+"#),
        ("^(yes|no)?$", r#"root ::= ((("yes" | "no")))?"#),
        (r#""\\n"#, r#"root ::= "\"\\n""#),
    ] {
        let grammar = pattern_grammar(pattern).unwrap();
        assert_eq!(grammar, expected, "{pattern}");
        check_grammar(&grammar).unwrap();
    }
    assert_eq!(pattern_grammar("(?=a)b"), None);
}

/// As much stack as a server's threads have.
#[test]
fn chains_of_references_take_no_stack() {
    let definitions: serde_json::Map<String, Value> = (0..9_000)
        .map(|number| (number.to_string(), json!({"items": {"$ref": format!("#/$defs/{}", number + 1)}})))
        .chain([("9000".to_owned(), json!({"type": "null"}))])
        .collect();
    let schema = json!({"$ref": "#/$defs/0", "$defs": definitions});
    let walk = std::thread::Builder::new().stack_size(512 << 10).spawn(move || Schema::of(&schema).is_ok());
    assert!(walk.unwrap().join().unwrap());
}
