//! The store against a killed process: what was acknowledged is there after any end, and the ways back agree.
//!
//! The test runs itself as a child that commits and prints each acknowledged change; the parent kills it with SIGKILL at
//! random moments and looks at what is left. The seed is printed; `SESSION_BRIDGE_CRASH_SEED` sets it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of a test are tests too"
)]

#[cfg(target_os = "linux")]
use crate::signs;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use bridge_protocol::raw::PromptContent;
use bridge_protocol::{AgentName, ConversationId, TurnId, UpstreamId};
use jiff::Timestamp;
use session_bridge::chain::NewLink;
use session_bridge::store::{
    Change, ConversationRecord, OpenReport, PendingTurn, RECORD_VERSION, RequestId, RequestRecord, Store,
    StoreOptions, TranscriptRoot, TurnPhase,
};

/// Names the folder to the child, and makes the test binary one.
const FOLDER_VARIABLE: &str = "SESSION_BRIDGE_CRASH_FOLDER";
const SEED_VARIABLE: &str = "SESSION_BRIDGE_CRASH_SEED";

/// How often the child is killed.
const LIVES: u64 = 15;

/// Conversations that the child changes in turn; more than it changes at once.
const CONVERSATIONS: u64 = 8;

/// A small generator: the same seed gives the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn open(folder: &Path) -> (Store, OpenReport) {
    Store::open(folder, StoreOptions::default()).unwrap()
}

fn conversation(step: u64) -> ConversationId {
    let mut bytes = [0xC0; 16];
    bytes[..8].copy_from_slice(&(step % CONVERSATIONS).to_be_bytes());
    ConversationId::from_bytes(bytes)
}

fn upstream(step: u64) -> UpstreamId {
    UpstreamId::new(format!("upstream {step}"))
}

fn request(step: u64) -> RequestId {
    RequestId::new(format!("request {step}"))
}

/// The change of this step: a new head for one of the conversations, now and then with a pending or a long prompt.
fn change(store: &Store, step: u64) -> Change {
    let at = Timestamp::from_second(i64::try_from(step).unwrap()).unwrap();
    let id = conversation(step);
    let mut record = store.conversation(id).unwrap().unwrap_or_else(|| {
        ConversationRecord::new(id, AgentName::new("claude"), "/home/u/project".to_owned(), at)
    });
    let appended = record.chain.append(
        NewLink {
            upstream_id: upstream(step),
            agent: record.agent.clone(),
            cwd: record.cwd.clone(),
            reason: LinkReason::Rolled,
            relation: Relation::Follows,
            from_upstream_id: None,
            from_checkpoint_id: None,
            cause: None,
            turns: 1,
            carried_turns: 0,
            written: true,
        },
        Fidelity::Full,
        at,
    );
    let words = if step.is_multiple_of(10) { 4_000 } else { 1 };
    record.updated_at = at;
    record.revision = step;
    record.turn = step.is_multiple_of(5).then(|| PendingTurn {
        turn_id: TurnId::new(format!("turn {step}")),
        prompt: PromptContent::text(&format!("{step} long ").repeat(words)),
        accepted_at: at,
        upstream_id: Some(upstream(step)),
        phase: TurnPhase::Sent,
        anchor: None,
        min_fidelity: None,
        continues: false,
        taken: false,
        fingerprint: None,
        edit: None,
        request_id: Some(request(step)),
    });
    let remembered = RequestRecord {
        version: RECORD_VERSION,
        conversation_id: Some(id),
        request_id: request(step),
        fingerprint: String::new(),
        turn_id: None,
        result: None,
        error: None,
        at,
    };
    Change {
        lineage: appended.entries.into_iter().map(|entry| (id, entry)).collect(),
        upstream: vec![(id, TranscriptRoot::new("/home/u/.claude"), upstream(step))],
        requests: vec![remembered],
        conversation: Some(record),
        ..Change::default()
    }
}

/// Not a test of its own: what the child runs until it is killed. Without the variable there is nothing to do.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE) else {
        return;
    };
    let (store, _) = open(Path::new(&folder));
    let mut output = std::io::stdout().lock();
    let mut step = store.status().sequence.0 + 1;
    loop {
        // One to five at a time, so that a kill meets groups too.
        let together: Vec<_> = (step..=step + step % 5)
            .map(|step| (step, store.commit(change(&store, step))))
            .collect();
        for (committed, commit) in together {
            let sequence = wait(commit).unwrap();
            assert_eq!(sequence.0, committed);
            writeln!(output, "acknowledged {committed}").unwrap();
            output.flush().unwrap();
            step = committed + 1;
        }
    }
}

/// Lets a child acknowledge some changes, kills it so many changes on disk later, and returns the last that it
/// acknowledged.
fn one_life(folder: &Path, changes: u64, further: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store_crash::child",
            "--nocapture",
            "--test-threads",
            "1",
        ])
        .env(FOLDER_VARIABLE, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut acknowledged = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .filter_map(|line| line.ok()?.split_once("acknowledged ")?.1.parse().ok());
    let mut last: Option<u64> = None;
    for _ in 0..changes {
        last = acknowledged.next().or(last);
    }
    // Spreads the kill over what the child does between two acknowledgements.
    let process = signs::descriptor_of(child.id()).unwrap();
    signs::Watched::below(folder).let_pass(further, process);
    child.kill().unwrap();
    child.wait().unwrap();
    acknowledged.last().or(last).unwrap()
}

