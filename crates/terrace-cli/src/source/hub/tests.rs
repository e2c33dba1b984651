use super::stand_in::{Behaviour, REPO, StandIn, Versions, hex};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const FILE: &str = "tiny-Q4_K.gguf";

/// Bytes that differ everywhere.
fn bytes(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Time without a byte after which tests give a connection up: longer than a busy machine pauses.
const STALL: Duration = Duration::from_secs(60);

fn hub_at(endpoint: &str, cache: &TempDir, interrupted: fn() -> bool) -> Hub {
    let http = Http::new(endpoint, Some("secret"), STALL, interrupted);
    Hub::new(endpoint.to_owned(), cache.path().to_owned(), http).unwrap()
}

fn hub(stand_in: &StandIn, cache: &TempDir) -> Hub {
    hub_at(&stand_in.endpoint, cache, || false)
}

fn fetch(stand_in: &StandIn, cache: &TempDir, name: &str) -> Result<PathBuf, HubError> {
    hub(stand_in, cache).fetch(&RemoteModel::parse(name)?)
}

fn model(file: &str) -> String {
    format!("{REPO}:{file}")
}

#[test]
fn a_download_ends_in_the_shared_cache() {
    let content = bytes(300_000, 1);
    let stand_in = StandIn::new(&[("README.md", vec![1]), (FILE, content.clone())], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
    let folder = cache.path().join("models--owner--tiny-GGUF");
    assert_eq!(path, folder.join("snapshots").join(stand_in::COMMIT).join(FILE));
    assert_eq!(std::fs::read_to_string(folder.join("refs/main")).unwrap(), stand_in::COMMIT);
    assert_eq!(std::fs::read(folder.join("blobs").join(hex(&content))).unwrap(), content);

    assert_eq!(stand_in.take_ranges().len(), 1);
    assert_eq!(fetch(&stand_in, &cache, &model(FILE)).unwrap(), path, "the second time from the cache");
    assert_eq!(stand_in.take_ranges(), [""; 0]);
}

#[test]
fn a_cut_connection_is_taken_up_where_it_broke() {
    let content = bytes(1_000_000, 2);
    let cuts = vec![400_000, 300_000];
    let stand_in = StandIn::new(&[(FILE, content.clone())], Behaviour { cuts, ..Behaviour::default() });
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    let starts: Vec<u64> =
        stand_in.take_ranges().iter().map(|r| r[6..].split_once('-').unwrap().0.parse().unwrap()).collect();
    assert_eq!(starts.len(), 3);
    assert_eq!(starts[0], 0);
    // What arrived may end before what was sent; it never starts over.
    assert!(starts[1] > 0 && starts[1] <= 400_000 && starts[2] > starts[1], "{starts:?}");
}

#[test]
fn an_abandoned_download_is_taken_up_by_the_next_program() {
    let content = bytes(1_000_000, 3);
    let cuts = vec![600_000, 0, 0, 0, 0, 0, 0];
    let stand_in = StandIn::new(&[(FILE, content.clone())], Behaviour { cuts, ..Behaviour::default() });
    let cache = TempDir::new().unwrap();
    let error = fetch(&stand_in, &cache, REPO).unwrap_err();
    let HubError::Broken { at, size, .. } = &error else { panic!("{error:?}") };
    assert!(*at > 0 && *at <= 600_000 && *size == 1_000_000, "{error}");
    assert!(error.hint().unwrap().contains("resume"), "{error}");

    stand_in.behave(Behaviour::default());
    stand_in.take_log();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    let start = at - OVERLAP_FOR_TESTS;
    assert_eq!(stand_in.take_ranges(), [format!("bytes={start}-999999")]);
}

/// Bytes that [`download`] fetches again to compare.
const OVERLAP_FOR_TESTS: u64 = 64 << 10;

#[test]
fn a_server_that_starts_over_is_found_out() {
    let content = bytes(1_000_000, 4);
    let behaviour = Behaviour { cuts: vec![500_000], ignores_ranges: true, ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, content.clone())], behaviour);
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content, "not two beginnings");
}

