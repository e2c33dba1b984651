use super::*;
use std::fs;
use tempfile::TempDir;
use terrace_plan::machine::MatmulRate;

fn stored() -> StoredProfile {
    let mut machine = MachineProfile::unmeasured("m", 4, ByteSize::gib(16), ByteSize::gib(12));
    let rate =
        MatmulRate { decode_bytes_per_s: Some(1.5e10), prefill_flops: Some(2e11), ..MatmulRate::default() };
    machine.cpu.matmul.insert("q4_K".into(), rate);
    machine.sources.insert("cpu.matmul.q4_K".into(), "measured 2026-11-21".into());
    StoredProfile::new(machine)
}

#[test]
fn what_is_written_is_read_and_is_a_machine_profile_too() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("deep/er/profile.json");
    let here = Hardware::here();
    assert_eq!(StoredProfile::read(&path, &here).unwrap(), None);
    let stored = stored();
    stored.write(&path).unwrap();
    assert_eq!(StoredProfile::read(&path, &here).unwrap(), Some(stored.clone()));
    let plain: MachineProfile = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(plain, stored.machine);
    assert_eq!(stored.age_days(), 0);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn other_hardware_is_named() {
    let here = Hardware {
        cpu: "Epic".into(),
        cores: 8,
        memory: ByteSize::gib(32),
        devices: vec![("CUDA0".into(), ByteSize::gib(24))],
    };
    assert_eq!(here.differs(&here), None);
    let slightly = Hardware { memory: ByteSize(here.memory.bytes() - (200 << 20)), ..here.clone() };
    assert_eq!(here.differs(&slightly), None, "a kernel's own share");
    let cases = [
        (Hardware { cpu: "Other".into(), ..here.clone() }, "another processor"),
        (Hardware { cores: 4, ..here.clone() }, "8 cores, this process has 4"),
        (Hardware { memory: ByteSize::gib(64), ..here.clone() }, "32 GiB"),
        (Hardware { devices: Vec::new(), ..here.clone() }, "now none"),
    ];
    for (other, part) in cases {
        let reason = here.differs(&other).unwrap();
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn files_that_are_no_profile_of_this_machine_are_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("profile.json");
    stored().write(&path).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let broken = [
        String::new(),
        "{".into(),
        "[1]".into(),
        "\u{0}".into(),
        good[..good.len() / 2].to_owned(),
        good.replace(FORMAT, "other"),
        good.replace("\"version\": 1", "\"version\": 2"),
        good.replace("\"cores\": 4", "\"cores\": 0"),
        good.replace("15000000000.0", "-1.0"),
    ];
    for text in broken {
        assert_ne!(text, good);
        fs::write(&path, &text).unwrap();
        let error = StoredProfile::read(&path, &Hardware::here()).unwrap_err().to_string();
        assert!(error.contains("profile.json: "), "{text}: {error}");
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    StoredProfile::read(&path, &Hardware::here()).unwrap_err();
    fs::write(&path, &good).unwrap();
    let other = Hardware { cpu: "another".into(), ..Hardware::here() };
    assert!(StoredProfile::read(&path, &other).unwrap_err().to_string().contains("another processor"));
}
