//! Moves in temporary folders, interrupted at each change on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::*;
use crate::files::durable::tests::Disk;
use crate::files::intent::Intent;
use crate::files::{entries, set_aside};
use crate::transcript::relocate::rewrite_lines;

const OLD: &str = "/home/u/my.app";
const NEW: &str = "/home/u/other";

/// An agent's folder with two sessions of the old folder, and the daemon's own.
struct Stage {
    _held: tempfile::TempDir,
    projects: PathBuf,
    data: PathBuf,
}

/// Every file and folder below one, by its path: what it holds and when it was changed.
type Tree = BTreeMap<PathBuf, Option<(String, SystemTime)>>;

fn record(uuid: &str, cwd: &str) -> String {
    format!("{{\"uuid\":\"{uuid}\",\"cwd\":\"{cwd}\",\"message\":\"in {OLD}\"}}\n")
}

fn text(cwd: &str) -> String {
    let sub = format!("{cwd}/sub");
    let lines = [
        record("1", cwd),
        "@@@\n".to_owned(),
        record("2", "/home/u/my.apparel"),
        record("2b", NEW),
        record("3", &sub),
    ];
    format!("{}{{\"uuid\":\"4\",\"cwd\":\"{cwd}\"", lines.concat())
}

impl Stage {
    fn new() -> Self {
        let held = tempfile::tempdir().unwrap();
        let projects = held.path().join("agent/projects");
        let stage = Self {
            data: held.path().join("data"),
            projects,
            _held: held,
        };
        fs::create_dir_all(&stage.data).unwrap();
        for session in ["s1", "s2"] {
            stage.put(&format!("-home-u-my-app/{session}.jsonl"), &text(OLD));
        }
        stage.put("-home-u-my-app/s1/subagents/agent-1.jsonl", &record("a", OLD));
        stage.put("-home-u-my-app/s1/subagents/agent-1.meta.json", OLD);
        stage.put("-home-u-my-app/s1/tool-results/r.txt", OLD);
        stage
    }

    fn at(&self, name: &str) -> PathBuf {
        self.projects.join(name)
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        fs::File::open(&path).unwrap().set_modified(then).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut folders = vec![self.projects.join("..")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = path.symlink_metadata().unwrap();
                if metadata.is_dir() {
                    folders.push(path.clone());
                    tree.insert(path, None);
                } else {
                    let said = fs::read_to_string(&path).unwrap_or_default();
                    tree.insert(path, Some((said, metadata.modified().unwrap())));
                }
            }
        }
        tree
    }

    /// The steps that take both sessions to another folder.
    fn steps(&self, folder: &str, to: &str) -> Vec<MoveStep> {
        let folders = [(OLD.to_owned(), to.to_owned())];
        let plans = ["s1", "s2"].map(|session| {
            let transcript = self.at(&format!("-home-u-my-app/{session}.jsonl"));
            plan(
                &transcript,
                &self.at(folder),
                &folders,
                &mut RemainingForks::default(),
            )
            .unwrap()
        });
        plans.into_iter().flat_map(|plan| plan.steps).collect()
    }

    /// The steps of the way back.
    fn back(&self) -> Vec<MoveStep> {
        let folders = [(NEW.to_owned(), OLD.to_owned())];
        let plans = ["s1", "s2"].map(|session| {
            let transcript = self.at(&format!("-home-u-other/{session}.jsonl"));
            let folder = self.at("-home-u-my-app");
            plan(&transcript, &folder, &folders, &mut RemainingForks::default()).unwrap()
        });
        plans.into_iter().flat_map(|plan| plan.steps).collect()
    }

    fn begin(&self, steps: Vec<MoveStep>) -> RunningMove {
        let name = Uuid::new_v4().to_string();
        RunningMove::begin(&self.data, &name, "subject".to_owned(), steps).unwrap()
    }

    /// A whole move that is neither recorded nor taken back, as a kill leaves it.
    fn killed(&self) {
        let mut moving = self.begin(self.steps("-home-u-other", NEW));
        carry_out(&mut moving).unwrap();
        moving.leave_unsettled();
    }

    /// All of it, as a loss of power would leave it.
    fn disk(&self) -> Disk {
        Disk::of(self._held.path())
    }

    fn has_leftovers(&self) -> bool {
        fs::read_dir(self.data.join("moves")).is_ok_and(|mut moves| moves.next().is_some())
    }
}

fn carry_out(moving: &mut RunningMove) -> Result<(), TranscriptError> {
    moving.run(&|_| Ok(()), &mut |_, _| {})
}