#[test]
fn shards_come_together() {
    let (first, second) = (bytes(5000, 5), bytes(6000, 6));
    let files = [("q4/m-00001-of-00002.gguf", first.clone()), ("q4/m-00002-of-00002.gguf", second.clone())];
    let stand_in = StandIn::new(&files, Behaviour::default());
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    assert_eq!(std::fs::read(path.with_file_name("m-00002-of-00002.gguf")).unwrap(), second);
}

#[test]
fn a_missing_shard_is_named() {
    let stand_in = StandIn::new(&[("m-00001-of-00002.gguf", bytes(50, 0))], Behaviour::default());
    let error = fetch(&stand_in, &TempDir::new().unwrap(), REPO).unwrap_err();
    assert!(error.to_string().contains("no file m-00002-of-00002.gguf"), "{error}");
}

#[test]
fn a_model_is_chosen_by_its_type() {
    let files =
        ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q4_K.gguf", "q8/m-Q8_0-00001-of-00002.gguf", "m-IQ4_XS.gguf"];
    let shard = ("q8/m-Q8_0-00002-of-00002.gguf", bytes(50, 9));
    let files = files.map(|name| (name, bytes(40, name.len() as u32)));
    let stand_in = StandIn::new(&[&files[..], &[shard]].concat(), Behaviour::default());
    let cache = TempDir::new().unwrap();
    for (part, file) in [
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("q4_k_s", "m-Q4_K_S.gguf"),
        ("Q4_K", "m-Q4_K.gguf"),
        ("Q8_0", "q8/m-Q8_0-00001-of-00002.gguf"),
        ("IQ4_XS", "m-IQ4_XS.gguf"),
    ] {
        let path = fetch(&stand_in, &cache, &model(part)).unwrap();
        assert!(path.ends_with(file), "{part}: {}", path.display());
        let cached = hub(&stand_in, &cache).cached(&RemoteModel::parse(&model(part)).unwrap());
        assert_eq!(cached, Some(path), "{part}: without the hub");
    }
    let error = fetch(&stand_in, &cache, &model("Q4")).unwrap_err();
    assert!(matches!(error, HubError::Ambiguous { .. }), "{error}");
    let error = fetch(&stand_in, &cache, &model("Q5_K_M")).unwrap_err();
    assert!(
        matches!(error, HubError::NoFile { .. }) && error.hint().unwrap().contains("m-Q4_K.gguf"),
        "{error}"
    );
    let error = fetch(&stand_in, &cache, REPO).unwrap_err();
    let details = error.details(terrace_model::ByteSize(60)).join("\n");
    assert!(details.contains("m-Q4_K_M.gguf") && details.contains("90 B  streams from disk"), "{details}");
    assert!(error.hint().unwrap().ends_with("e.g. hf:owner/tiny-GGUF:IQ4_XS"), "{:?}", error.hint());
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let stand_in = StandIn::new(&[("a.gguf", vec![1]), ("b.gguf", vec![2])], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let error = fetch(&stand_in, &cache, &model("c.gguf")).unwrap_err();
    assert!(matches!(error, HubError::NoFile { .. }) && error.to_string().contains("c.gguf"), "{error}");
    assert_eq!(error.hint().unwrap(), "the repository has a.gguf, b.gguf");
    let error = fetch(&stand_in, &cache, REPO).unwrap_err();
    assert!(matches!(error, HubError::Several { .. }), "{error:?}");
    let details = error.details(terrace_model::ByteSize(1)).join("\n");
    assert_eq!(details, "  a.gguf        1 B  fits in memory\n  b.gguf        1 B  fits in memory");
    for name in ["owner/other", "owner/other:a.gguf"] {
        let error = fetch(&stand_in, &cache, name).unwrap_err();
        assert!(matches!(error, HubError::NoRepo { .. }), "{name}: {error:?}");
    }
    let stand_in = StandIn::new(&[("README.md", vec![1])], Behaviour::default());
    assert!(matches!(fetch(&stand_in, &cache, REPO), Err(HubError::NoModel { files: 1, .. })));
}

#[test]
fn wrong_bytes_never_become_a_model() {
    let content = bytes(200_000, 7);
    let wrong = hex(b"something else");
    for behaviour in [
        Behaviour { sha256: Some(wrong), ..Behaviour::default() },
        Behaviour { size: Some(150_000), ..Behaviour::default() },
        Behaviour { size: Some(250_000), ..Behaviour::default() },
    ] {
        let stand_in = StandIn::new(&[(FILE, content.clone())], behaviour.clone());
        let cache = TempDir::new().unwrap();
        let error = fetch(&stand_in, &cache, REPO).unwrap_err();
        let expected = matches!(
            error,
            HubError::WrongContent { .. } | HubError::WrongSize { .. } | HubError::Broken { .. }
        );
        assert!(expected, "{error:?}");
        let snapshots = cache.path().join("models--owner--tiny-GGUF/snapshots");
        assert!(!snapshots.exists(), "nothing was published: {error}");
    }
}

#[test]
fn a_server_in_trouble_is_asked_again_and_then_blamed() {
    let behaviour = Behaviour { status: Some(503), ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, bytes(100, 0))], behaviour);
    let error = fetch(&stand_in, &TempDir::new().unwrap(), REPO).unwrap_err();
    assert!(
        matches!(error, HubError::Broken { at: 0, .. }) && error.to_string().contains("503"),
        "{error:?}"
    );
}

