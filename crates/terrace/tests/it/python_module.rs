//! The Python module of the wheel, with this program; its tests are in `packaging/python/tests`.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

#[test]
fn the_python_module_drives_the_program() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/python/tests");
    let home = tempfile::tempdir().unwrap();
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "discover", "--start-directory"]).arg(tests);
    python.env("TERRACE_PROGRAM", env!("CARGO_BIN_EXE_terrace")).env("HOME", home.path());
    let said = match python.env_remove("XDG_CACHE_HOME").env_remove("XDG_CONFIG_HOME").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("not tried: there is no python3");
            return;
        }
        said => said.unwrap(),
    };
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.contains("Ran 1") && text.ends_with("OK\n"), "{text}");
}
