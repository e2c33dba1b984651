//! Keywords of JSON Schema.

/// Keywords that say what is valid. All others are annotations.
pub(super) const ASSERTIONS: [&str; 43] = [
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "then",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
pub(super) const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
/// Keywords of each type. Those of another type say nothing about it.
pub(super) const OF_OBJECTS: [&str; 9] = [
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "unevaluatedProperties",
];
pub(super) const OF_ARRAYS: [&str; 10] = [
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
];
pub(super) const OF_STRINGS: [&str; 4] = ["pattern", "format", "minLength", "maxLength"];
pub(super) const OF_NUMBERS: [&str; 5] =
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

/// Formats that the converter knows.
pub(super) const FORMATS: [&str; 9] =
    ["date", "time", "date-time", "uuid", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5"];
