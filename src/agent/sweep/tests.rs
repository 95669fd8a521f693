#![cfg(target_os = "linux")]

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::table::{EnvironmentMark, Process, ProcessKey, parse_stat, select_targets};
use super::*;
use crate::agent::process::MARK_VARIABLE;
use crate::store::{RECORD_VERSION, boot_id};

const DEADLINES: StopDeadlines = StopDeadlines {
    eof: Duration::ZERO,
    term: Duration::from_secs(30),
    kill: Duration::from_secs(30),
};

fn instance() -> Instance {
    Instance::new(&uuid::Uuid::new_v4().to_string())
}

fn record(pid: u32, start_time_ticks: Option<u64>, boot_id: Option<String>) -> ProcessRecord {
    ProcessRecord {
        version: RECORD_VERSION,
        mark: SpawnMark::random(&instance()).to_string(),
        pid,
        start_time_ticks,
        boot_id,
        agent: "test".into(),
        spawned_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

/// A process in its own group that only a signal ends.
struct Sleeper(Child);

impl Sleeper {
    fn start(mark: Option<&str>) -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").env_remove(MARK_VARIABLE).stdin(Stdio::null());
        if let Some(mark) = mark {
            command.env(MARK_VARIABLE, mark);
        }
        Self(command.spawn().unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn record(&self, start_time: Option<u64>, boot_id: Option<String>) -> ProcessRecord {
        record(self.0.id(), start_time, boot_id)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_stat_line_is_read_whatever_the_name_is() {
    let numbers = "S 41 42 43 0 -1 4194304 101 0 0 0 0 0 0 0 20 0 1 0 987654 3133440 88";
    for name in ["sh", "a b", "x) S 1 (y", "(", ")", ""] {
        let stat = parse_stat(&format!("4711 ({name}) {numbers}\n")).unwrap();
        assert_eq!(
            (
                stat.name.as_str(),
                stat.parent,
                stat.group,
                stat.session,
                stat.start_time
            ),
            (name, 41, 42, 43, 987_654)
        );
        assert!(!stat.has_ended);
    }
    assert!(
        parse_stat(&format!("1 (z) {}", numbers.replace('S', "Z")))
            .unwrap()
            .has_ended
    );
    for bad in [
        "",
        "1 sh S 2",
        "1 (sh) S",
        "1 (sh) S x 42 42 0 -1 4194304 101 0 0 0 0 0 0 0 20 0 1 0 9 3 8",
    ] {
        assert_eq!(parse_stat(bad), None, "{bad}");
    }
}

/// A process in a group and session of its own.
fn process(pid: u32, parent: u32, start_time: u64, mark: EnvironmentMark) -> Process {
    Process {
        pid,
        name: String::new(),
        has_ended: false,
        parent,
        group: pid,
        session: pid,
        start_time,
        mark,
    }
}

/// Returns the pids of the targets, without recorded ones.
fn pids(table: &[Process], known: &[ProcessKey], daemons: &[u32]) -> Vec<u32> {
    let known = known.iter().copied().collect();
    let daemons = daemons.iter().copied().collect();
    let found = select_targets(table, &[], None, &known, &HashSet::new(), &daemons);
    found.into_iter().map(|process| process.pid).collect()
}

/// By then all agents have ended.
#[test]
fn orphans_are_targets_unless_another_daemon_has_marked_them() {
    let table = [
        process(10, 5, 100, EnvironmentMark::NoEnvironment),
        process(11, 10, 101, EnvironmentMark::None),
        process(12, 5, 102, EnvironmentMark::Other),
        process(13, 5, 103, EnvironmentMark::None),
        process(14, 13, 104, EnvironmentMark::None),
        process(20, 1, 200, EnvironmentMark::NoEnvironment),
    ];
    let select = |daemons: &[u32]| {
        let daemons = daemons.iter().copied().collect();
        let found = select_targets(
            &table,
            &[],
            None,
            &HashSet::new(),
            &HashSet::from([10, 12, 13]),
            &daemons,
        );
        found.into_iter().map(|process| process.pid).collect::<Vec<_>>()
    };
    assert_eq!(select(&[]), [10, 11, 13, 14]);
    assert_eq!(select(&[13]), [10, 11]);
}

#[test]
fn targets_are_selected() {
    let table = [
        process(10, 1, 100, EnvironmentMark::Wanted),
        process(11, 10, 101, EnvironmentMark::None),
        process(12, 11, 102, EnvironmentMark::None),
        process(20, 1, 200, EnvironmentMark::None),
        process(21, 20, 201, EnvironmentMark::None),
        process(30, 1, 300, EnvironmentMark::Other),
        // Two that are each other's parent, as a slow scan may show.
        process(40, 41, 400, EnvironmentMark::Wanted),
        process(41, 40, 401, EnvironmentMark::None),
    ];
    let record = |pid, start_time, boot_id: Option<&str>| record(pid, start_time, boot_id.map(str::to_owned));
    let pids = |recorded: &[ProcessRecord], boot_id| -> Vec<u32> {
        select_targets(
            &table,
            recorded,
            boot_id,
            &HashSet::new(),
            &HashSet::new(),
            &HashSet::new(),
        )
        .into_iter()
        .map(|process| process.pid)
        .collect()
    };
    let marked = vec![10, 11, 12, 40, 41];
    assert_eq!(pids(&[], Some("b")), marked);
    assert_eq!(
        pids(&[record(20, Some(200), Some("b"))], Some("b")),
        [10, 11, 12, 20, 21, 40, 41]
    );
    for (recorded, boot_id) in [
        (record(20, Some(199), Some("b")), Some("b")),
        (record(20, Some(200), Some("a")), Some("b")),
        (record(20, None, Some("b")), Some("b")),
        (record(20, Some(200), None), None),
        (record(99, Some(200), Some("b")), Some("b")),
    ] {
        assert_eq!(
            pids(std::slice::from_ref(&recorded), boot_id),
            marked,
            "{recorded:?}"
        );
    }
}

#[test]
fn children_of_an_ended_process_are_targets() {
    let orphan = |pid, group, session, mark| Process {
        group,
        session,
        ..process(pid, 1, 200, mark)
    };
    let mut table = vec![
        orphan(10, 5, 1, EnvironmentMark::None),
        orphan(11, 11, 5, EnvironmentMark::NoEnvironment),
        orphan(12, 12, 12, EnvironmentMark::None),
        orphan(13, 4, 4, EnvironmentMark::None),
        // Started by another daemon.
        orphan(14, 14, 5, EnvironmentMark::Other),
    ];
    assert_eq!(pids(&table, &[(5, 100)], &[]), [10, 11]);
    // The leader is ending.
    table.push(process(5, 1, 100, EnvironmentMark::None));
    assert_eq!(pids(&table, &[(5, 100)], &[]), [10, 11, 5]);
    // Another process has the leader's pid, so group and session belong to that one.
    table[5].start_time = 150;
    assert_eq!(pids(&table, &[(5, 100)], &[]), [] as [u32; 0]);
    // The other process was found too.
    table[5].mark = EnvironmentMark::Wanted;
    assert_eq!(pids(&table, &[(5, 100), (5, 150)], &[]), [10, 11, 5]);
}

#[test]
fn a_daemon_started_by_an_agent_is_not_a_target() {
    let in_session = |pid, parent, mark| Process {
        session: 11,
        ..process(pid, parent, 100, mark)
    };
    let table = [
        process(10, 1, 100, EnvironmentMark::Wanted),
        // A tool in its own session, and the daemon that it started.
        process(11, 10, 100, EnvironmentMark::Wanted),
        in_session(12, 11, EnvironmentMark::Wanted),
        // Agents of that daemon, one without an environment.
        in_session(13, 12, EnvironmentMark::Other),
        in_session(14, 12, EnvironmentMark::None),
        // Not below the daemon.
        in_session(15, 11, EnvironmentMark::None),
        in_session(16, 1, EnvironmentMark::None),
    ];
    assert_eq!(pids(&table, &[(11, 100)], &[12]), [10, 11, 15, 16]);
    // Without its parents.
    let orphaned = &table[2..];
    assert_eq!(pids(orphaned, &[(11, 100)], &[12]), [15, 16]);
    // None of them is a daemon.
    assert_eq!(pids(&table, &[(11, 100)], &[]), [10, 11, 12, 13, 14, 15, 16]);
}

#[test]
fn a_process_with_only_the_recorded_pid_is_not_signalled() {
    let mut sleeper = Sleeper::start(None);
    let right = start_time(sleeper.0.id()).unwrap();
    for record in [
        sleeper.record(Some(right + 1), boot_id()),
        sleeper.record(Some(right), Some("another boot".to_owned())),
        sleeper.record(None, boot_id()),
    ] {
        assert_eq!(
            sweep(&SweepTarget::process(record), DEADLINES),
            SweepReport::default()
        );
        assert!(sleeper.is_running());
    }
    let record = sleeper.record(Some(right), boot_id());
    let report = sweep(&SweepTarget::process(record), DEADLINES);
    let expected = SweptProcess {
        pid: sleeper.0.id(),
        name: "sleep".to_owned(),
    };
    assert_eq!((report.ended, report.survivors), (vec![expected], vec![]));
}

#[test]
fn a_start_ends_only_what_its_own_instance_left() {
    let own = instance();
    let mut first = Sleeper::start(Some(&SpawnMark::random(&own).to_string()));
    let mut second = Sleeper::start(Some(&SpawnMark::random(&own).to_string()));
    let mut longer_name = Sleeper::start(Some(&format!("{}0:1", own.as_str())));
    let mut other = Sleeper::start(Some(&SpawnMark::random(&instance()).to_string()));
    let target = SweepTarget::instance(own, Vec::new());
    let mut expected = vec![first.0.id(), second.0.id()];
    expected.sort_unstable();
    let mut found = find(&target);
    found.sort_unstable();
    assert_eq!(found, expected);
    let report = sweep(&target, DEADLINES);
    assert_eq!(
        report.ended.iter().map(|ended| ended.pid).collect::<Vec<_>>(),
        expected
    );
    assert!(!first.is_running() && !second.is_running());
    assert!(longer_name.is_running() && other.is_running());
}
