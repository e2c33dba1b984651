//! Files of JSON that Terrace keeps: measured I/O settings, the machine's description, records
//! of models, layers to skip, checksums, journals of sweeps, and learn files. All of them get the
//! same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use terrace_engine::LayerSkip;
use terrace_eval::sweep::{Header, Journal, TextIdentity};
use terrace_fuzz::{Scratch, model};
use terrace_host::machine::{Hardware, StoredProfile};
use terrace_model::identity::{FileIdentity, FileState, ModelIdentity};
use terrace_model::learn::{LayerShape, LearnFile};
use terrace_model::{ByteSize, ModelFile};
use terrace_store::checksums::ChecksumFile;
use terrace_store::kept::{BlockDevice, DeviceSettings, IoSettings, MeasuredBy};
use terrace_store::model_record::RecordFile;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(Scratch::new);
static MODEL: LazyLock<ModelFile> = LazyLock::new(model);
/// The device of the scratch directory, as settings name it.
static DEVICE: LazyLock<String> = LazyLock::new(|| {
    let device = BlockDevice::of(SCRATCH.dir()).expect("a directory is on a device");
    serde_json::to_string(&device).expect("plain data")
});

/// As many as the seed has.
const CHECKSUMS: usize = 3;

/// What stands for the scratch directory's device in seeds.
const THIS_DEVICE: &[u8] = b"\"@device\"";

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"{\"sweep\"") {
        return journal(data);
    }
    learn_file(data);
    io_settings(data);
    checksums(data);
    let path = SCRATCH.write("file.json", data);
    let hardware = Hardware {
        cpu: "fuzz".into(),
        cores: 4,
        memory: ByteSize::gib(8),
        devices: vec![("GPU0".into(), ByteSize::gib(2))],
    };
    if let Ok(Some(stored)) = StoredProfile::read(&path, &hardware) {
        let kept = SCRATCH.dir().join("kept.json");
        stored.write(&kept).expect("it can be written");
        let again = StoredProfile::read(&kept, &hardware).expect("what was written can be read");
        assert_eq!(again.map(|again| again.hardware), Some(stored.hardware));
    }
    if let Ok(skip) = LayerSkip::read(&path, &MODEL) {
        let kept = SCRATCH.dir().join("skip.json");
        skip.write(&kept).expect("it can be written");
        let again = LayerSkip::read(&kept, &MODEL).expect("what was written can be read");
        assert_eq!((&again.skip, again.to_string()), (&skip.skip, skip.to_string()));
    }
    model_record(data);
});

fn model_record(data: &[u8]) {
    let file =
        RecordFile::new(SCRATCH.dir(), FileIdentity { name: "fuzz.gguf".into(), bytes: 1000, header: 7 });
    std::fs::write(file.path(), data).expect("it can be written");
    let Ok(before) = file.read() else { return };
    file.update(|_| ()).expect("it can be written");
    assert_eq!(file.read().expect("what was written can be read"), before);
}

fn learn_file(data: &[u8]) {
    let Ok(file) = LearnFile::parse(data) else { return };
    let shapes = [0, 1, 2].map(|layer| LayerShape { layer, experts: 32, used: 4 });
    if let Err(misfit) = file.check("fuzz", &shapes) {
        assert_eq!(misfit.to_string().lines().count(), 1);
    }
    let again = LearnFile::parse(file.to_text().as_bytes()).expect("what was written can be read");
    assert_eq!((&again.model, again.experts, again.used), (&file.model, file.experts, file.used));
    assert_eq!(again.layers.len(), file.layers.len());
    for (again, layer) in again.layers.iter().zip(&file.layers) {
        assert_eq!((again.layer, again.calls, &again.experts), (layer.layer, layer.calls, &layer.experts));
    }
}

fn io_settings(data: &[u8]) {
    let at = data.windows(THIS_DEVICE.len()).position(|part| part == THIS_DEVICE);
    let text = at.map_or_else(
        || data.to_vec(),
        |at| [&data[..at], DEVICE.as_bytes(), &data[at + THIS_DEVICE.len()..]].concat(),
    );
    let path = SCRATCH.write("io.json", &text);
    let settings = DeviceSettings::At(path.clone());
    let _ = (settings.lookup(SCRATCH.dir()), settings.measured_at(SCRATCH.dir()));
    let ours = IoSettings {
        engine: None,
        direct: Some(true),
        request_size: ByteSize::mib(1),
        queue_depth: 8,
        gbps: 2.5,
        coalesce_below: None,
        by: MeasuredBy::Probe,
    };
    settings.keep(SCRATCH.dir(), &ours).expect("it can be written");
    assert_eq!(settings.lookup(SCRATCH.dir()), Some(ours));
}

fn checksums(data: &[u8]) {
    let model = FileIdentity { name: "fuzz.gguf".into(), bytes: 120, header: 7 };
    let state = FileState { device: 1, inode: 2, size: 3, modified: 4, changed: 5 };
    let file = ChecksumFile::new(SCRATCH.dir(), model, &[state]);
    std::fs::write(file.path(), data).expect("it can be written");
    let Ok(Some(sums)) = file.read(CHECKSUMS) else { return };
    assert_eq!(sums.len(), CHECKSUMS);
    file.write(&sums).expect("it can be written");
    let again = file.read(CHECKSUMS).expect("what was written can be read");
    assert_eq!(again, Some(sums));
}

fn journal(data: &[u8]) {
    let text = TextIdentity { tokens: 64, crc32: 7, context: 16, chunks: None };
    let header = Header::new(ModelIdentity::of(&MODEL), text, None, "all".into());
    let path = SCRATCH.write("journal", data);
    let Ok(mut journal) = Journal::open(&path, &header) else { return };
    let _ = (journal.baseline().cloned(), journal.steps().count(), journal.has("a", "b"));
    let before = journal.records.len();
    // A donor of the same name may be another one.
    let added = journal.donor("fuzz", ModelIdentity::of(&MODEL), 5).is_ok();
    let records = journal.records.len();
    assert!(added || records == before);
    drop(journal);
    let again = Journal::open(&path, &header).expect("what was written can be read");
    assert_eq!(again.records.len(), records);
}
