//! The hand-declared vtables, compared with the header of the pinned release. A C program prints
//! every size and offset. A field that upstream adds, drops or moves fails here, not at run time.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;
use terrace_ggml::testing::abi;

/// The directory where cargo unpacked the pinned llama-cpp-sys-2 with its headers.
pub fn sources() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform"])
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let sys =
        packages.iter().find(|p| p["name"] == "llama-cpp-sys-2").expect("the -sys crate is a dependency");
    PathBuf::from(sys["manifest_path"].as_str().expect("a path")).with_file_name("llama.cpp")
}

/// Sizes and offsets of these structs and fields according to the C compiler.
fn from_header(names: &[(&str, &str, Vec<&str>)]) -> BTreeMap<String, usize> {
    from_header_of(None, names)
}

/// The same, according to the header of another version, which lies in `src/pin/headers`.
fn from_header_of(version: Option<&str>, names: &[(&str, &str, Vec<&str>)]) -> BTreeMap<String, usize> {
    let ggml = sources().join("ggml");
    let mut program = String::from(
        "#define NDEBUG\n#include <stddef.h>\n#include <stdio.h>\n#include \"ggml-backend-impl.h\"\n#include \"ggml-impl.h\"\n\
         #include \"ggml-cpu-impl.h\"\nvoid ggml_abort(const char *f, int l, const char *m, ...) { for (;;); }\nint main(void) {\n\
         printf(\"API = %d\\n\", GGML_BACKEND_API_VERSION);\n",
    );
    for (rust, c, fields) in names {
        program += &format!("printf(\"{rust} = %zu\\n\", sizeof(struct {c}));\n");
        for field in fields {
            program += &format!("printf(\"{rust}.{field} = %zu\\n\", offsetof(struct {c}, {field}));\n");
        }
    }
    program += "return 0; }\n";
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let name = version.unwrap_or("abi");
    let (source, binary) = (dir.join(format!("{name}.c")), dir.join(name));
    let headers = version
        .map(|version| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/pin/headers").join(version));
    std::fs::write(&source, program).expect("the target directory is writable");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-march=native"])
        .args(headers.iter().flat_map(|headers| ["-I".as_ref(), headers.as_os_str()]))
        .arg("-I")
        .arg(ggml.join("include"))
        .arg("-I")
        .arg(ggml.join("src"))
        .arg("-I")
        .arg(ggml.join("src/ggml-cpu"))
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status()
        .expect("a C compiler, as llama.cpp's build needs one");
    assert!(status.success(), "the header does not compile");
    let output = Command::new(&binary).output().expect("the program runs");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| {
            let (name, number) = line.split_once(" = ").expect("name = number");
            (name.to_owned(), number.parse().expect("a number"))
        })
        .collect()
}

macro_rules! layout {
    ($($rust:ident = $c:literal { $($field:ident),* $(,)? })*) => {{
        let names = vec![$((stringify!($rust), $c, vec![$(stringify!($field)),*])),*];
        let mut ours = BTreeMap::new();
        $(
            ours.insert(stringify!($rust).to_owned(), size_of::<abi::$rust>());
            $(ours.insert(concat!(stringify!($rust), ".", stringify!($field)).to_owned(), offset_of!(abi::$rust, $field));)*
        )*
        (names, ours)
    }};
}

#[test]
fn vtables_are_those_of_the_pinned_header() {
    let (names, mut ours) = layout! {
        BufferTypeInterface = "ggml_backend_buffer_type_i" {
            get_name, alloc_buffer, alloc_buffer_n, get_alignment, get_max_size, get_alloc_size, get_alloc_size_n, is_host,
        }
        BufferType = "ggml_backend_buffer_type" { iface, device, context }
        BufferInterface = "ggml_backend_buffer_i" {
            free_buffer, get_base, init_tensor, memset_tensor, set_tensor, get_tensor, set_tensor_2d, get_tensor_2d,
            cpy_tensor, clear, reset,
        }
        Buffer = "ggml_backend_buffer" { iface, buft, context, size, usage }
        BackendInterface = "ggml_backend_i" {
            get_name, free, set_tensor_async, get_tensor_async, set_tensor_2d_async, get_tensor_2d_async, cpy_tensor_async,
            synchronize, graph_plan_create, graph_plan_free, graph_plan_update, graph_plan_compute, graph_compute,
            event_record, event_wait, graph_optimize,
        }
        Backend = "ggml_backend" { guid, iface, device, context }
        DeviceInterface = "ggml_backend_device_i" {
            get_name, get_description, get_memory, get_type, get_props, init_backend, get_buffer_type,
            get_host_buffer_type, buffer_from_host_ptr, supports_op, supports_buft, offload_op, event_new, event_free,
            event_synchronize,
        }
        Device = "ggml_backend_device" { iface, reg, context }
        RegInterface = "ggml_backend_reg_i" { get_name, get_device_count, get_device, get_proc_address }
        Reg = "ggml_backend_reg" { api_version, iface, context }
        Graph = "ggml_cgraph" {
            size, n_nodes, n_leafs, nodes, grads, grad_accs, leafs, use_counts, visited_hash_set, order, uid,
        }
        HashSet = "ggml_hash_set" { size, used, keys }
        CustomOpParams = "ggml_custom_op_params" { fun, n_tasks, userdata }
        ComputeParams = "ggml_compute_params" { ith, nth, wsize, wdata, threadpool, use_ref }
    };
    ours.insert("API".to_owned(), usize::try_from(abi::API_VERSION).expect("positive"));
    assert_eq!(ours, from_header(&names));
}

