//! Stores whose files were damaged while no daemon ran, and stores that a newer version wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::ConversationState;
use bridge_protocol::diagnosis::{Diagnostic, DiagnosticKind, Severity};
use bridge_protocol::event::Event;
use rustix::io::Errno;
use serde_json::json;

use super::error_words::check_start;
use super::external_changes::limit_files;
use crate::failing_calls::{Call, Calls};
use crate::home::Home;
use crate::support::{App, Refusal};
use crate::test_programs;

/// Returns the path and content of each file below the folder, without the lock files that each start writes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_none_or(|extension| extension != "lock") {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

async fn ids(app: &App) -> Vec<String> {
    let listed = app
        .call("conversation/list", json!({"limit": 100}))
        .await
        .unwrap();
    let listed = listed["conversations"].as_array().unwrap().clone();
    let id = |one: &serde_json::Value| one["id"].as_str().unwrap().to_owned();
    listed.iter().map(id).collect()
}

/// The name of a version that is newer than this one.
const WRITER: &str = "session-bridge 9.8.7";

/// Returns a home with some conversations, whose daemon was stopped; the conversation that has turns; and all ids in
/// the order of the list.
async fn home_with_conversations() -> (Home, ConversationId, Vec<String>) {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    for _ in 0..10 {
        app.make(&home.project()).await;
    }
    let begun = app.begun(&home.project(), &["one", "two"]).await;
    let ids = ids(&app).await;
    assert_eq!(ids.len(), 11);
    drop(daemon);
    (home, begun, ids)
}

#[tokio::test]
async fn a_journal_of_a_newer_version_ends_the_start_and_stays_as_it_is() {
    let (home, begun, before) = home_with_conversations().await;
    let journal = home.data().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    let mut newer: serde_json::Value = serde_json::from_str(header).unwrap();
    newer["journal"] = json!(2);
    newer["writtenBy"] = json!(WRITER);
    fs::write(&journal, format!("{newer}\n{lines}{{\"not\":\"known yet\"")).unwrap();
    let as_it_is = files(&home.data());
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let times = || as_it_is.keys().map(|path| modified(path)).collect::<Vec<_>>();
    let before_starts = times();
    for _ in 0..2 {
        let (status, said) = home.run(&[]);
        let error = check_start("with a journal of a newer version", status.code(), &said);
        assert!(error.contains(WRITER), "{error}");
        let found = files(&home.data());
        assert!(found == as_it_is, "{:?}", found.keys());
        assert_eq!(times(), before_starts, "files were rewritten");
    }
    // The version that wrote the store still finds all of its data.
    fs::write(&journal, &text).unwrap();
    let (_daemon, app) = home.opened().await;
    assert_eq!(ids(&app).await, before);
    assert_eq!(app.remembered(begun).await, ["one", "two"]);
}

/// A start without room on the disk leaves an unfinished snapshot in the database, which sled cannot read later.
#[tokio::test]
async fn a_database_with_an_unfinished_snapshot_is_used() {
    let (home, begun, _) = home_with_conversations().await;
    let snapshot = home.data().join("store/snap.000000000000FFFF.generating");
    fs::write(&snapshot, "").unwrap();
    let (_daemon, app) = home.opened().await;
    assert_eq!(app.set_aside().await, [] as [PathBuf; 0]);
    assert!(!snapshot.exists());
    assert_eq!(app.remembered(begun).await, ["one", "two"]);
}

