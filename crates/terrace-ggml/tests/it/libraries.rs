//! Libraries of backends: what fits is loaded, and everything else is refused with its reason before
//! any of its functions is called (the imitations end the process then).

use tempfile::TempDir;
use terrace_ggml::devices::backends;
use terrace_ggml::devices::libraries::{LibraryError, load_backend, version};
use terrace_ggml::testing::library::Library;

fn load(library: &Library) -> Result<terrace_ggml::devices::libraries::LoadedBackend, LibraryError> {
    let folder = TempDir::new().unwrap();
    load_backend(&library.write(folder.path(), "libggml-imitation.so"))
}

#[test]
fn what_fits_is_loaded_once() {
    let folder = TempDir::new().unwrap();
    let path = Library::default().write(folder.path(), "libggml-imitation.so");
    let loaded = load_backend(&path).unwrap();
    assert_eq!((loaded.name.as_str(), loaded.devices.len()), ("Imitation", 0));
    assert_eq!(loaded.version, format!("{} (commit c0ffee)", version()));
    assert!(backends().contains(&"Imitation".to_owned()), "{:?}", backends());
    let known = load_backend(&path).unwrap_err();
    assert_eq!(known, LibraryError::Known { path, backend: "Imitation".into() });
}

#[test]
fn other_versions_of_ggml_are_refused_with_both() {
    let other = Library { version: Some("0.25.3".into()), refused: true, ..Library::default() };
    let error = load(&other).unwrap_err().to_string();
    let ends =
        format!("was built for ggml 0.25.3 (commit c0ffee), but this program needs ggml {}", version());
    assert!(error.ends_with(&ends), "{error}");
    // Of another API version as well, which is not asked for then.
    let error = load(&Library { api: 2, ..other }).unwrap_err();
    assert!(matches!(error, LibraryError::Version { .. }), "{error}");
    let untold = load(&Library { version: None, refused: true, ..Library::default() }).unwrap_err();
    assert!(untold.to_string().contains("does not say which ggml"), "{untold}");
}

/// The linker takes a library that is loaded for every one of the same name.
#[test]
fn what_was_loaded_before_does_not_vouch_for_others() {
    let (first, second, third) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    load_backend(&Library::default().write(first.path(), "libggml-imitation.so")).unwrap();
    let other = Library { version: Some("0.25.3".into()), refused: true, ..Library::default() };
    let path = other.write(second.path(), "libggml-other.so");
    let error = load_backend(&path).unwrap_err();
    assert!(matches!(error, LibraryError::Version { .. }), "{error}");
    let alone = third.path().join("libggml-other.so");
    std::fs::copy(path, &alone).unwrap();
    let error = load_backend(&alone).unwrap_err();
    assert!(matches!(error, LibraryError::NoVersion { .. }), "{error}");
}

#[test]
fn other_layouts_of_the_same_version_are_refused() {
    let refused = Library { refused: true, ..Library::default() };
    let tensors = load(&Library { same_tensors: false, ..refused.clone() }).unwrap_err().to_string();
    assert!(tensors.contains("ggml_tensor_overhead is") && tensors.contains("commit c0ffee"), "{tensors}");
    let operations = load(&Library { same_operations: false, ..refused }).unwrap_err().to_string();
    assert!(operations.contains("its operation 3 is not"), "{operations}");
}

#[test]
fn another_api_version_is_refused_before_any_call() {
    let error = load(&Library { api: 2, refused: true, ..Library::default() }).unwrap_err();
    assert!(matches!(error, LibraryError::Api { theirs: 2, .. }), "{error}");
    assert!(!backends().contains(&"Imitation".to_owned()));
}

#[test]
fn what_is_missing_is_named() {
    let missing = load(&Library { missing: true, ..Library::default() }).unwrap_err().to_string();
    assert!(
        missing.contains("cannot be loaded") && missing.contains("libimitation-driver.so.7"),
        "{missing}"
    );
    let driver = load(&Library { driver: false, ..Library::default() }).unwrap_err();
    assert!(matches!(driver, LibraryError::NoDriver { .. }), "{driver}");
    let entry = load(&Library { entry: false, ..Library::default() }).unwrap_err();
    assert!(matches!(entry, LibraryError::NotABackend { .. }), "{entry}");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("libggml-text.so");
    std::fs::write(&path, "text").unwrap();
    let text = load_backend(&path).unwrap_err();
    assert!(matches!(text, LibraryError::Open { .. }), "{text}");
    let none = load_backend(&folder.path().join("none.so")).unwrap_err().to_string();
    assert!(none.contains("No such file"), "{none}");
}