#[test]
fn no_room_and_no_cache_are_said_before_anything_is_downloaded() {
    let behaviour = Behaviour { size: Some(1 << 55), ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, bytes(100, 0))], behaviour);
    let error = fetch(&stand_in, &TempDir::new().unwrap(), REPO).unwrap_err();
    assert!(matches!(error, HubError::NoSpace { .. }), "{error:?}");

    let cache = TempDir::new().unwrap();
    let blocked = cache.path().join("models--owner--tiny-GGUF");
    std::fs::write(&blocked, "a file where a folder must be").unwrap();
    let error = fetch(&stand_in, &cache, REPO).unwrap_err();
    assert!(matches!(error, HubError::Cache { .. }), "{error:?}");
    assert!(error.to_string().contains("models--owner--tiny-GGUF"), "{error}");
    assert_eq!(stand_in.take_ranges(), [""; 0]);
}

#[test]
fn without_a_hub_the_cache_answers() {
    let content = bytes(1000, 8);
    let stand_in = StandIn::new(&[(FILE, content.clone())], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    // A port that nobody listens on any more.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let alone = hub_at(&format!("http://{closed}"), &cache, || false);
    for name in [REPO.to_owned(), model(FILE)] {
        assert_eq!(alone.fetch(&RemoteModel::parse(&name).unwrap()).unwrap(), path, "{name}");
    }
    let error = alone.fetch(&RemoteModel::parse("owner/other").unwrap()).unwrap_err();
    assert!(matches!(error, HubError::Unreachable { .. }), "{error:?}");
}

/// A model with weights behind its header, as a file's bytes.
fn real_model(dir: &TempDir, name: &str) -> Vec<u8> {
    let spec = terrace_testkit::Spec { vocab: 3000, ..Default::default() };
    std::fs::read(terrace_testkit::write(&spec, dir.path().join(name)).unwrap()).unwrap()
}

#[test]
fn a_header_comes_without_the_weights() {
    let dir = TempDir::new().unwrap();
    let content = real_model(&dir, FILE);
    let expected = terrace_ggml::gguf::read(&dir.path().join(FILE)).unwrap();
    let stand_in = StandIn::new(&[(FILE, content.clone())], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let (hub, remote) = (hub(&stand_in, &cache), RemoteModel::parse(REPO).unwrap());
    // Too little at first: it asks for more, from where it stopped.
    let header = hub.headers(&remote, [4096, 4096]).unwrap();
    let found = terrace_ggml::gguf::read(header.path()).unwrap();
    assert_eq!((&found.tensors, &found.metadata), (&expected.tensors, &expected.metadata));
    let ranges = stand_in.take_ranges();
    assert_eq!(&ranges[..2], ["bytes=0-4095", "bytes=4096-16383"]);
    let last: usize = ranges.last().unwrap().rsplit_once('-').unwrap().1.parse().unwrap();
    assert!(last < content.len() / 4, "{ranges:?} of {} bytes", content.len());
    let folder = header.path().parent().unwrap().to_owned();
    drop(header);
    assert!(!folder.exists(), "nothing stays");
    assert_eq!(hub.cached(&remote), None);

    let path = hub.fetch(&remote).unwrap();
    assert_eq!(hub.cached(&remote), Some(path));
}

#[test]
fn headers_of_all_shards_come() {
    let dir = TempDir::new().unwrap();
    let spec = terrace_testkit::Spec::default();
    let paths = terrace_testkit::write_split(&spec, dir.path(), 3).unwrap();
    let names: Vec<&str> = paths.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
    let files: Vec<(&str, Vec<u8>)> =
        names.iter().zip(&paths).map(|(name, path)| (*name, std::fs::read(path).unwrap())).collect();
    let stand_in = StandIn::new(&files, Behaviour::default());
    let cache = TempDir::new().unwrap();
    let hub = hub(&stand_in, &cache);
    let header = hub.header(&RemoteModel::parse(REPO).unwrap()).unwrap();
    let found = terrace_ggml::gguf::read(header.path()).unwrap();
    assert_eq!(found.tensors, terrace_ggml::gguf::read(&paths[0]).unwrap().tensors);
}

#[test]
fn a_file_that_is_no_model_ends_the_search_for_its_header() {
    let stand_in = StandIn::new(&[(FILE, bytes(200_000, 9))], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let hub = hub(&stand_in, &cache);
    let header = hub.headers(&RemoteModel::parse(REPO).unwrap(), [4096, 4096]).unwrap();
    assert!(terrace_ggml::gguf::read(header.path()).is_err());
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let content = bytes(1000, 10);
    let storage = StandIn::new(&[(FILE, content.clone())], Behaviour::default());
    let behaviour = Behaviour { storage: Some(storage.endpoint.clone()), ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, content.clone())], behaviour);
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    let file = format!("/{REPO}/resolve/main/{FILE}");
    assert_eq!(stand_in.take_trusted(), [format!("/api/models/{REPO}?blobs=true"), file.clone(), file]);
    assert_eq!(storage.take_log(), [format!("GET /storage/{FILE} bytes=0-999")]);
    assert_eq!(storage.take_trusted(), [""; 0]);
}

#[test]
fn a_redirection_to_a_host_in_disguise_is_not_followed() {
    let other = StandIn::new(&[(FILE, bytes(1000, 11))], Behaviour::default());
    let host = other.endpoint.strip_prefix("http://").unwrap();
    for disguise in [r"/\", r"\\", "//", r"/\/", r"\/", r"/x/..\\", ""] {
        let behaviour = Behaviour { leads_to: Some(format!("{disguise}{host}/x")), ..Behaviour::default() };
        let stand_in = StandIn::new(&[], behaviour);
        let cache = TempDir::new().unwrap();
        for name in [REPO.to_owned(), model(FILE)] {
            let error = fetch(&stand_in, &cache, &name).unwrap_err();
            let expected = matches!(error, HubError::Hub { .. } | HubError::Malformed { .. });
            assert!(expected, "{disguise}: {error:?}");
        }
    }
    assert_eq!(other.take_log(), [""; 0]);
}

#[test]
fn a_redirection_to_another_host_is_followed_without_the_token() {
    let content = bytes(1000, 12);
    let other = StandIn::new(&[(FILE, content)], Behaviour::default());
    for to in [other.endpoint.clone(), other.endpoint.replace("http://", "HTTP://")] {
        let behaviour =
            Behaviour { leads_to: Some(format!("{to}/api/models/{REPO}")), ..Behaviour::default() };
        let stand_in = StandIn::new(&[], behaviour);
        let hub = hub(&stand_in, &TempDir::new().unwrap());
        assert_eq!(hub.files(&RemoteModel::parse(REPO).unwrap()).unwrap(), [FILE]);
    }
    assert_eq!(other.take_log().len(), 2);
    assert_eq!(other.take_trusted(), [""; 0]);
}

#[test]
fn a_renamed_repository_is_found() {
    let content = bytes(1000, 13);
    let stand_in = StandIn::new(&[(FILE, content.clone())], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, &format!("old/name:{FILE}")).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    assert!(stand_in.take_trusted().contains(&format!("/{REPO}/resolve/main/{FILE}")));
}

#[test]
fn names_may_be_anything_that_a_file_may_be_called() {
    let name = "Größe (neu)/tiny & +Q4.gguf";
    let content = bytes(1000, 14);
    let stand_in = StandIn::new(&[(name, content.clone())], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, &model(name)).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
    assert!(path.ends_with(name), "{}", path.display());
}

#[test]
fn a_busy_hub_is_asked_again() {
    let content = bytes(1000, 15);
    let behaviour = Behaviour { busy: 2, ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, content.clone())], behaviour);
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
    // And one that stays busy counts as not there.
    stand_in.behave(Behaviour { busy: 100, ..Behaviour::default() });
    assert_eq!(fetch(&stand_in, &cache, REPO).unwrap(), path);
    let error = fetch(&stand_in, &TempDir::new().unwrap(), REPO).unwrap_err();
    assert!(matches!(error, HubError::Unreachable { .. }) && error.to_string().contains("503"), "{error:?}");
}

