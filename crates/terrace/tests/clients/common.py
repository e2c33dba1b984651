"""What tests of several clients ask, and what every answer to it has to be."""

import json

import jsonschema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 3, "maximum": 5},
        "color": {"enum": ["red", "green"]},
    },
    "required": ["name", "age", "color"],
    "additionalProperties": False,
}
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
WEATHER = {"name": "weather", "description": "Tells the weather.", "parameters": PLACE}
NOW = {"name": "now", "description": "Tells the time.", "parameters": NOTHING}
TOOLS = [{"type": "function", "function": function} for function in (WEATHER, NOW)]
SCHEMAS = {"weather": PLACE, "now": NOTHING}

ASKED = [{"role": "user", "content": "What is the weather in Rome?"}]
# A thought, and an answer after it, as the model's template writes them.
THINKING = 'root ::= "<think>\\nhm\\n</think>\\n\\nyes"'


def valid(text, schema=PERSON):
    """The JSON of a text, which follows the schema."""
    value = json.loads(text) if isinstance(text, str) else text
    jsonschema.validate(value, schema)
    return value


def called(name, arguments):
    """Checks a call by the schema of its tool."""
    assert name in SCHEMAS
    return valid(arguments, SCHEMAS[name])