/// Everything that the store holds.
fn contents(store: &Store) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for item in store.recent(None) {
        let (cursor, record) = item.unwrap();
        let lineage = store.lineage_all(record.id).unwrap();
        all.insert(format!("recent {}", cursor.to_text()), record.id.to_string());
        all.insert(format!("conversation {}", record.id), format!("{record:?}"));
        all.insert(format!("lineage {}", record.id), format!("{lineage:?}"));
    }
    all.insert("count".to_owned(), store.count().to_string());
    all.insert(
        "unfinished".to_owned(),
        format!("{:?}", store.unfinished().unwrap()),
    );
    all.insert("sequence".to_owned(), format!("{:?}", store.status().sequence));
    for step in 1..=store.status().sequence.0 {
        let owners = store.owners(&upstream(step), None).unwrap();
        let known = store.request(Some(conversation(step)), &request(step)).unwrap();
        all.insert(format!("step {step}"), format!("{owners:?} {known:?}"));
    }
    all
}

/// Whether everything up to this change is there, and no chain or lineage has a hole.
fn check(store: &Store, acknowledged: u64) {
    let sequence = store.status().sequence.0;
    assert!(
        sequence >= acknowledged,
        "{acknowledged} was acknowledged, {sequence} is the last there"
    );
    let mut held: HashMap<ConversationId, Vec<UpstreamId>> = HashMap::new();
    for step in 1..=sequence {
        let resolved = store.resolve(&upstream(step).as_str().into()).unwrap();
        assert_eq!(resolved.id, conversation(step), "step {step}");
        held.entry(resolved.id).or_default().push(upstream(step));
    }
    for (id, ids) in held {
        let record = store.conversation(id).unwrap().unwrap();
        let lineage = store.lineage_all(id).unwrap();
        let logged: Vec<_> = lineage.iter().map(|entry| entry.upstream_id.clone()).collect();
        assert_eq!(logged, ids, "the lineage of {id}");
        assert_eq!(record.chain.head().map(|head| &head.upstream_id), ids.last());
        assert_eq!(record.chain.last_lineage_seq(), lineage.len() as u64);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let target = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            copy_folder(&file.path(), &target);
        } else {
            fs::copy(file.path(), target).unwrap();
        }
    }
}

/// Opens a copy of the folder to which something was done, and expects what the store itself holds.
fn expect_the_same(
    folder: &Path,
    expected: &BTreeMap<String, String>,
    what: &str,
    damage: impl FnOnce(&Path),
) {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(folder, copy.path());
    damage(copy.path());
    let (store, report) = open(copy.path());
    assert_eq!(&contents(&store), expected, "{what}: {report:?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let seed = std::env::var(SEED_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()) * 2_654_435_761 + 1);
    println!("{SEED_VARIABLE}={seed}");
    let mut random = Random(seed);
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    let mut acknowledged = 0;
    for life in 1..=LIVES {
        let before = acknowledged;
        acknowledged = one_life(
            &folder,
            1 + random.below(60),
            usize::try_from(random.below(24)).unwrap(),
        );
        assert!(
            acknowledged > before,
            "life {life} goes on where the one before it ended"
        );
        if !life.is_multiple_of(5) {
            continue;
        }

        let crashed = tempfile::tempdir().unwrap();
        copy_folder(&folder, crashed.path());
        let (store, report) = open(&folder);
        check(&store, acknowledged);
        let expected = contents(&store);
        let is_undamaged = report.rebuilt.is_none() && report.damaged.is_empty() && report.missing == 0;
        assert!(is_undamaged, "{report:?}");
        drop(store);

        for after in [crashed.path(), &folder] {
            expect_the_same(after, &expected, "without a database", |copy| {
                fs::remove_dir_all(copy.join("store")).unwrap();
            });
            expect_the_same(after, &expected, "a database that is not believed", |copy| {
                fs::remove_file(copy.join("store.trust")).unwrap();
            });
            let start = usize::try_from(random.below(64)).unwrap();
            expect_the_same(after, &expected, "a damaged database", |copy| {
                let path = copy.join("store").join("db");
                let mut bytes = fs::read(&path).unwrap();
                bytes[start..].fill(0x5A);
                fs::write(&path, bytes).unwrap();
            });
            let unfinished = "x".repeat(usize::try_from(random.below(200)).unwrap());
            expect_the_same(after, &expected, "a torn end of the journal", |copy| {
                let path = copy.join("journal.jsonl");
                let mut bytes = fs::read(&path).unwrap();
                bytes.extend_from_slice(format!("{{\"seq\":9,\"sum\":\"{unfinished}").as_bytes());
                fs::write(&path, bytes).unwrap();
            });
        }
    }
}
