//! Bundles that are cut off, tampered with or malicious are refused with an error, and nothing of them is left on disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bridge_protocol::error::ErrorKind;
use serde_json::{Value, json};
use tar::{EntryType, Header};

use crate::carrying::{bundled, files_below, import};
use crate::home::Home;
use crate::support::{refused, refused_call};

/// Cases whose error message depends on where the bundle is damaged.
const VARIES: [&str; 3] = ["a torn one", "a flipped bit", "compressed garbage"];

/// An archive entry: its header and its content.
pub(crate) type Entry = (Header, Vec<u8>);

pub(crate) fn read(bundle: &[u8]) -> Vec<Entry> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(bundle).unwrap());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        (entry.header().clone(), content)
    });
    entries.collect()
}

/// Writes the entries as they are, without checking their headers.
fn written(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (header, content) in entries {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    zstd::encode_all(bytes.as_slice(), 3).unwrap()
}

fn entry(name: &str, kind: EntryType, size: u64, content: &[u8]) -> Entry {
    let mut header = Header::new_ustar();
    // Copies the name unchecked: the library would refuse some of these names.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o600);
    header.set_cksum();
    (header, content.to_vec())
}

/// Returns the bundle with an edited manifest.
pub(crate) fn with_manifest(good: &[Entry], edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut entries = good.to_vec();
    let mut manifest: Value = serde_json::from_slice(&entries[0].1).unwrap();
    edit(&mut manifest);
    let text = serde_json::to_vec(&manifest).unwrap();
    entries[0] = entry("manifest.json", EntryType::Regular, text.len() as u64, &text);
    written(&entries)
}

fn with_entries(good: &[Entry], edit: impl FnOnce(&mut Vec<Entry>)) -> Vec<u8> {
    let mut entries = good.to_vec();
    edit(&mut entries);
    written(&entries)
}

/// A home without imported conversations, and the bytes of a valid bundle.
pub(crate) struct Bench {
    here: Home,
    good: Vec<u8>,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let there = Home::new();
        let (daemon, app, id) = there.begun(&[]).await;
        app.send(id, "one").await;
        app.close(id).await;
        let head = app.get(id).await.head.unwrap();
        let beside = there.transcript(head.as_str()).unwrap().with_extension("");
        fs::create_dir_all(beside.join("tool-results")).unwrap();
        fs::write(beside.join("tool-results/t.txt"), "long").unwrap();
        let path = bundled(&app, id).await;
        drop(app);
        drop(daemon);
        let good = fs::read(path).unwrap();
        Self {
            here: Home::new(),
            good,
        }
    }

    /// Asserts that each bundle is refused with its error kind and leaves nothing behind.
    async fn refuses(&self, table: Vec<(&str, Vec<u8>, ErrorKind)>) {
        self.refuses_where(table, false).await;
    }

    /// Does the same as `refuses`, but with imports that take over all settings.
    pub(crate) async fn refuses_trusted(&self, table: Vec<(&str, Vec<u8>, ErrorKind)>) {
        self.refuses_where(table, true).await;
    }

    /// Returns the entries of the valid bundle.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        read(&self.good)
    }

    async fn refuses_where(&self, table: Vec<(&str, Vec<u8>, ErrorKind)>, trusted: bool) {
        let (_daemon, app) = self.here.opened().await;
        let path = self.here.path().join("bundle");
        // Sets the folder's time to the epoch: if an import adds a file and removes it again, the time changes.
        let projects = self.here.data().join("loopback/projects");
        fs::create_dir_all(&projects).unwrap();
        fs::File::open(&projects)
            .unwrap()
            .set_modified(UNIX_EPOCH)
            .unwrap();
        for (what, bytes, kind) in table {
            fs::write(&path, bytes).unwrap();
            let params = json!({"path": path, "cwd": self.here.project(), "trustSettings": trusted});
            let answer = import(&app, params).await;
            if VARIES.contains(&what) {
                assert_eq!(answer.expect_err(what).kind, kind, "{what}");
            } else {
                refused_call(what, answer, kind);
            }
            for folder in ["loopback/projects", "imports"] {
                let left = files_below(&self.here.data().join(folder));
                assert_eq!(left, [] as [PathBuf; 0], "{what}");
            }
            let changed = fs::metadata(&projects).unwrap().modified().unwrap();
            assert_eq!(changed, UNIX_EPOCH, "{what} was put in place");
            assert!(!Path::new(&self.here.path().join("escaped")).exists(), "{what}");
        }
        let all = app.call("conversation/list", json!({})).await.unwrap();
        assert_eq!(all["conversations"], json!([]));
        // The unmodified bundle can be imported.
        fs::write(&path, &self.good).unwrap();
        import(&app, json!({"path": path, "cwd": self.here.project()}))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn what_is_torn_or_damaged_is_refused() {
    let bench = Bench::new().await;
    let damaged = ErrorKind::TranscriptDamaged;
    let good = &bench.good;
    let mut table = vec![
        ("nothing", Vec::new(), damaged),
        ("garbage", b"garbage".to_vec(), damaged),
        (
            "compressed garbage",
            zstd::encode_all(&b"garbage"[..], 3).unwrap(),
            damaged,
        ),
        ("an empty archive", written(&[]), damaged),
        (
            "a compressed nothing",
            zstd::encode_all(&b""[..], 3).unwrap(),
            damaged,
        ),
        (
            "another archive",
            written(&[entry("x", EntryType::Regular, 1, b"x")]),
            damaged,
        ),
    ];
    for cut in [5, good.len() / 4, good.len() / 2, good.len() - 5, good.len() - 1] {
        table.push(("a torn one", good[..cut].to_vec(), damaged));
    }
    let whole = zstd::decode_all(good.as_slice()).ok();
    for at in (8..good.len()).step_by(good.len() / 12) {
        let mut flipped = good.clone();
        flipped[at] ^= 0x10;
        // Flipping some bits does not change the decompressed content.
        if zstd::decode_all(flipped.as_slice()).ok() != whole {
            table.push(("a flipped bit", flipped, damaged));
        }
    }
    let mut longer = good.clone();
    longer.extend(zstd::encode_all(&b"more"[..], 3).unwrap());
    table.push(("one with something behind it", longer, damaged));
    let mut endless = good.clone();
    endless.extend(zstd::encode_all(vec![0; 2 * 1024 * 1024].as_slice(), 3).unwrap());
    table.push(("one with nothing without end behind it", endless, damaged));
    let mut wide = zstd::Encoder::new(Vec::new(), 3).unwrap();
    wide.window_log(27).unwrap();
    std::io::Write::write_all(&mut wide, &whole.unwrap()).unwrap();
    table.push(("one that needs much memory", wide.finish().unwrap(), damaged));
    bench.refuses(table).await;
}

#[tokio::test]
async fn a_manifest_that_makes_no_sense_is_refused() {
    let bench = Bench::new().await;
    let damaged = ErrorKind::TranscriptDamaged;
    let entries = read(&bench.good);
    let manifest: Value = serde_json::from_slice(&entries[0].1).unwrap();
    let id = manifest["sessions"][0]["upstreamId"].as_str().unwrap().to_owned();
    let mut table = vec![
        (
            "a newer version",
            with_manifest(&entries, |manifest| manifest["version"] = json!(2)),
            ErrorKind::Unsupported,
        ),
        (
            "something else",
            with_manifest(&entries, |manifest| manifest["format"] = json!("other")),
            damaged,
        ),
        (
            "no conversation",
            with_manifest(&entries, |manifest| manifest["conversation"] = json!(null)),
            damaged,
        ),
        (
            "a hole in the lineage",
            with_manifest(&entries, |manifest| manifest["lineage"][0]["seq"] = json!(2)),
            damaged,
        ),
        (
            "an endless chain",
            with_manifest(&entries, |manifest| {
                let link = manifest["chain"][0].clone();
                manifest["chain"] = json!(vec![link; 17]);
            }),
            damaged,
        ),
        (
            "a session of somebody else",
            with_manifest(&entries, |manifest| {
                manifest["sessions"][0]["upstreamId"] = json!("0a1b2c3d-0000-4000-8000-000000000001");
            }),
            damaged,
        ),
        (
            "an id that is a path",
            with_manifest(&entries, |manifest| {
                for part in ["sessions", "chain", "lineage"] {
                    manifest[part][0]["upstreamId"] = json!("../../escaped");
                }
            }),
            damaged,
        ),
        (
            "a session twice",
            with_manifest(&entries, |manifest| {
                let session = manifest["sessions"][0].clone();
                manifest["sessions"] = json!([session, session]);
            }),
            damaged,
        ),
        (
            "no agents",
            with_manifest(&entries, |manifest| manifest["agents"] = json!([])),
            damaged,
        ),
        (
            "a title without end",
            with_manifest(&entries, |manifest| {
                manifest["conversation"]["title"] = json!("x".repeat(5_000));
            }),
            ErrorKind::InvalidParams,
        ),
        (
            "another size",
            with_manifest(&entries, |manifest| {
                manifest["sessions"][0]["files"][0]["bytes"] = json!(1);
            }),
            damaged,
        ),
        (
            "more than any disk has",
            with_manifest(&entries, |manifest| {
                manifest["sessions"][0]["files"][0]["bytes"] = json!(1_u64 << 60);
            }),
            ErrorKind::StoreFailed,
        ),
        (
            "another hash",
            with_manifest(&entries, |manifest| {
                manifest["sessions"][0]["files"][0]["sha256"] = json!("0".repeat(64));
            }),
            damaged,
        ),
        (
            "no transcript",
            with_manifest(&entries, |manifest| {
                manifest["sessions"][0]["files"].as_array_mut().unwrap().remove(0);
            }),
            damaged,
        ),
    ];
    for (what, member, value) in [
        ("a name twice", "path", json!("more")),
        ("an entry twice", "name", json!(format!("{id}/tool-results/more"))),
        ("the manifest as a file", "path", json!("manifest.json")),
        ("a hash that is none", "sha256", json!("x".repeat(64))),
        ("a short hash", "sha256", json!("0")),
    ] {
        let bytes = with_manifest(&entries, |manifest| {
            let files = manifest["sessions"][0]["files"].as_array_mut().unwrap();
            if what.ends_with("twice") {
                files.push(files[1].clone());
            }
            files.last_mut().unwrap()[member] = value;
        });
        table.push((what, bytes, damaged));
    }
    let names = [
        "/tmp/escaped".to_owned(),
        "../escaped".to_owned(),
        format!("{id}/../../escaped"),
        format!("{id}/tool-results/../../escaped"),
        format!("{id}/tool-results//x"),
        format!("{id}/tool-results/./x"),
        format!("{id}/tool-results/"),
        format!("{id}/tool-results"),
        format!("{id}/tool-results/\u{0}"),
        format!("{id}/tool-results/\n"),
        format!("{id}.jsonl"),
        format!("{id}x/escaped"),
        "other.jsonl".to_owned(),
        String::new(),
        format!("{id}/tool-results/{}", "x".repeat(2_000)),
    ];
    for name in names {
        let bytes = with_manifest(&entries, |manifest| {
            manifest["sessions"][0]["files"][1]["name"] = json!(name);
        });
        table.push(("a name that leads elsewhere", bytes, damaged));
    }
    let bytes = with_manifest(&entries, |manifest| {
        manifest["sessions"][0]["files"][1]["knownAs"] = json!("/etc/tool-results/passwd");
    });
    table.push(("a result of another session that leads elsewhere", bytes, damaged));
    bench.refuses(table).await;
}

// Against D12.
#[tokio::test]
async fn an_archive_that_is_not_what_its_manifest_says_is_refused() {
    let bench = Bench::new().await;
    let damaged = ErrorKind::TranscriptDamaged;
    let entries = read(&bench.good);
    let name = String::from_utf8(entries[1].0.path_bytes().into_owned()).unwrap();
    let content = entries[1].1.clone();
    let replaced = |kind: EntryType, size: u64, content: &[u8]| {
        let other = entry(&name, kind, size, content);
        with_entries(&entries, |entries| entries[1] = other)
    };
    let length = content.len() as u64;
    let mut changed = content.clone();
    changed[10] ^= 1;
    let mut table = vec![
        (
            "another content",
            replaced(EntryType::Regular, length, &changed),
            damaged,
        ),
        (
            "more content",
            replaced(EntryType::Regular, length + 600, &vec![b'x'; content.len() + 600]),
            damaged,
        ),
        ("a bomb", replaced(EntryType::Regular, 1 << 40, &content), damaged),
        (
            "missing",
            with_entries(&entries, |entries| drop(entries.remove(1))),
            damaged,
        ),
        (
            "missing at the end",
            with_entries(&entries, |entries| drop(entries.pop())),
            damaged,
        ),
        (
            "doubled",
            with_entries(&entries, |entries| entries.insert(1, entries[1].clone())),
            damaged,
        ),
        (
            "in another order",
            with_entries(&entries, |entries| entries.swap(1, 2)),
            damaged,
        ),
        (
            "more than is said",
            with_entries(&entries, |entries| {
                entries.push(entry("../escaped", EntryType::Regular, 1, b"x"));
            }),
            damaged,
        ),
        (
            "a manifest without end",
            with_entries(&entries, |entries| {
                entries[0] = entry("manifest.json", EntryType::Regular, 1 << 40, b"{");
            }),
            damaged,
        ),
        (
            "no manifest first",
            with_entries(&entries, |entries| entries.swap(0, 1)),
            damaged,
        ),
    ];
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::Directory,
        EntryType::GNULongName,
        EntryType::XHeader,
        EntryType::XGlobalHeader,
        EntryType::GNUSparse,
    ] {
        table.push(("no regular file", replaced(kind, length, &content), damaged));
    }
    // The manifest states the same size as the bomb's header, but the content is shorter.
    let bomb = entry(&name, EntryType::Regular, 1 << 20, &content);
    let mut agreeing = entries.clone();
    agreeing[1] = bomb;
    let agreeing = with_manifest(&agreeing, |manifest| {
        manifest["sessions"][0]["files"][0]["bytes"] = json!(1_u64 << 20);
    });
    table.push(("a bomb that is announced and cut off", agreeing, damaged));
    bench.refuses(table).await;
}

