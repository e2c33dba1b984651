// Grammars made of JSON schemas.

#include "text.h"

#include "json-schema-to-grammar.h"
#include "json.h"

extern "C" void terrace_schema_grammar(terrace_text schema, terrace_sink out) {
    out(json_schema_to_grammar(common_json::parse(schema.string())));
}
