//! The list of a session's kept copies: damage to it deletes no copy, and lists of the previous version are read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bridge_protocol::ConversationId;
use serde_json::{Value, json};

use super::set_aside::kept_and_stopped;
use crate::carrying::files_below;
use crate::home::Home;
use crate::keeping::{keep, lose};
use crate::support::App;

/// Returns the names and contents of the copies, without the list.
fn copies(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = files_below(folder).into_iter();
    let copies = files.filter(|path| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        matches!(ending, Some("zst" | "link"))
    });
    let read = copies.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    });
    read.collect()
}

/// Converts the list to the previous version's format.
fn in_the_old_form(text: &[u8]) -> Value {
    let line: Value = serde_json::from_slice(text).unwrap();
    let mut list = line.get("note").unwrap_or(&line).clone();
    list["version"] = json!(1);
    list
}

/// Keeps the session once more, which also cleans up the copies' folder.
async fn kept_again(app: &App, id: ConversationId) {
    app.send(id, "second").await;
    app.close(id).await;
    keep(app, json!({"conversationId": id})).await.unwrap();
}

/// The flipped bit changes the name of a copy in the list; the list still parses.
#[tokio::test]
async fn a_flipped_bit_in_the_list_deletes_no_copy() {
    for is_old in [false, true] {
        let home = Home::new();
        let (id, folder) = kept_and_stopped(&home).await;
        let list = folder.join("kept.json");
        let mut text = fs::read(&list).unwrap();
        if is_old {
            text = in_the_old_form(&text).to_string().into_bytes();
        }
        let name = copies(&folder).into_keys().next().unwrap();
        let at = memchr::memmem::find(&text, format!("\"{name}\"").as_bytes()).unwrap() + 1;
        text[at] ^= 2;
        fs::write(&list, &text).unwrap();
        let before = copies(&folder);
        let (_daemon, app) = home.opened().await;
        kept_again(&app, id).await;
        let after: Vec<Vec<u8>> = files_below(&home.data().join("kept"))
            .iter()
            .map(|path| fs::read(path).unwrap())
            .collect();
        assert!(before.values().all(|copy| after.contains(copy)), "{is_old}");
        // A list without a checksum loses only the entry that matches no copy, and is rewritten with a checksum.
        assert_eq!(after.contains(&text), !is_old, "the list is set aside");
        assert_eq!(app.set_aside().await.len(), 1, "{is_old}");
        // `kept_again` copied the whole session, so it can be restored.
        lose(&home);
        assert_eq!(app.remembered(id).await, ["first", "second"], "{is_old}");
    }
}

#[tokio::test]
async fn a_list_of_the_version_before_is_read_and_then_written_with_a_checksum() {
    let home = Home::new();
    let (id, folder) = kept_and_stopped(&home).await;
    let list = folder.join("kept.json");
    let old = in_the_old_form(&fs::read(&list).unwrap());
    fs::write(&list, old.to_string()).unwrap();
    {
        let (_daemon, app) = home.opened().await;
        lose(&home);
        assert_eq!(app.remembered(id).await, ["first"]);
        kept_again(&app, id).await;
        assert_eq!(app.set_aside().await.len(), 0);
        lose(&home);
        assert_eq!(app.remembered(id).await[..2], ["first", "[[recall]]"]);
    }
    let new: Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
    assert!(new["crc32"].is_u64(), "{new}");
    assert_eq!(new["note"]["upstreamId"], old["upstreamId"]);
    // An older version, which reads only the old format, takes this list for a newer one and leaves it alone.
    assert!(new["version"].as_u64() > old["version"].as_u64(), "{new}");
}

/// No version has written this member so far. It has a meaning that would be lost if this version rewrote the list.
#[tokio::test]
async fn a_list_with_an_unknown_member_is_not_taken_for_less() {
    let home = Home::new();
    let (id, folder) = kept_and_stopped(&home).await;
    let list = folder.join("kept.json");
    let mut old = in_the_old_form(&fs::read(&list).unwrap());
    old["pinned"] = json!(true);
    let text = old.to_string();
    fs::write(&list, &text).unwrap();
    let (_daemon, app) = home.opened().await;
    kept_again(&app, id).await;
    let lists = files_below(&home.data().join("kept"));
    let mut lists = lists.iter().filter(|path| path.ends_with("kept.json"));
    assert!(lists.any(|path| fs::read_to_string(path).unwrap() == text));
    assert_eq!(app.set_aside().await.len(), 1);
}