#[test]
fn a_gated_repository_asks_for_a_token() {
    for status in [401, 403] {
        let stand_in = StandIn::new(&[], Behaviour { refuses: Some(status), ..Behaviour::default() });
        let cache = TempDir::new().unwrap();
        for name in [REPO.to_owned(), model(FILE)] {
            let error = fetch(&stand_in, &cache, &name).unwrap_err();
            assert!(matches!(error, HubError::Refused { .. }), "{error:?}");
            assert!(error.hint().unwrap().contains("HF_TOKEN"), "{error:?}");
        }
    }
}

#[test]
fn a_connection_that_stalls_is_given_up_for_another() {
    let content = bytes(1_000_000, 16);
    let behaviour = Behaviour { stalls: vec![400_000], ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, content.clone())], behaviour);
    let cache = TempDir::new().unwrap();
    let http = Http::new(&stand_in.endpoint, Some("secret"), Duration::from_millis(500), || false);
    let hub = Hub::new(stand_in.endpoint.clone(), cache.path().to_owned(), http).unwrap();
    let path = hub.fetch(&RemoteModel::parse(REPO).unwrap()).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    let resumed = format!("bytes={}-999999", 400_000 - OVERLAP_FOR_TESTS);
    assert_eq!(stand_in.take_ranges(), ["bytes=0-999999".to_owned(), resumed]);
}

