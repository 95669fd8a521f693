//! Files of the user's own in the folders of the kept copies: the daemon deletes only what it wrote there.

use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::set_aside::kept;
use crate::carrying::files_below;
use crate::home::Home;
use crate::keeping::{keep, once_kept};

/// Puts files into a folder, as a user or another program may.
fn put(folder: &Path) -> [PathBuf; 2] {
    fs::create_dir_all(folder.join("stray")).unwrap();
    let files = ["notes.txt", "stray/notes.txt"].map(|name| folder.join(name));
    for file in &files {
        fs::write(file, "mine").unwrap();
    }
    files
}

#[tokio::test]
async fn deleting_a_conversation_deletes_our_copies_and_no_file_of_the_users() {
    let home = Home::new();
    let (_daemon, app) = home.opened().await;
    let (id, folder) = kept(&home, &app).await;
    let mine = put(&folder);
    app.erase(id).await;
    assert_eq!(files_below(&folder), mine);
    once_kept(&app, |total| total.sessions == 0).await;
    assert_eq!(
        app.set_aside().await,
        [folder.join("notes.txt"), folder.join("stray")]
    );
    // Other sessions are still kept.
    kept(&home, &app).await;
    once_kept(&app, |total| total.sessions == 1 && total.bytes > 0).await;
}

/// The daily pass deletes copies that are older than the user wants.
#[tokio::test]
async fn pruning_deletes_our_copies_and_no_file_of_the_users() {
    let home = Home::keeping_nothing();
    let mut mine = Vec::new();
    {
        let (_daemon, app) = home.opened().await;
        for _ in 0..2 {
            let id = app.begun(&home.project(), &["first"]).await;
            app.close(id).await;
            let transcript = home.transcript_of(&app, id).await;
            let old = SystemTime::UNIX_EPOCH;
            let file = fs::File::options().append(true).open(transcript);
            file.unwrap().set_modified(old).unwrap();
            let answer = keep(&app, json!({"conversationId": id})).await.unwrap();
            mine.extend(put(Path::new(&answer.kept[0].path).parent().unwrap()));
        }
    }
    // A deletion of copies that was interrupted by a kill leaves such a folder.
    let cut_short = home.data().join("kept/gone-00000000-0000-4000-8000-000000000000");
    mine.extend(put(&cut_short));
    fs::write(cut_short.join("7.zst"), "ours").unwrap();
    home.configure("default_agent = \"loopback\"\n[keep]\ndays = 2\n");
    let (_daemon, app) = home.opened().await;
    // The daily pass writes this file at its end.
    let passed = home.data().join("kept/passed");
    once_kept(&app, |total| total.sessions == 0 && passed.exists()).await;
    let left = files_below(&home.data().join("kept")).into_iter();
    let left: Vec<PathBuf> = left.filter(|path| !path.ends_with("passed")).collect();
    mine.sort();
    assert_eq!(left, mine);
    let reported = app.set_aside().await;
    assert_eq!(reported.len(), 6, "{reported:?}");
    assert!(reported.contains(&cut_short.join("notes.txt")), "{reported:?}");
}
