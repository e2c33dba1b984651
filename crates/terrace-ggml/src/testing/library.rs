//! Libraries that look like ggml's backends, compiled by the system's C compiler.

use crate::devices::libraries::version;
use crate::pin::layout::layout;
use llama_cpp_sys_2 as sys;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A backend in a library, without devices.
#[derive(Clone, Debug)]
pub struct Library {
    /// The version of ggml that it was built for; `None` means that it does not tell.
    pub version: Option<String>,
    /// Of its interface.
    pub api: i32,
    /// True if its tensors have the size of this ggml's.
    pub same_tensors: bool,
    /// True if its operations have the numbers of this ggml's.
    pub same_operations: bool,
    /// True if it has the entry of a backend.
    pub entry: bool,
    /// True if it finds a driver.
    pub driver: bool,
    /// True if a library that it depends on is missing.
    pub missing: bool,
    /// True if it ends the process when anything of it is called.
    pub refused: bool,
}

impl Default for Library {
    fn default() -> Self {
        Self {
            version: Some(version()),
            api: layout().api_version(),
            same_tensors: true,
            same_operations: true,
            entry: true,
            driver: true,
            missing: false,
            refused: false,
        }
    }
}

impl Library {
    /// Compiles it, and the `libggml-base.so.0` that it depends on, into a folder. Returns its path.
    ///
    /// # Panics
    /// If there is no C compiler, or the folder is not writable.
    pub fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let (base, missing) = ("libggml-base.so.0", "libimitation-driver.so.7");
        let mut own = vec![
            format!("-DAPI={}", self.api),
            format!("-DOWN_API={}", layout().api_version()),
            format!("-DREFUSED={}", u8::from(self.refused)),
            format!("-DNO_DRIVER={}", u8::from(!self.driver)),
        ];
        let mut linked = Vec::new();
        if !self.entry {
            own.push("-DNO_ENTRY".into());
        }
        if let Some(version) = &self.version {
            compile(folder, base, &self.of_base(version), &[]);
            own.push("-DVERSION".into());
            linked.push(base);
        }
        if self.missing {
            own.push("-DMISSING".into());
            // A driver's library needs nothing but a name and a function.
            let driver =
                ["-Dggml_backend_init=missing", "-DAPI=0", "-DOWN_API=1", "-DREFUSED=0", "-DNO_DRIVER=0"];
            compile(folder, missing, &driver.map(str::to_owned), &[]);
            linked.push(missing);
        }
        compile(folder, name, &own, &linked);
        if self.missing {
            std::fs::remove_file(folder.join(missing)).expect("just written");
        }
        folder.join(name)
    }

    fn of_base(&self, version: &str) -> Vec<String> {
        // SAFETY: no preconditions.
        let (tensor, graph) = unsafe { (sys::ggml_tensor_overhead(), sys::ggml_graph_overhead()) };
        let mut operations: Vec<String> = (0..sys::GGML_OP_COUNT)
            // SAFETY: numbers below the count have names, which are static.
            .map(|op| unsafe { CStr::from_ptr(sys::ggml_op_name(op)) }.to_string_lossy().into_owned())
            .collect();
        if !self.same_operations {
            operations.insert(3, "NEW".into());
        }
        let operations: Vec<String> = operations.iter().map(|name| format!("\"{name}\"")).collect();
        vec![
            "-DBASE".into(),
            format!("-DVERSION=\"{version}\""),
            format!("-DTENSOR={}", if self.same_tensors { tensor } else { tensor + 16 }),
            format!("-DGRAPH={graph}"),
            format!("-DOPS={}", operations.join(",")),
        ]
    }
}

#[expect(clippy::disallowed_methods, reason = "a test writes the source that it compiles")]
fn compile(folder: &Path, name: &str, defines: &[String], linked: &[&str]) {
    let source = folder.join(format!("{name}.c"));
    std::fs::write(&source, include_str!("library.c")).expect("the folder is writable");
    let output = Command::new("cc")
        .current_dir(folder)
        .args(["-shared", "-fPIC", "-O0", "-Wl,-rpath,$ORIGIN"])
        .arg(format!("-Wl,-soname,{name}"))
        .args(defines)
        .arg(&source)
        .args(linked)
        .args(["-o", name])
        .output()
        .expect("a C compiler, as llama.cpp's build needs one");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(source).expect("just written");
}