#[test]
fn ctrl_c_ends_a_wait_and_keeps_what_arrived() {
    static PRESSED: AtomicBool = AtomicBool::new(false);
    let content = bytes(1_000_000, 17);
    let behaviour = Behaviour { stalls: vec![400_000], ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, content)], behaviour);
    let cache = TempDir::new().unwrap();
    let minute = Duration::from_secs(60);
    let http = Http::new(&stand_in.endpoint, None, minute, || PRESSED.load(Ordering::Relaxed));
    let hub = Hub::new(stand_in.endpoint.clone(), cache.path().to_owned(), http).unwrap();
    let partial = cache.path().join("models--owner--tiny-GGUF/blobs");
    let arrived = move || {
        let entries = std::fs::read_dir(&partial).into_iter().flatten().flatten();
        entries.map(|entry| entry.metadata().unwrap().len()).sum::<u64>()
    };
    let seen = arrived.clone();
    let presses = std::thread::spawn(move || {
        let start = Instant::now();
        while seen() < 400_000 && start.elapsed() < minute {
            std::thread::sleep(Duration::from_millis(5));
        }
        PRESSED.store(true, Ordering::Relaxed);
        Instant::now()
    });
    let error = hub.fetch(&RemoteModel::parse(REPO).unwrap()).unwrap_err();
    let ended = Instant::now();
    assert!(matches!(error, HubError::Interrupted), "{error:?}");
    let pressed = presses.join().unwrap();
    assert!(
        ended.saturating_duration_since(pressed) < Duration::from_secs(10),
        "it did not wait out the stall"
    );
    assert_eq!(arrived(), 400_000);
}