#[tokio::test]
async fn a_damaged_journal_loses_no_conversation_and_is_reported() {
    type Damage = fn(&mut Vec<u8>);
    let table: [(&str, Damage); 6] = [
        ("emptied", |bytes| bytes.clear()),
        ("cut to its half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("zeros", |bytes| bytes.fill(0)),
        ("a bit of the last line", |bytes| {
            let at = bytes.len() - 40;
            bytes[at] ^= 4;
        }),
        ("its last line break", |bytes| {
            let at = bytes.len() - 1;
            bytes[at] ^= 1;
        }),
        ("its header", |bytes| bytes[0] ^= 1),
    ];
    for (what, damage) in table {
        let (home, begun, before) = home_with_conversations().await;
        let journal = home.data().join("journal.jsonl");
        let mut bytes = fs::read(&journal).unwrap();
        damage(&mut bytes);
        fs::write(&journal, &bytes).unwrap();
        let (daemon, app) = home.opened().await;
        assert_eq!(ids(&app).await, before, "{what}");
        assert_eq!(app.remembered(begun).await, ["one", "two"], "{what}");
        assert_eq!(
            fs::read(home.data().join("journal.damaged-1")).unwrap(),
            bytes,
            "{what}"
        );

        let all = app.diagnosed().await;
        let found = all
            .iter()
            .find(|one| one.kind == DiagnosticKind::Store && one.data.get("missingChanges").is_some())
            .unwrap_or_else(|| panic!("{what}: {all:#?}"));
        assert_eq!(found.severity, Severity::Warning, "{what}: {found:?}");
        assert_eq!(found.data["missingChanges"], 0, "{what}: {found:?}");
        drop(daemon);

        // The journal was rewritten: it alone contains everything again.
        fs::remove_dir_all(home.data().join("store")).unwrap();
        let (_daemon, app) = home.opened().await;
        assert_eq!(ids(&app).await, before, "{what}");
        assert_eq!(app.remembered(begun).await[..2], ["one", "two"], "{what}");
    }
}

/// A journal without errors may be an older copy of itself.
#[tokio::test]
async fn a_journal_from_a_backup_loses_nothing_that_came_later() {
    let (home, begun, _) = home_with_conversations().await;
    let journal = home.data().join("journal.jsonl");
    let backup = fs::read(&journal).unwrap();
    let (daemon, app) = home.opened().await;
    app.make(&home.project()).await;
    app.send(begun, "three").await;
    let before = ids(&app).await;
    drop(daemon);
    for is_believed in [true, false] {
        fs::write(&journal, &backup).unwrap();
        if !is_believed {
            // This is the state after a loss of power.
            fs::write(home.data().join("store.trust"), "another boot").unwrap();
        }
        let (daemon, app) = home.opened().await;
        assert_eq!(ids(&app).await, before, "{is_believed}");
        assert_eq!(app.remembered(begun).await[..3], ["one", "two", "three"]);
        let all = app.diagnosed().await;
        let found = all.iter().find(|one| one.data.contains_key("restoredChanges"));
        let expected = if is_believed {
            Severity::Warning
        } else {
            Severity::Error
        };
        assert_eq!(found.map(|one| one.severity), Some(expected), "{all:#?}");
        drop(daemon);
    }
}

/// A line with a valid checksum is not damaged: a newer version wrote it, and can still read it when it runs again.
#[tokio::test]
async fn a_change_of_a_newer_version_ends_the_start_and_stays() {
    let (home, begun, before) = home_with_conversations().await;
    let journal = home.data().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let last = text.lines().last().unwrap();
    let sequence = serde_json::from_str::<serde_json::Value>(last).unwrap()["seq"]
        .as_u64()
        .unwrap()
        + 1;
    let change = r#"{"rooms":[{"name":"new"}]}"#;
    let mut sum = crc32fast::Hasher::new();
    sum.update(&sequence.to_be_bytes());
    sum.update(change.as_bytes());
    let line = format!(
        "{{\"seq\":{sequence},\"sum\":\"{:08x}\",\"change\":{change}}}\n",
        sum.finalize()
    );
    let newer = format!("{text}{line}");
    for has_database in [true, false] {
        fs::write(&journal, &newer).unwrap();
        if !has_database {
            fs::remove_dir_all(home.data().join("store")).unwrap();
        }
        let (status, said) = home.run(&[]);
        assert_eq!(status.code(), Some(1), "{said}");
        assert_eq!(fs::read_to_string(&journal).unwrap(), newer);
    }
    fs::write(&journal, &text).unwrap();
    let (_daemon, app) = home.opened().await;
    assert_eq!(ids(&app).await, before);
    assert_eq!(app.remembered(begun).await, ["one", "two"]);
}

/// While the store is missing, the files that only it could name must not be deleted as garbage.
#[tokio::test]
async fn what_is_beside_a_store_that_is_missing_stays_and_is_reported() {
    for removed in [
        &["store", "journal.jsonl"][..],
        &["store", "journal.jsonl", "store.trust"],
    ] {
        let home = Home::new();
        let (daemon, app, id) = home.begun(&[]).await;
        app.send(id, &"long ".repeat(4_000)).await;
        drop(daemon);
        let bodies: Vec<Vec<u8>> = files(&home.data().join("bodies")).into_values().collect();
        assert!(!bodies.is_empty());
        for name in removed {
            let path = home.data().join(name);
            match path.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
        let (_daemon, app) = home.opened().await;
        let left: Vec<Vec<u8>> = files(&home.data()).into_values().collect();
        assert!(bodies.iter().all(|body| left.contains(body)), "{removed:?}");
        let all = app.diagnosed().await;
        let found = all.iter().find(|one| one.data.contains_key("missingChanges"));
        assert_eq!(found.map(|one| one.severity), Some(Severity::Error), "{all:#?}");
    }
}

/// A start that finds intact files does not report an earlier loss again, and still deletes no file that may belong to
/// what was lost.
#[tokio::test]
async fn what_was_lost_is_reported_once_and_its_files_stay() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::new();
    let new: Vec<String> = (0..20).map(|_| ConversationId::mint().to_string()).collect();
    test_programs::fill_store(&home.data(), &home.project(), None, &new);
    let journal = home.data().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.remove(5);
    fs::write(&journal, lines.concat()).unwrap();
    fs::remove_dir_all(home.data().join("store")).unwrap();
    let imported = home.folder_named("agent") + "/.imported.tmp";
    fs::write(&imported, "its conversation may be among what was lost").unwrap();
    let plan = home.data().join("imports/begun/plan");
    fs::create_dir_all(plan.parent().unwrap()).unwrap();
    let notes = [
        json!({"conversation": ConversationId::mint()}),
        json!({"temporary": {"Unix": std::ffi::OsStr::new(&imported).as_bytes()}}),
    ];
    fs::write(&plan, format!("{}\n{}\n", notes[0], notes[1])).unwrap();

    for is_settled in [false, true] {
        let (daemon, app) = home.opened().await;
        let all = app.diagnosed().await;
        let found = all
            .iter()
            .find(|one| one.data.get("missingChanges") == Some(&json!(1)));
        let expected = (!is_settled).then_some(Severity::Error);
        assert_eq!(found.map(|one| one.severity), expected, "{all:#?}");
        assert!(fs::exists(&imported).unwrap(), "{is_settled}");
        daemon.kill();
    }
}

/// Only a part of the journal is left here, so the loss is reported.
#[tokio::test]
async fn what_neither_file_has_is_reported() {
    let (home, _, before) = home_with_conversations().await;
    let journal = home.data().join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.remove(5);
    fs::write(&journal, lines.concat()).unwrap();
    fs::remove_dir_all(home.data().join("store")).unwrap();
    let (_daemon, app) = home.opened().await;
    assert!(ids(&app).await.len() + 1 >= before.len());
    let all = app.diagnosed().await;
    let found = all
        .iter()
        .find(|one| one.data.get("missingChanges") == Some(&json!(1)));
    assert_eq!(found.map(|one| one.severity), Some(Severity::Error), "{all:#?}");
    assert!(home.data().join("journal.damaged-1").exists());
}

/// Copies a store that no daemon uses to another folder, in either direction.
fn copy_store(from: &Path, to: &Path) {
    let folder = to.join("store");
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    for name in ["journal.jsonl", "store.trust"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    for entry in fs::read_dir(from.join("store")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    id.trim().to_owned()
}

/// As after a kill, the database does not have the last changes of the journal. A damaged line at its end may have been
/// acknowledged; only a line without its line break is what a kill leaves.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_damaged_end_that_the_database_does_not_cover_is_reported() {
    type Damage = fn(&mut Vec<u8>);
    let table: [(&str, Damage, bool); 2] = [
        (
            "a bit",
            |bytes| {
                let at = bytes.len() - 40;
                bytes[at] ^= 4;
            },
            true,
        ),
        ("cut off", |bytes| bytes.truncate(bytes.len() - 40), false),
    ];
    for boot in [boot_id(), "another boot".to_owned()] {
        for (what, damage, is_reported) in table {
            let home = Home::new();
            let kept = home.path().join("kept");
            let first = home.start().app().await.make(&home.project()).await;
            copy_store(&home.data(), &kept);
            let second = home.start().app().await.make(&home.project()).await;
            let mut journal = fs::read(home.data().join("journal.jsonl")).unwrap();
            copy_store(&kept, &home.data());
            damage(&mut journal);
            fs::write(home.data().join("journal.jsonl"), &journal).unwrap();
            fs::write(home.data().join("store.trust"), &boot).unwrap();
            for start in 0..2 {
                let (_daemon, app) = home.opened().await;
                let ids = ids(&app).await;
                assert_eq!(ids, [first.to_string()], "{what}, {boot}: {second} is damaged");
                let all = app.diagnosed().await;
                let mut errors = all.iter().filter(|one| one.severity == Severity::Error);
                let has_error = errors.any(|one| one.kind == DiagnosticKind::Store);
                assert_eq!(has_error, is_reported && start == 0, "{what}, {boot}: {all:#?}");
            }
            let aside = fs::read(home.data().join("journal.damaged-1")).ok();
            assert_eq!(aside, is_reported.then_some(journal), "{what}, {boot}");
        }
    }
}

/// The store was restored from a copy and used again, and then its journal was replaced by one that was written before
/// the restore.
#[tokio::test]
async fn a_journal_and_a_database_that_went_different_ways_are_merged() {
    let (same, longer) = (
        json!({"title": "a"}),
        json!({"title": "a title of another length"}),
    );
    for title in [same, longer] {
        let home = Home::new();
        let kept = home.path().join("kept");
        let first = home.start().app().await.make(&home.project()).await;
        copy_store(&home.data(), &kept);
        let mut made = vec![first.to_string()];
        {
            let (_daemon, app) = home.opened().await;
            for _ in 0..2 {
                let one = app.make_with(&home.project(), json!({"title": "a"})).await;
                made.push(one.id.to_string());
            }
        }
        let journal = fs::read(home.data().join("journal.jsonl")).unwrap();
        copy_store(&kept, &home.data());
        {
            let (_daemon, app) = home.opened().await;
            let one = app.make_with(&home.project(), title.clone()).await;
            made.push(one.id.to_string());
        }
        fs::write(home.data().join("journal.jsonl"), &journal).unwrap();
        made.sort();
        for is_alone in [false, true] {
            if is_alone {
                fs::remove_dir_all(home.data().join("store")).unwrap();
            }
            let (_daemon, app) = home.opened().await;
            let mut found = ids(&app).await;
            found.sort();
            assert_eq!(found, made, "{title}, by the journal alone: {is_alone}");
            let all = app.diagnosed().await;
            let mut errors = all.iter().filter(|one| one.severity == Severity::Error);
            let has_error = errors.any(|one| one.kind == DiagnosticKind::Store);
            assert_eq!(has_error, !is_alone, "{title}: {all:#?}");
        }
        let aside = fs::read(home.data().join("journal.damaged-1")).unwrap();
        assert!(aside == journal, "{title}");
        assert!(home.data().join("store.damaged-1").exists(), "{title}");
    }
}

/// A missing, damaged or unreadable file of the store affects one conversation. All others stay as they are. The
/// affected one is reported; it continues without the lost part if possible, and can be deleted.
#[tokio::test]
async fn a_lost_part_of_one_conversation_is_reported_and_hides_no_other() {
    type Damage = fn(&Path);
    let table: [(&str, Damage); 2] = [
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("damaged", |path| fs::write(path, "something else").unwrap()),
    ];
    for (what, damage) in table {
        let home = Home::new();
        let (daemon, app) = home.opened().await;
        let with = json!({"title": "hit", "settings": {"systemPrompt": "be brief ".repeat(3_000)}});
        let hit = app.make_with(&home.project(), with.clone()).await.id;
        app.send(hit, "one").await;
        let doomed = app.make_with(&home.project(), with).await.id;
        let other = app.begun(&home.project(), &["one"]).await;
        let before = ids(&app).await;
        drop((app, daemon));
        let bodies = files(&home.data().join("bodies"));
        let [path] = &bodies.keys().collect::<Vec<_>>()[..] else {
            panic!("{:?}", bodies.keys())
        };
        damage(path);
        let name = path.to_str().unwrap();

        let (daemon, app) = home.opened().await;
        assert_eq!(ids(&app).await, before, "{what}");
        let page = app
            .call("conversation/list", json!({"query": "hit"}))
            .await
            .unwrap();
        for listed in page["conversations"].as_array().unwrap() {
            assert_eq!(listed["state"], "failed", "{what}: {listed}");
            assert!(listed["failure"].as_str().unwrap().contains(name), "{listed}");
            assert_eq!(listed["title"], "hit");
        }
        let mut raw = daemon.raw().await;
        let this = json!({"conversationId": hit});
        let refusal = Refusal(1015, "storeFailed", false);
        raw.refused("conversation/get", this.clone(), refusal).await;
        let found = app
            .call("conversation/resolve", json!({"name": hit}))
            .await
            .unwrap();
        assert_eq!(found["conversation"]["state"], "failed");
        assert_eq!(
            app.messages(hit).await.len(),
            2,
            "{what}: its history can be read"
        );
        assert_eq!(app.remembered(other).await, ["one"], "{what}");
        let reported = |all: Vec<Diagnostic>| {
            let of_path = all.into_iter().filter(|one| one.subject.as_deref() == Some(name));
            let errors = of_path.filter(|one| one.severity == Severity::Error && one.next_step.is_some());
            errors
                .map(|one| one.data["conversationId"].clone())
                .collect::<Vec<_>>()
        };
        let mut named = reported(app.diagnosed().await);
        named.sort_by_key(ToString::to_string);
        let mut expected = [json!(hit), json!(doomed)];
        expected.sort_by_key(ToString::to_string);
        assert_eq!(named, expected, "{what}");

        app.send(hit, "two").await;
        assert_eq!(app.remembered(hit).await, ["one", "two"], "{what}");
        let now = app.get(hit).await;
        assert_eq!((now.failure, now.settings.system_prompt), (None, None), "{what}");
        app.ask("conversation/delete", doomed).await;
        let mut left = ids(&app).await;
        left.sort();
        let mut expected = vec![hit.to_string(), other.to_string()];
        expected.sort();
        assert_eq!(left, expected, "{what}");
        assert!(reported(app.diagnosed().await).is_empty(), "{what}");
        let kept = files(&home.data().join("bodies"));
        let is_kept = kept.values().any(|content| content == b"something else");
        assert_eq!(is_kept, what == "damaged", "nothing is deleted");
    }
}

/// Returns the path of the only body in the store.
fn only_body(home: &Home) -> PathBuf {
    let bodies: Vec<_> = files(&home.data().join("bodies")).into_keys().collect();
    let [path] = &bodies[..] else { panic!("{bodies:?}") };
    path.clone()
}

/// The task that deletes a conversation does not have its complete record. If the deletion fails, nothing else uses
/// that task, so the record stays unchanged.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_deletion_that_fails_changes_nothing_of_what_cannot_be_read() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let prompt = "be brief ".repeat(3_000);
    let with = json!({"settings": {"systemPrompt": prompt}});
    let id = app.make_with(&home.project(), with).await.id;
    app.send(id, "one").await;
    drop((app, daemon));
    let path = only_body(&home);
    // A file that cannot be read may be intact, so the conversation does not continue without it.
    let calls = Calls::of(&home, &[Call::Read]);
    calls.fail(Call::Read, &path, Errno::IO, usize::MAX);
    let daemon = calls.start();
    daemon.app().await;
    let mut raw = daemon.raw().await;
    let of = |more: serde_json::Value| {
        let mut params = json!({"conversationId": id});
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        params
    };
    let refusal = Refusal(1015, "storeFailed", true);
    let prompted = of(json!({"prompt": "two"}));
    raw.refused("conversation/prompt", prompted.clone(), refusal)
        .await;
    let journal = fs::metadata(home.data().join("journal.jsonl")).unwrap().len();
    limit_files(&daemon, Some(journal));
    let kept = of(json!({"transcripts": "keep"}));
    raw.refused("conversation/delete", kept, refusal).await;
    limit_files(&daemon, None);
    raw.refused("conversation/prompt", prompted, refusal).await;
    raw.refused("conversation/update", of(json!({"title": "new"})), refusal)
        .await;
    daemon.kill();

    let (_daemon, app) = home.opened().await;
    assert_eq!(app.remembered(id).await, ["one"]);
    assert_eq!(app.get(id).await.settings.system_prompt, Some(prompt));
}

/// Without its system prompt, a scheduled continuation could behave differently.
#[tokio::test]
async fn a_conversation_that_lacks_a_part_does_not_continue_automatically() {
    let home = Home::new();
    let (daemon, app) = home.opened().await;
    let with = json!({"settings": {"systemPrompt": "be brief ".repeat(3_000)}});
    let id = app.make_with(&home.project(), with).await.id;
    let waiting = json!({"conversationId": id, "prompt": "[[limit 3600]]", "onLimit": "wait"});
    app.call("conversation/prompt", waiting).await.unwrap();
    assert!(app.get(id).await.continuation.is_some());
    drop((app, daemon));
    let path = only_body(&home);
    fs::remove_file(&path).unwrap();

    let (_daemon, app) = home.opened().await;
    let mut all = app.events_of(None, None).await;
    let Event::Snapshot { conversation, .. } = all.until("snapshot").await else {
        unreachable!()
    };
    let failure = conversation.failure.as_deref().unwrap_or_default();
    assert!(failure.contains("does not continue automatically"), "{failure}");
    assert!(failure.contains(path.to_str().unwrap()), "{failure}");
    let shown = (conversation.id, conversation.state, conversation.continuation);
    assert_eq!(shown, (id, ConversationState::Failed, None));
    app.send(id, "two").await;
    let now = app.get(id).await;
    assert_eq!((now.failure, now.continuation), (None, None));
}
