//! Kills a process that writes to the store. Everything acknowledged must exist after any end, and all ways
//! to rebuild the store must give the same contents.
//!
//! A helper program commits changes and prints each acknowledged one. The test kills it with SIGKILL at
//! random moments and examines the store. The seed is printed; `SESSION_BRIDGE_CRASH_SEED` sets it, and
//! `CRASH_ROUNDS` sets how many times the process is killed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of a test are tests too"
)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::carrying::copy_folder;
use crate::{signs, test_programs};

const SEED_VARIABLE: &str = "SESSION_BRIDGE_CRASH_SEED";

/// How many times the process is killed, unless `CRASH_ROUNDS` is set.
const LIVES: u64 = 15;

/// How many times the process is killed for one folder, whose contents grow.
const LIVES_OF_A_FOLDER: u64 = 30;

/// A generator of pseudorandom numbers: the same seed gives the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Waits until the process has acknowledged this many changes, then kills it after `further` changes on disk.
/// Returns the last change that it acknowledged.
fn one_life(folder: &Path, changes: u64, further: usize) -> u64 {
    let mut child = Command::new(test_programs::path())
        .arg("store-writer")
        .arg(folder)
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
    // Spreads the kills over everything that the process does between two acknowledgements.
    let process = signs::descriptor_of(child.id()).unwrap();
    signs::Watched::below(folder).let_pass(further, process);
    child.kill().unwrap();
    child.wait().unwrap();
    acknowledged.last().or(last).unwrap()
}

/// The contents of the store in this folder, and the report of opening it.
fn held(folder: &Path, acknowledged: u64) -> Value {
    let output = Command::new(test_programs::path())
        .arg("store-contents")
        .args([folder.as_os_str(), acknowledged.to_string().as_ref()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Damages a copy of the folder, opens it, and checks that it has the same contents as the original.
fn expect_the_same(folder: &Path, expected: &Value, what: &str, damage: impl FnOnce(&Path)) {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(folder, copy.path());
    damage(copy.path());
    let held = held(copy.path(), 0);
    assert_eq!(&held["contents"], expected, "{what}: {}", held["report"]);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let seed = std::env::var(SEED_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()) * 2_654_435_761 + 1);
    println!("{SEED_VARIABLE}={seed}");
    let mut random = Random(seed);
    let lives = std::env::var("CRASH_ROUNDS").map_or(LIVES, |lives| lives.parse().unwrap());
    for first in (0..lives).step_by(usize::try_from(LIVES_OF_A_FOLDER).unwrap()) {
        outlive(&mut random, LIVES_OF_A_FOLDER.min(lives - first));
    }
}

/// Kills the process this many times for one folder.
fn outlive(random: &mut Random, lives: u64) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    let mut acknowledged = 0;
    for life in 1..=lives {
        let before = acknowledged;
        acknowledged = one_life(
            &folder,
            1 + random.below(60),
            usize::try_from(random.below(24)).unwrap(),
        );
        assert!(
            acknowledged > before,
            "life {life} does not continue after the previous one"
        );
        if !life.is_multiple_of(5) {
            continue;
        }

        let crashed = tempfile::tempdir().unwrap();
        copy_folder(&folder, crashed.path());
        let held = held(&folder, acknowledged);
        assert_eq!(held["isUndamaged"], true, "{}", held["report"]);
        let expected = &held["contents"];

        for after in [crashed.path(), &folder] {
            // If the process is killed while it replaces the database, no database is left.
            let has_database = after.join("store").exists();
            expect_the_same(after, expected, "without a database", |copy| {
                if has_database {
                    fs::remove_dir_all(copy.join("store")).unwrap();
                }
            });
            expect_the_same(after, expected, "a database that is not believed", |copy| {
                // The database may just have been replaced.
                let trust = copy.join("store.trust");
                if trust.exists() {
                    fs::remove_file(trust).unwrap();
                }
            });
            let start = usize::try_from(random.below(64)).unwrap();
            expect_the_same(after, expected, "a damaged database", |copy| {
                if !has_database {
                    return;
                }
                let path = copy.join("store").join("db");
                let mut bytes = fs::read(&path).unwrap();
                bytes[start..].fill(0x5A);
                fs::write(&path, bytes).unwrap();
            });
            let unfinished = "x".repeat(usize::try_from(random.below(200)).unwrap());
            expect_the_same(after, expected, "a torn end of the journal", |copy| {
                let path = copy.join("journal.jsonl");
                let mut bytes = fs::read(&path).unwrap();
                bytes.extend_from_slice(format!("{{\"seq\":9,\"sum\":\"{unfinished}").as_bytes());
                fs::write(&path, bytes).unwrap();
            });
        }
    }
}