#[test]
fn what_is_no_hub_is_said() {
    for endpoint in ["", "huggingface.co", "ftp://hub", "http://", "http://a b"] {
        let http = Http::new(endpoint, None, STALL, || false);
        let error = Hub::new(endpoint.to_owned(), PathBuf::new(), http).err().unwrap();
        assert!(matches!(error, HubError::Setup { .. }), "{error:?}");
    }
    assert!(Http::new("http://hub", Some("two\nlines"), STALL, || false).is_err());
}

/// Three downloads of one file. The first one gets bytes that are wrong, or too many, and removes its
/// file, for which the second one waits; the third one begins after that. What the second one verifies
/// is what it renames, and what it removes is its own.
#[test]
fn a_download_that_fails_beside_others_leaves_no_half_file() {
    let content = bytes(1_000_000, 20);
    let pause = Some(Duration::from_millis(40));
    for behaviour in [
        Behaviour { wrong: 1, pause, ..Behaviour::default() },
        Behaviour { longer: 1, pause, ..Behaviour::default() },
    ] {
        let stand_in = StandIn::new(&[(FILE, content.clone())], behaviour);
        let cache = TempDir::new().unwrap();
        let blob = cache.path().join("models--owner--tiny-GGUF/blobs").join(hex(&content));
        let one = || {
            let done = fetch(&stand_in, &cache, &model(FILE));
            // Whenever a download ends, the file is whole, or not there.
            let found = std::fs::read(&blob).ok();
            assert!(found.is_none_or(|found| found == content), "{done:?}");
            done
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(one);
            // While the first one downloads.
            std::thread::sleep(Duration::from_millis(200));
            let second = scope.spawn(one);
            let failed = first.join().unwrap().unwrap_err();
            let expected = matches!(failed, HubError::WrongContent { .. } | HubError::WrongSize { .. });
            assert!(expected, "{failed:?}");
            // While the second one downloads.
            std::thread::sleep(Duration::from_millis(400));
            let third = scope.spawn(one);
            for waited in [second, third] {
                assert_eq!(std::fs::read(waited.join().unwrap().unwrap()).unwrap(), content);
            }
        });
        let left = std::fs::read_dir(blob.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "nothing incomplete stays");
    }
}

