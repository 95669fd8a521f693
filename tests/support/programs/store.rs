//! A program that commits to a store until it is killed, and one that prints the contents of a store.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::Path;

use bridge_protocol::link::{Fidelity, LinkReason, Relation};
use bridge_protocol::raw::PromptContent;
use bridge_protocol::{AgentName, ConversationId, TurnId, UpstreamId};
use jiff::Timestamp;
use serde_json::json;
use session_bridge::chain::NewLink;
use session_bridge::store::{
    Change, ConversationRecord, OpenReport, PendingTurn, RECORD_VERSION, RebuildReason, RequestId,
    RequestRecord, Store, StoreOptions, TranscriptRoot, TurnPhase,
};

/// Number of conversations that are changed in turn; larger than the number of simultaneous changes.
const CONVERSATIONS: u64 = 8;

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

/// The change of this step: a new head for one of the conversations, sometimes with a pending prompt or a
/// long one.
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
        short_result: None,
        error: None,
        at,
    };
    Change {
        lineage: appended.entries.into_iter().map(|entry| (id, entry)).collect(),
        upstream: vec![(id, TranscriptRoot::new("/home/u/.claude"), upstream(step))],
        requests: vec![remembered],
        conversation: Some(record),
        // Some changes make the store rewrite everything.
        erases: step.is_multiple_of(11),
        ..Change::default()
    }
}

/// Creates conversations with these ids. All of them refer to the upstream id `shared`, unless it is empty.
pub(crate) fn fill(folder: &Path, cwd: &str, shared: &str, ids: &[String]) {
    let (store, _) = open(folder);
    let make = |id: &String| {
        let id: ConversationId = id.parse().unwrap();
        let held = Some(shared)
            .filter(|shared| !shared.is_empty())
            .map(UpstreamId::from)
            .into_iter();
        let record = ConversationRecord::new(
            id,
            AgentName::new("loopback"),
            cwd.to_owned(),
            Timestamp::UNIX_EPOCH,
        );
        store.commit(Change {
            conversation: Some(record),
            upstream: held.map(|held| (id, TranscriptRoot::new("/r"), held)).collect(),
            ..Change::default()
        })
    };
    let made: Vec<_> = ids.iter().map(make).collect();
    wait(async {
        for made in made {
            made.await.unwrap();
        }
        store.shutdown().await.unwrap();
    });
}

/// Commits changes forever, and prints a line for each change once it is acknowledged.
pub(crate) fn write(folder: &Path) {
    let (store, _) = open(folder);
    let mut output = std::io::stdout().lock();
    let mut step = store.status().sequence.0 + 1;
    loop {
        // Up to five changes at once, so that a kill also hits groups of changes.
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

/// Opens the store, checks that every change up to `acknowledged` is there, and prints all contents as JSON.
pub(crate) fn print(folder: &Path, acknowledged: u64) {
    let (store, report) = open(folder);
    check(&store, acknowledged);
    // If the process is killed while the database is replaced, the database is missing.
    let is_whole = matches!(report.rebuild_reason, None | Some(RebuildReason::Missing));
    let is_undamaged = is_whole && report.damaged.is_empty() && report.missing == 0;
    println!(
        "{}",
        json!({"contents": contents(&store), "isUndamaged": is_undamaged, "report": format!("{report:?}")})
    );
}

/// All contents of the store.
fn contents(store: &Store) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let scanned = store.scan_recent(None, usize::MAX, |_, _| true).unwrap();
    assert!(scanned.is_end);
    for (cursor, id) in scanned.found {
        let record = store.conversation(id).unwrap();
        let lineage = store.lineage_all(id).unwrap();
        all.insert(format!("recent {}", cursor.to_text()), id.to_string());
        all.insert(format!("conversation {id}"), format!("{record:?}"));
        all.insert(format!("lineage {id}"), format!("{lineage:?}"));
    }
    all.insert("count".to_owned(), store.status().conversations.to_string());
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

/// Checks that every change up to `acknowledged` is there and that no chain or lineage has a gap.
fn check(store: &Store, acknowledged: u64) {
    let sequence = store.status().sequence.0;
    assert!(
        sequence >= acknowledged,
        "change {acknowledged} was acknowledged, but the last one in the store is {sequence}"
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
