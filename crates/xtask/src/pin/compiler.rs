//! The system's C++ compiler, on small programs over a tree's headers.

use super::tree::Tree;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler's complaint about a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The file, as the compiler names it.
    pub file: String,
    /// From 1 on.
    pub line: usize,
    pub what: String,
}

/// A folder for programs, which is removed at the end.
pub struct Compiler {
    folder: PathBuf,
}

impl Compiler {
    /// Makes the folder.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("terrace-pin-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Checks a program of this name without making anything of it.
    ///
    /// # Errors
    /// There is no compiler.
    pub fn check(&self, tree: &Tree, name: &str, text: &str) -> Result<Vec<Complaint>, String> {
        let path = self.write(name, text)?;
        check_file(tree, &path)
    }

    /// Compiles a program of this name and runs it. Returns what it prints.
    ///
    /// # Errors
    /// It cannot be compiled or run.
    pub fn run(&self, tree: &Tree, name: &str, text: &str) -> Result<String, String> {
        let (source, program) = (self.write(name, text)?, self.folder.join(format!("{name}.bin")));
        let mut compile = compiler(tree);
        // Optimised, so that functions of headers that nothing calls are left out with what they call.
        let compiled = compile
            .arg("-O1")
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .output()
            .map_err(|error| error.to_string())?;
        if !compiled.status.success() {
            return Err(String::from_utf8_lossy(&compiled.stderr).trim().to_owned());
        }
        let ran = Command::new(&program).output().map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        // What is left there is the system's to remove.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Checks a file.
///
/// # Errors
/// There is no compiler.
pub fn check_file(tree: &Tree, path: &Path) -> Result<Vec<Complaint>, String> {
    let mut command = compiler(tree);
    let output = command
        .arg("-fsyntax-only")
        .arg(path)
        .output()
        .map_err(|error| format!("no C++ compiler: {error}"))?;
    let complaints: Vec<Complaint> =
        String::from_utf8_lossy(&output.stderr).lines().filter_map(complaint).collect();
    match complaints.is_empty() && !output.status.success() {
        true => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        false => Ok(complaints),
    }
}

fn compiler(tree: &Tree) -> Command {
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    // ggml's private headers are for the machine's own instructions.
    command.args(["-std=c++17", "-march=native", "-w", "-fmax-errors=0", "-DNDEBUG"]).args(tree.includes());
    command.env("LC_ALL", "C");
    command
}

/// Reads `file:12:3: error: what`.
fn complaint(line: &str) -> Option<Complaint> {
    let (place, what) = line.split_once(": error: ").or_else(|| line.split_once(": fatal error: "))?;
    let mut parts = place.rsplitn(3, ':');
    let (_, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Complaint { file: file.to_owned(), line: line.parse().ok()?, what: what.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_have_a_place() {
        let said = complaint("/a/b.cpp:12:3: error: 'x' was not declared: y").unwrap();
        assert_eq!((said.file.as_str(), said.line), ("/a/b.cpp", 12));
        assert_eq!(said.what, "'x' was not declared: y");
        assert_eq!(complaint("/a/b.cpp:12:3: note: here"), None);
    }
}
