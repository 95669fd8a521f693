//! A daemon that is killed while it copies the files that are named by a fork of the agent's own: the next start
//! removes unfinished copies and copies the files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::copied_files::name_in_result;
use crate::home::Home;
use crate::signs::Watched;

/// The size of the file that is copied, in bytes: enough that a kill comes before its end.
const RESULT_BYTES: u64 = 512 * 1024 * 1024;

/// The folders of unfinished copies in the folder of a transcript.
fn unfinished(transcript: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(transcript.parent().unwrap()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let unfinished = paths.filter(|path| path.to_str().unwrap().ends_with(".tmp"));
    unfinished.collect()
}

#[tokio::test]
async fn files_of_a_fork_that_a_kill_cut_short_are_brought_by_the_next_start() {
    let home = Home::keeping_nothing();
    let (daemon, app) = home.opened().await;
    let source = app.begun(&home.project(), &["one [[tool read {\"a\":1}]]"]).await;
    app.close(source).await;
    let lender = home.transcript_of(&app, source).await;
    let results = lender.with_extension("").join("tool-results");
    fs::create_dir_all(&results).unwrap();
    let result = results.join("long.txt");
    File::create(&result).unwrap().set_len(RESULT_BYTES).unwrap();
    name_in_result(&lender, &result, None);

    let fork = app.fork(source, false).await.unwrap().conversation.id;
    let watched = Watched::below(&home.data());
    let beside = lender.clone();
    let is_begun = move || (!unfinished(&beside).is_empty()).then_some(());
    let begun = tokio::task::spawn_blocking(move || watched.wait_for("files of the fork", is_begun));
    app.send(fork, "two").await;
    begun.await.unwrap();
    let transcript = home.transcript_of(&app, fork).await;
    daemon.kill();
    let brought = transcript.with_extension("").join("tool-results");
    assert!(
        !unfinished(&transcript).is_empty() && !brought.exists(),
        "killed too late"
    );

    let (_daemon, app) = home.opened().await;
    assert_eq!(unfinished(&transcript), [] as [PathBuf; 0]);
    let files = fs::read_dir(&brought).unwrap().map(|entry| entry.unwrap().path());
    let sizes: Vec<u64> = files.map(|path| fs::metadata(path).unwrap().len()).collect();
    assert_eq!(sizes, [RESULT_BYTES]);
    assert_eq!(
        fs::read_dir(home.data().join("copies")).map_or(0, Iterator::count),
        0
    );
    assert_eq!(app.remembered(fork).await[1], "two");
}