#[tokio::test]
async fn paths_that_cannot_be_used_are_refused() {
    let home = Home::new();
    let (_daemon, app, id) = home.begun(&["one"]).await;
    let invalid = ErrorKind::InvalidParams;
    let project = home.project();
    for path in [json!("x"), json!(""), json!("/nowhere/at/all"), json!(project)] {
        refused(
            import(&app, json!({"path": path, "sameFolders": true})).await,
            invalid,
        );
    }
    let taken = home.path().join("taken");
    fs::write(&taken, "mine").unwrap();
    std::os::unix::fs::symlink("/nowhere", home.path().join("link")).unwrap();
    for format in ["json", "bundle"] {
        for (path, kind) in [
            (json!("x"), invalid),
            (json!("/nowhere/at/all"), invalid),
            (json!(format!("{}/x", taken.display())), invalid),
            (json!(format!("{project}/")), invalid),
            (json!(project), ErrorKind::Conflict),
            (json!(taken), ErrorKind::Conflict),
            (json!(home.path().join("link")), ErrorKind::Conflict),
        ] {
            let params = json!({"conversationId": id, "format": format, "path": path});
            refused(app.call("conversation/export", params).await, kind);
        }
    }
    let params = json!({"conversationId": id, "format": "other"});
    refused(app.call("conversation/export", params).await, invalid);
    assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
    assert_eq!(files_below(Path::new(&project)), [] as [PathBuf; 0]);
}
