//! One operation of the document: its parameters, body and answers.

use super::errors::ErrorForm;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Makes a type's schema, or a reference to it.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Content types, each with the schema of its content.
type Contents = Vec<(&'static str, SchemaOf)>;

/// A method of a path.
#[derive(Clone)]
pub struct Operation {
    summary: &'static str,
    is_open: bool,
    parameters: Vec<Value>,
    body: Option<Body>,
    answer: &'static str,
    contents: Contents,
    unchanged: bool,
    errors: Vec<(u16, ErrorForm)>,
}

#[derive(Clone)]
struct Body {
    schema: SchemaOf,
    /// Why it is not required. `None`: it is.
    optional: Option<&'static str>,
}

impl Operation {
    /// Creates an operation that answers with what `answer` describes.
    pub const fn new(summary: &'static str, answer: &'static str) -> Self {
        Self {
            summary,
            is_open: false,
            parameters: Vec::new(),
            body: None,
            answer,
            contents: Vec::new(),
            unchanged: false,
            errors: Vec::new(),
        }
    }

    /// Needs no key.
    pub fn open(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// Adds a parameter of the path.
    pub fn path(self, name: &str, description: Option<&str>, schema: Value) -> Self {
        self.parameter(name, "path", true, description, schema)
    }

    /// Adds a parameter of the query.
    pub fn query(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter(name, "query", false, Some(description), schema)
    }

    /// Adds a parameter anywhere.
    pub fn parameter(
        mut self,
        name: &str,
        place: &str,
        required: bool,
        description: Option<&str>,
        schema: Value,
    ) -> Self {
        let mut parameter = json!({"name": name, "in": place, "schema": schema});
        if required {
            parameter["required"] = true.into();
        }
        if let Some(description) = description {
            parameter["description"] = description.into();
        }
        self.parameters.push(parameter);
        self
    }

    /// Takes a JSON body.
    pub fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body { schema: SchemaGenerator::subschema_for::<T>, optional: None });
        self
    }

    /// Takes a JSON body that not all requests need.
    pub fn optional_body<T: JsonSchema>(mut self, description: &'static str) -> Self {
        self.body = Some(Body { schema: SchemaGenerator::subschema_for::<T>, optional: Some(description) });
        self
    }

    /// Answers with JSON.
    pub fn json<T: JsonSchema>(self) -> Self {
        self.content::<T>("application/json")
    }

    /// Answers with content of a type.
    pub fn content<T: JsonSchema>(mut self, kind: &'static str) -> Self {
        self.contents.push((kind, SchemaGenerator::subschema_for::<T>));
        self
    }

    /// Answers 304 to a browser that has the content.
    pub fn unless_unchanged(mut self) -> Self {
        self.unchanged = true;
        self
    }

    /// Can fail with these statuses.
    pub fn errors(mut self, form: ErrorForm, lists: &[&[u16]]) -> Self {
        self.errors.extend(lists.iter().copied().flatten().map(|&status| (status, form)));
        self
    }

    /// The operation as OpenAPI has it.
    pub fn describe(&self, generator: &mut SchemaGenerator) -> Value {
        let mut answers = Map::new();
        let mut answer = json!({"description": self.answer});
        if !self.contents.is_empty() {
            let contents = self.contents.iter();
            let contents =
                contents.map(|(kind, schema)| ((*kind).into(), json!({"schema": schema(generator)})));
            answer["content"] = Value::Object(contents.collect());
        }
        answers.insert("200".into(), answer);
        if self.unchanged {
            answers.insert("304".into(), json!({"description": "The browser has it."}));
        }
        for (status, form) in &self.errors {
            answers.insert(status.to_string(), form.reference());
        }
        let mut operation = json!({"summary": self.summary, "responses": answers});
        if self.is_open {
            operation["security"] = json!([]);
        }
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.clone().into();
        }
        if let Some(Body { schema, optional }) = &self.body {
            let content = json!({"application/json": {"schema": schema(generator)}});
            operation["requestBody"] = match optional {
                None => json!({"required": true, "content": content}),
                Some(description) => json!({"description": description, "content": content}),
            };
        }
        operation
    }
}
