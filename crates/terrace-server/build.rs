//! Compresses the libraries of the page, which are many times as large as the page itself.

#![allow(clippy::disallowed_methods, reason = "a build script is told things by the environment")]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo")]

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::Path;
use std::{env, fs};

const FOLDER: &str = "src/admin/page/vendor";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={FOLDER}");
    let out = env::var_os("OUT_DIR").expect("cargo names a folder");
    for file in
        fs::read_dir(FOLDER).expect("the libraries are there").map(|file| file.expect("a file").path())
    {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        if !file.is_file() || name.starts_with("LICENSE") {
            continue;
        }
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&fs::read(&file).expect("a file")).expect("memory takes all");
        let packed = packed.finish().expect("memory takes all");
        fs::write(Path::new(&out).join(name + ".gz"), packed).expect("the folder takes files");
    }
}
