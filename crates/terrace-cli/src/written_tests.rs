use super::*;

#[test]
fn inputs_are_found_in_parts_of_values_and_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for number in 1..=3 {
        std::fs::write(path(&format!("m-0000{number}-of-00003.gguf")), "GGUF").unwrap();
    }
    for name in ["lora.gguf", "donor"] {
        std::fs::write(path(name), "GGUF").unwrap();
    }
    let first = path("m-00001-of-00003.gguf");
    let mut written = Written::default();
    for value in [
        first.display().to_string(),
        format!("{}:0.5", path("lora.gguf").display()),
        format!("name={}", path("donor").display()),
    ] {
        written.add_inputs(value.as_ref());
    }
    written.outputs = vec![Output::new(path("m-00003-of-00003.gguf"), &terrace_quantize::FILE)];
    assert!(written.check().unwrap_err().to_string().contains("reads this file"));
    for name in ["lora.gguf", "donor"] {
        written.outputs = vec![Output::new(path(name), &terrace_quantize::FILE)];
        assert!(written.check().is_err(), "{name}");
    }
    written.outputs = vec![Output::new(path("new.gguf"), &terrace_quantize::FILE)];
    written.check().unwrap();
    written.outputs.push(Output::new(dir.path().join("./new.gguf"), &terrace_quantize::FILE));
    assert!(written.check().unwrap_err().to_string().contains("two outputs"));
}

/// The plug-in's messages are recognised here by the same form.
#[test]
fn marks_begin_what_is_written() {
    assert!(SVG.recognises(SVG_MARK.as_bytes()));
    assert!(!LAST_LOGITS.recognises(b"") && !NEW_MODEL.recognises(b"GGUF"));
}
