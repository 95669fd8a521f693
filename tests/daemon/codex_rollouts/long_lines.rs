//! A rollout with an oversized line.

use super::*;

/// The line of 300 MB is a hole that takes no space on disk. The records after it are read.
// Against D8.
#[tokio::test]
async fn a_line_that_is_too_long_is_passed_over_and_told() {
    use std::io::{Seek, SeekFrom, Write};
    let home = home();
    let (daemon, app) = home.opened().await;
    let path = rollout(&home, ROOT_ID);
    let first_turn: String = ROOT.lines().take(14).map(|line| format!("{line}\n")).collect();
    let rest: String = ROOT.lines().skip(14).map(|line| format!("{line}\n")).collect();
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(first_turn.as_bytes()).unwrap();
    file.write_all(br#"{"type":"response_item","payload":{"text":""#)
        .unwrap();
    file.seek(SeekFrom::Current(300 << 20)).unwrap();
    file.write_all(format!("\"}}}}\n{rest}").as_bytes()).unwrap();
    drop(file);
    let root = adopt(&app, &home, ROOT_ID).await;
    let told = history(&app, &root).await;
    assert_eq!(told["gaps"][0]["kind"], json!("broken"));
    assert_eq!(checkpoints(&app, &root).await.len(), 6);
    assert_eq!(findings(&app, ROOT_ID).await, [(15, "oversizedLine".to_owned())]);
    if let Some(peak) = daemon.peak_bytes() {
        assert!(peak < 150 << 20, "whole line in memory: {peak} bytes");
    }
    let page = app
        .call("transcript/list", json!({"agent": "codex"}))
        .await
        .unwrap();
    assert_eq!(page["transcripts"].as_array().unwrap().len(), 4);
}