#[test]
fn vtables_of_hosts_are_those_of_their_headers() {
    let api = |version: usize| [("API".to_owned(), version)];
    let (names, plain) = layout! {
        BufferTypeInterface2 = "ggml_backend_buffer_type_i" {
            get_name, alloc_buffer, get_alignment, get_max_size, get_alloc_size, is_host,
        }
        BufferType2 = "ggml_backend_buffer_type" { iface, device, context }
        BufferInterfacePlain = "ggml_backend_buffer_i" {
            free_buffer, get_base, init_tensor, memset_tensor, set_tensor, get_tensor, cpy_tensor, clear, reset,
        }
        BufferPlain = "ggml_backend_buffer" { iface, buft, context, size, usage }
        BackendInterfacePlain = "ggml_backend_i" {
            get_name, free, set_tensor_async, get_tensor_async, cpy_tensor_async, synchronize, graph_plan_create,
            graph_plan_free, graph_plan_update, graph_plan_compute, graph_compute, event_record, event_wait, graph_optimize,
        }
        BackendPlain = "ggml_backend" { guid, iface, device, context }
    };
    let plain: BTreeMap<_, _> = plain.into_iter().chain(api(2)).collect();
    assert_eq!(plain, from_header_of(Some("0.9.4"), &names));

    let (names, two) = layout! {
        BufferTypeInterface2 = "ggml_backend_buffer_type_i" {
            get_name, alloc_buffer, get_alignment, get_max_size, get_alloc_size, is_host,
        }
        BufferType2 = "ggml_backend_buffer_type" { iface, device, context }
        BufferInterface = "ggml_backend_buffer_i" {
            free_buffer, get_base, init_tensor, memset_tensor, set_tensor, get_tensor, set_tensor_2d, get_tensor_2d,
            cpy_tensor, clear, reset,
        }
        Buffer = "ggml_backend_buffer" { iface, buft, context, size, usage }
        BackendInterface = "ggml_backend_i" {
            get_name, free, set_tensor_async, get_tensor_async, set_tensor_2d_async, get_tensor_2d_async, cpy_tensor_async,
            synchronize, graph_plan_create, graph_plan_free, graph_plan_update, graph_plan_compute, graph_compute,
            event_record, event_wait, graph_optimize,
        }
        Backend = "ggml_backend" { guid, iface, device, context }
    };
    let two: BTreeMap<_, _> = two.into_iter().chain(api(2)).collect();
    for version in ["0.9.11", "0.25.3"] {
        assert_eq!(two, from_header_of(Some(version), &names), "{version}");
    }

    let (names, several) = layout! {
        BufferTypeInterface = "ggml_backend_buffer_type_i" {
            get_name, alloc_buffer, alloc_buffer_n, get_alignment, get_max_size, get_alloc_size, get_alloc_size_n, is_host,
        }
        BufferType = "ggml_backend_buffer_type" { iface, device, context }
        BufferInterfaceSeveral = "ggml_backend_buffer_i" {
            free_buffer, get_base, init_tensor, memset_tensor, set_tensor, get_tensor, set_tensor_2d, get_tensor_2d,
            cpy_tensor, clear, reset, set_tensor_n, get_tensor_n, cpy_tensor_n,
        }
        BufferSeveral = "ggml_backend_buffer" { iface, buft, context, size, usage }
        BackendInterface = "ggml_backend_i" {
            get_name, free, set_tensor_async, get_tensor_async, set_tensor_2d_async, get_tensor_2d_async, cpy_tensor_async,
            synchronize, graph_plan_create, graph_plan_free, graph_plan_update, graph_plan_compute, graph_compute,
            event_record, event_wait, graph_optimize,
        }
        Backend = "ggml_backend" { guid, iface, device, context }
    };
    let several: BTreeMap<_, _> = several.into_iter().chain(api(3)).collect();
    assert_eq!(several, from_header_of(Some("0.28.0"), &names));

    // In every version.
    let (names, same) = layout! {
        DeviceInterface = "ggml_backend_device_i" {
            get_name, get_description, get_memory, get_type, get_props, init_backend, get_buffer_type,
            get_host_buffer_type, buffer_from_host_ptr, supports_op, supports_buft, offload_op, event_new, event_free,
            event_synchronize,
        }
        Device = "ggml_backend_device" { iface, reg, context }
        RegInterface = "ggml_backend_reg_i" { get_name, get_device_count, get_device, get_proc_address }
        Reg = "ggml_backend_reg" { api_version, iface, context }
    };
    for (version, number) in [("0.9.4", 2), ("0.9.11", 2), ("0.25.3", 2), ("0.28.0", 3)] {
        let same: BTreeMap<_, _> = same.clone().into_iter().chain(api(number)).collect();
        assert_eq!(same, from_header_of(Some(version), &names), "{version}");
    }
}