#[test]
fn a_file_of_another_length_in_the_cache_is_fetched_again() {
    let content = bytes(200_000, 21);
    let stand_in = StandIn::new(&[(FILE, content.clone())], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let path = fetch(&stand_in, &cache, REPO).unwrap();
    for damaged in [&content[..150_000], &[&content[..], b"more"].concat(), b""] {
        std::fs::write(path.canonicalize().unwrap(), damaged).unwrap();
        assert_eq!(fetch(&stand_in, &cache, REPO).unwrap(), path);
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

/// A server without ranges of which connections break: what is there is compared, and the file goes
/// on where it ended.
#[test]
fn a_server_without_ranges_gets_somewhere() {
    let content = bytes(1_000_000, 22);
    let cuts = vec![300_000, 300_000, 700_000, 500_000];
    let behaviour = Behaviour { cuts, ignores_ranges: true, ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, content.clone())], behaviour);
    let cache = TempDir::new().unwrap();
    assert_eq!(std::fs::read(fetch(&stand_in, &cache, REPO).unwrap()).unwrap(), content);
    assert_eq!(stand_in.take_ranges().len(), 5);
}

/// Servers that never come to an end are given up: bytes that come again are no progress.
#[test]
fn downloads_that_get_nowhere_end() {
    let content = bytes(1_000_000, 23);
    for behaviour in [
        // Each connection breaks at one place.
        Behaviour { cuts: vec![300_000; 50], ignores_ranges: true, ..Behaviour::default() },
        // Each answer is of another version.
        Behaviour { cuts: vec![300_000; 50], versions: Some(Versions::Everywhere), ..Behaviour::default() },
        // Which the bytes that come twice do not show.
        Behaviour {
            cuts: vec![300_000; 50],
            versions: Some(Versions::AtTheBeginning),
            ..Behaviour::default()
        },
    ] {
        let stand_in = StandIn::new(&[(FILE, content.clone())], behaviour);
        let cache = TempDir::new().unwrap();
        let error = fetch(&stand_in, &cache, REPO).unwrap_err();
        assert!(matches!(error, HubError::Broken { .. }), "{error:?}");
        let asked = stand_in.take_ranges().len();
        assert!((2..=8).contains(&asked), "{asked} requests");
    }
}

#[test]
fn an_encoded_body_is_refused_by_name() {
    let behaviour = Behaviour { encoding: Some("gzip"), ..Behaviour::default() };
    let stand_in = StandIn::new(&[(FILE, bytes(100_000, 24))], behaviour);
    let cache = TempDir::new().unwrap();
    let error = fetch(&stand_in, &cache, REPO).unwrap_err();
    assert!(error.to_string().contains("encoded as gzip"), "{error}");
    assert_eq!(stand_in.take_ranges().len(), 1);
}

#[test]
fn names_of_a_listing_are_bounded_and_printable() {
    let names: Vec<String> =
        (0..3000).map(|i| format!("{i}\u{202e}\u{9b}-{}.gguf", "x".repeat(300))).collect();
    let files: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (name.as_str(), vec![1])).collect();
    let stand_in = StandIn::new(&files, Behaviour::default());
    let cache = TempDir::new().unwrap();
    for name in [REPO.to_owned(), model("missing.gguf")] {
        let error = fetch(&stand_in, &cache, &name).unwrap_err();
        for text in [error.to_string(), error.hint().unwrap()] {
            assert!(text.len() < 5000, "{} bytes", text.len());
            assert!(!text.contains(['\u{202e}', '\u{9b}']), "{text}");
        }
    }
    let long = format!("{}.gguf", "y".repeat(1 << 20));
    let text = fetch(&stand_in, &cache, &model(&long)).unwrap_err().to_string();
    assert!(text.len() < 5000, "{} bytes", text.len());
}

/// Something else under the name of the part of a file is not followed, and not waited for.
#[test]
fn a_link_or_a_pipe_in_place_of_a_part_is_refused() {
    let content = bytes(1000, 25);
    let stand_in = StandIn::new(&[(FILE, content.clone())], Behaviour::default());
    let cache = TempDir::new().unwrap();
    let blobs = cache.path().join("models--owner--tiny-GGUF/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.incomplete", hex(&content)));
    let target = cache.path().join("mine");
    std::fs::write(&target, "mine").unwrap();
    std::os::unix::fs::symlink(&target, &part).unwrap();
    assert!(matches!(fetch(&stand_in, &cache, REPO), Err(HubError::Cache { .. })));
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
    std::fs::remove_file(&part).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &part, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let error = fetch(&stand_in, &cache, REPO).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}