/// Results that were written in the new place are named by their path there.
#[test]
fn results_that_records_name_stay_where_they_are_named() {
    let stage = Stage::new();
    stage.killed();
    let there = stage.at("-home-u-other/s1/tool-results/r.txt");
    let named = format!(
        "{{\"uuid\":\"5\",\"content\":\"saved to: {}\"}}\n",
        there.display()
    );
    stage.put("-home-u-other/s1.jsonl", &named);
    let is_result = |step: &&MoveStep| step.from == there;
    assert!(stage.back().iter().find(is_result).unwrap().stays);
    stage.put("-home-u-other/s1.jsonl", &text(NEW));
    assert!(!stage.back().iter().find(is_result).unwrap().stays);
    // What differs is not the copy of what is there.
    stage.put("-home-u-other/s1/tool-results/r.txt", "another");
    assert!(stage.back().iter().find(is_result).unwrap().stays);
}

/// Breaks moves off behind each change on disk; the next start takes them back, or finds them done.
fn break_off_everywhere(make: impl Fn() -> (Stage, Vec<MoveStep>)) {
    let mut breaks = 0;
    loop {
        let (stage, steps) = make();
        let before = stage.tree();
        let disk = stage.disk();
        let mut moving = stage.begin(steps);
        moving.stop_after_changes = Some(breaks.into());
        let is_whole = carry_out(&mut moving).is_ok();
        // As if it were killed here.
        moving.leave_unsettled();
        let after = stage.tree();
        if is_whole {
            settle(&stage.data, |subject| Some(subject == "subject"));
            assert!(!stage.has_leftovers());
        }
        settle(&stage.data, |_| Some(false));
        if is_whole {
            // It is finished.
            assert_eq!(stage.tree(), after);
            disk.check_lasts("a move");
            break;
        }
        disk.check_lasts("a move that was taken back");
        assert_eq!(stage.tree(), before, "broken off after {breaks} changes");
        assert!(!stage.has_leftovers(), "broken off after {breaks} changes");
        breaks += 1;
    }
    assert!(breaks > 6, "{breaks}");

    let (stage, steps) = make();
    let before = stage.tree();
    let disk = stage.disk();
    let mut moving = stage.begin(steps);
    carry_out(&mut moving).unwrap();
    assert!(moving.undo());
    assert_eq!(stage.tree(), before);
    disk.check_lasts("a whole move that was taken back");
    assert!(!stage.has_leftovers());
}

/// Whenever the power fails all files are in the one place or in the other.
#[test]
fn nothing_leaves_its_place_before_its_copy_is_on_disk() {
    let stage = Stage::new();
    let steps = stage.steps("-home-u-other", NEW);
    let leaving = steps.iter().filter(|step| !step.stays).count();
    let disk = stage.disk();
    let mut moving = stage.begin(steps);
    // What is about to be done is written down.
    assert_eq!(disk.lost(), BTreeSet::new());
    carry_out(&mut moving).unwrap();
    moving.commit();
    disk.check_lasts("a move");
    let copy = |path: &Path| path.starts_with("agent/projects/-home-u-other");
    let names = disk.names();
    let left: Vec<_> = names
        .iter()
        .filter(|name| name.from.starts_with(stage.at("-home-u-my-app")))
        .collect();
    assert_eq!(left.len(), leaving);
    for name in left {
        assert!(!name.lost.iter().any(|path| copy(path)), "{name:?}");
    }
}

/// The agents' folders are named so that two paths may share one.
#[test]
fn a_session_whose_folder_keeps_its_name_is_written_anew_in_its_place() {
    let make = || {
        let stage = Stage::new();
        let steps = stage.steps("-home-u-my-app", "/home/u/my-app");
        (stage, steps)
    };
    break_off_everywhere(make);
    let (stage, steps) = make();
    // What says nothing of a folder has nowhere to go.
    assert_eq!(steps.len(), 3);
    let mut moving = stage.begin(steps);
    carry_out(&mut moving).unwrap();
    moving.commit();
    assert!(
        stage
            .read("-home-u-my-app/s1.jsonl")
            .contains("\"cwd\":\"/home/u/my-app\"")
    );
    assert!(
        stage
            .read("-home-u-my-app/s1/subagents/agent-1.jsonl")
            .contains("\"cwd\":\"/home/u/my-app\"")
    );
}

/// A fork in the same folder finds it there, and it cannot name two folders.
#[test]
fn what_a_fork_borrows_is_not_written_anew_in_its_place() {
    let stage = Stage::new();
    stage.put(
        "-home-u-my-app/s3.jsonl",
        "{\"forkedFrom\":{\"sessionId\":\"s1\"}}\n",
    );
    let mut moving = stage.begin(stage.steps("-home-u-my-app", "/home/u/my-app"));
    carry_out(&mut moving).unwrap();
    moving.commit();
    assert_eq!(
        stage.read("-home-u-my-app/s1/subagents/agent-1.jsonl"),
        record("a", OLD)
    );
    let is_hidden = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with('.');
    let left: Vec<_> = stage.tree().into_keys().filter(is_hidden).collect();
    assert_eq!(left, [] as [PathBuf; 0]);
}

/// As where the case of letters does not count.
#[test]
fn a_folder_that_is_the_same_under_another_name_is_seen_as_such() {
    let make = || {
        let stage = Stage::new();
        symlink(stage.at("-home-u-my-app"), stage.at("-HOME")).unwrap();
        let steps = stage.steps("-HOME", NEW);
        (stage, steps)
    };
    break_off_everywhere(make);
    let (stage, steps) = make();
    let mut moving = stage.begin(steps);
    carry_out(&mut moving).unwrap();
    moving.commit();
    assert!(
        stage
            .read("-home-u-my-app/s2.jsonl")
            .contains("\"cwd\":\"/home/u/other\"")
    );
}

#[test]
fn nothing_that_differs_is_replaced_and_the_same_will_do() {
    let stage = Stage::new();
    stage.put("-home-u-other/s2.jsonl", "mine\n");
    let before = stage.tree();
    let steps = stage.steps("-home-u-other", NEW);
    let refused = check_targets_free(&steps).unwrap_err();
    assert!(
        matches!(&refused, TranscriptError::AlreadyExists { path } if path.ends_with("-home-u-other/s2.jsonl"))
    );
    let mut moving = stage.begin(steps.clone());
    let refused = carry_out(&mut moving).unwrap_err();
    assert!(
        matches!(refused, TranscriptError::AlreadyExists { .. }),
        "{refused}"
    );
    drop(moving);
    assert_eq!(stage.tree(), before);

    let moved = steps.last().unwrap().relocation();
    let mut same = Vec::new();
    rewrite_lines(text(OLD).as_bytes(), &mut same, &moved).unwrap();
    stage.put("-home-u-other/s2.jsonl", std::str::from_utf8(&same).unwrap());
    let before = stage.tree();
    check_targets_free(&steps).unwrap();
    let mut moving = stage.begin(steps.clone());
    carry_out(&mut moving).unwrap();
    assert!(!stage.at("-home-u-my-app/s2.jsonl").exists());
    // What was there before it stays when it is taken back.
    assert!(moving.undo());
    assert_eq!(stage.tree(), before);
}

#[test]
fn nothing_is_written_through_a_link() {
    let stage = Stage::new();
    stage.put("elsewhere/mine.txt", "mine\n");
    stage.put("-home-u-other/s3.jsonl", "");
    stage.put("-home-u-my-app/memory/MEMORY.md", "remembered\n");
    for name in ["s1", "memory"] {
        symlink(stage.at("elsewhere"), stage.at(&format!("-home-u-other/{name}"))).unwrap();
    }
    let (project, folder) = (stage.at("-home-u-my-app"), stage.at("-home-u-other"));
    let transcript = project.join("s1.jsonl");
    let refused = plan(&transcript, &folder, &[], &mut RemainingForks::default()).unwrap_err();
    let source = std::error::Error::source(&refused).unwrap().to_string();
    crate::words::check("a move through a link", "transcript", &source);
    let memory = plan_memory(&project, &folder, &HashSet::new()).unwrap();
    assert_eq!((memory.steps.len(), memory.left_out.len()), (0, 1), "{memory:?}");
}

#[test]
fn a_source_that_somebody_writes_to_stays_with_what_was_written() {
    let stage = Stage::new();
    let mut moving = stage.begin(stage.steps("-home-u-other", NEW));
    let source = stage.at("-home-u-my-app/s2.jsonl");
    let refused = moving.run(&|_| Ok(()), &mut |_, _| fs::write(&source, "more\n").unwrap());
    assert!(matches!(refused, Err(TranscriptError::Changed { path }) if path == source));
    drop(moving);
    assert_eq!(stage.read("-home-u-my-app/s2.jsonl"), "more\n");
    assert_eq!(stage.read("-home-u-my-app/s1.jsonl"), text(OLD));
    assert!(!stage.at("-home-u-other").exists() && !stage.has_leftovers());
}

/// Where a move was cut short, and somebody went on in the new place before the next start.
#[test]
fn what_somebody_went_on_with_stays_beside_what_is_put_back() {
    let stage = Stage::new();
    let mut moving = stage.begin(stage.steps("-home-u-other", NEW));
    carry_out(&mut moving).unwrap();
    moving.leave_unsettled();
    fs::write(stage.at("-home-u-other/s1.jsonl"), "gone on\n").unwrap();
    settle(&stage.data, |_| Some(false));
    assert_eq!(stage.read("-home-u-my-app/s1.jsonl"), text(OLD));
    assert_eq!(stage.read("-home-u-other/s1.jsonl"), "gone on\n");
    assert!(!stage.at("-home-u-other/s2.jsonl").exists());

    // And where somebody began anew in the old one.
    let stage = Stage::new();
    let mut moving = stage.begin(stage.steps("-home-u-other", NEW));
    carry_out(&mut moving).unwrap();
    moving.leave_unsettled();
    stage.put("-home-u-my-app/s1.jsonl", "stub\n");
    settle(&stage.data, |_| Some(false));
    assert_eq!(stage.read("-home-u-my-app/s1.jsonl"), "stub\n");
    assert!(stage.at("-home-u-other/s1.jsonl").exists());
    assert!(stage.has_leftovers());
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_another_process_holds_open_is_not_moved() {
    let stage = Stage::new();
    let before = stage.tree();
    let held = fs::File::open(stage.at("-home-u-my-app/s2.jsonl")).unwrap();
    let mut holder = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::from(held))
        .spawn()
        .unwrap();
    let mut moving = stage.begin(stage.steps("-home-u-other", NEW));
    let refused = carry_out(&mut moving);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(
        matches!(refused, Err(TranscriptError::InUse { pid, .. }) if pid == holder.id()),
        "{refused:?}"
    );
    drop(moving);
    assert_eq!(stage.tree(), before);
}

/// A kill between the record and the deletion of the originals, or an older version, which kept them.
#[test]
fn the_originals_of_a_recorded_move_go_if_all_that_they_hold_is_where_it_went() {
    let (transcript, side) = (
        "-home-u-other/s1.jsonl",
        "-home-u-other/s1/subagents/agent-1.jsonl",
    );
    let changes: [(&str, bool, &dyn Fn(&Stage)); 5] = [
        ("nothing", true, &|_| {}),
        ("grown", true, &|stage| {
            stage.put(
                transcript,
                &format!("{}\n{}", stage.read(transcript), record("5", NEW)),
            );
        }),
        ("moved on", false, &|stage| {
            fs::rename(stage.at(transcript), stage.at("-home-u-other/s3.jsonl")).unwrap();
        }),
        ("written anew", false, &|stage| {
            stage.put(transcript, &record("6", NEW));
        }),
        ("cut", false, &|stage| stage.put(side, "")),
    ];
    for is_of_older_version in [false, true] {
        for (what, is_held, change) in &changes {
            let stage = Stage::new();
            stage.killed();
            let moves = stage.data.join("moves");
            if is_of_older_version {
                let folder = entries(&moves).unwrap().remove(0);
                let name = folder.file_name().unwrap().to_str().unwrap();
                let mut intent = Intent::find(&journal::KIND, &stage.data, name).unwrap();
                intent
                    .add_description(journal::MoveDescription::Recorded)
                    .unwrap();
            }
            change(&stage);
            let before = stage.tree();
            settle(&stage.data, |_| (!is_of_older_version).then_some(true));
            assert_eq!(stage.has_leftovers(), !is_held, "{what}");
            assert_eq!(stage.tree(), before, "{what}");
            let aside = set_aside::set_aside_files_in(&moves).unwrap();
            assert_eq!(aside.len(), usize::from(!is_held), "{what}");
            // None of them is deleted.
            let originals = aside
                .iter()
                .flat_map(|folder| entries(&folder.join("kept")).unwrap());
            assert_eq!(originals.count(), if *is_held { 0 } else { 4 }, "{what}");
        }
    }
}

#[test]
fn whatever_ends_a_move_it_is_done_or_taken_back() {
    break_off_everywhere(|| {
        let stage = Stage::new();
        let steps = stage.steps("-home-u-other", NEW);
        (stage, steps)
    });
}
