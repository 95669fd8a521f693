//! Rounds: clients work, the daemon is killed, and the next daemon must know everything that was
//! acknowledged.
//!
//! The moment of a kill is a number of responses and events. While the daemon starts or stops and sends
//! nothing, it is a number of changes on its disk. It is never a time.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use rustix::process::Signal;
use serde_json::json;

use super::client::Client;
use super::erasing::Doomed;
use super::going_back::FOLDERS;
use super::home::{Daemon, Home, PATIENCE, signal};
use super::places::verify_places;
use super::verify::Ending;
use super::worker::{Figures, Worker};
use crate::random::Random;
use crate::signs::Watched;

/// Number of clients that work at the same time.
const CLIENTS: usize = 4;

/// Number of rounds unless `CRASH_ROUNDS` is set; few enough for the normal test run.
const ROUNDS: usize = 20;

/// A start is killed after fewer changes on disk than this; a start makes about this many before it listens.
const CHANGES_OF_A_START: usize = 40;

/// A stop is killed after fewer changes on disk than this.
const CHANGES_OF_A_STOP: usize = 40;

/// The configuration of the daemons. A cancelled turn gets little time, because some agents ignore
/// cancellations.
const CONFIG: &str = "[limits]\ncancel_grace_ms = 2000\n";

/// Counts the lines that clients read, and knows whether the daemon is about to be killed.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    count: Mutex<Count>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    lines: usize,
    /// Clients that wait for something that only the end of the daemon brings.
    waiting: usize,
    kill_is_meant: bool,
    /// A client has panicked and does nothing more.
    has_failed: bool,
}

/// Notifies the clock when a client's thread panics, so that nothing waits for it.
struct Alarm(Arc<Clock>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.count.lock().unwrap().has_failed = true;
            self.0.changed.notify_all();
        }
    }
}

impl Clock {
    /// Records that a client has read a line.
    pub(crate) fn tick(&self) {
        self.count.lock().unwrap().lines += 1;
        self.changed.notify_all();
    }

    /// Records that a client does nothing more until the daemon or its agent ends.
    pub(crate) fn waits_for_the_end(&self) {
        self.count.lock().unwrap().waiting += 1;
        self.changed.notify_all();
    }

    pub(crate) fn waits_no_more(&self) {
        self.count.lock().unwrap().waiting -= 1;
    }

    /// Whether the connection may end because the daemon is about to be killed.
    pub(crate) fn is_kill_meant(&self) -> bool {
        self.count.lock().unwrap().kill_is_meant
    }

    fn mean_to_kill(&self) {
        self.count.lock().unwrap().kill_is_meant = true;
    }

    /// Waits until this many lines were read, or until no client works any more.
    fn wait_for(&self, lines: usize) {
        let count = self.count.lock().unwrap();
        let reached = |count: &mut Count| count.lines < lines && count.waiting < CLIENTS && !count.has_failed;
        let (count, waited) = self.changed.wait_timeout_while(count, PATIENCE, reached).unwrap();
        drop(count);
        assert!(!waited.timed_out(), "the clients make no progress");
    }
}

/// How a round ends the daemon.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// The daemon is killed while clients work.
    Daemon,
    /// The daemon and its agents are killed, in either order.
    WithAgents { agents_first: bool },
    /// The daemon is killed while it deletes a conversation with its transcripts.
    Erasing,
    /// The daemon is killed while it stops.
    Stopping { by_signal: bool },
}

pub(super) fn number_from(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a number, not {text}")),
        Err(_) => otherwise,
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_daemon_is_killed() {
    let seed = number_from("CRASH_SEED", u64::from(std::process::id()) << 20 ^ 0x5eed);
    let rounds = usize::try_from(number_from("CRASH_ROUNDS", ROUNDS as u64)).unwrap();
    eprintln!("CRASH_SEED={seed} CRASH_ROUNDS={rounds}");
    let home = Home::new(CONFIG);
    let mut random = Random::new(seed);
    let mut workers: Vec<Worker> = (0..CLIENTS)
        .map(|number| {
            // Each client has its own folders, so that a folder move affects no other client.
            let folders = FOLDERS.map(|below| format!("{}/{number}{below}", home.project()));
            for folder in &folders {
                std::fs::create_dir_all(folder).unwrap();
            }
            Worker::new(number, seed, home.socket(), folders.to_vec())
        })
        .collect();
    let mut daemon = home.start();
    let (mut erasures, mut undone) = (0, 0);
    for round in 0..rounds {
        let lines = 1 + random.below(300);
        let blow = match random.below(100) {
            0..=49 => Blow::Daemon,
            50..=59 => Blow::Erasing,
            60..=79 => Blow::WithAgents {
                agents_first: random.chance(50),
            },
            _ => Blow::Stopping {
                by_signal: random.chance(50),
            },
        };
        let failed_starts = if random.chance(20) { 1 + random.below(3) } else { 0 };
        let told = format!(
            "round {round} of CRASH_SEED={seed} CRASH_ROUNDS={rounds}: {blow:?} after {lines} lines, then \
             {failed_starts} starts that fail"
        );
        let clock = Arc::new(Clock::default());
        for worker in &mut workers {
            worker.clock = Arc::clone(&clock);
        }
        let threads = spawn(workers, Worker::work);
        clock.wait_for(lines);
        clock.mean_to_kill();
        let doomed = strike(&home, &mut daemon, blow, round, &mut random);
        workers = join(threads, &told);
        for _ in 0..failed_starts {
            let watched = Watched::below(home.path());
            let changes = random.below(CHANGES_OF_A_START);
            home.spawn().kill_after(&watched, changes);
        }
        daemon = home.start();
        home.assert_only_those_of(&daemon);
        if let Some(doomed) = doomed {
            erasures += 1;
            undone += usize::from(doomed.verify(&home, &told));
        }
        verify_places(&home, &workers, &told);
        verify_list(&home, &workers);
        let ending = match blow {
            Blow::Daemon | Blow::WithAgents { .. } | Blow::Erasing => Ending::Killed,
            Blow::Stopping { .. } => Ending::Stopping,
        };
        workers = each(workers, &told, move |worker| worker.verify(ending));
        workers = each(workers, &told, Worker::verify_histories);
    }
    verify_places(&home, &workers, "after the last round");
    daemon.stop();
    home.assert_at_rest();
    tell(&workers);
    eprintln!("{erasures} erasures were killed, {undone} of them before the deletion was recorded");
}

/// Runs a part of each client's work, each in its own thread.
fn each(workers: Vec<Worker>, told: &str, part: impl Fn(&mut Worker) + Send + Copy + 'static) -> Vec<Worker> {
    join(spawn(workers, part), told)
}

fn spawn(
    workers: Vec<Worker>,
    part: impl Fn(&mut Worker) + Send + Copy + 'static,
) -> Vec<JoinHandle<Worker>> {
    let start = |mut worker: Worker| {
        std::thread::spawn(move || {
            let _alarm = Alarm(Arc::clone(&worker.clock));
            part(&mut worker);
            worker
        })
    };
    workers.into_iter().map(start).collect()
}

fn join(threads: Vec<JoinHandle<Worker>>, told: &str) -> Vec<Worker> {
    let joined: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    joined
        .into_iter()
        .map(|worker| worker.unwrap_or_else(|_| panic!("{told}")))
        .collect()
}

/// Ends the daemon as `blow` says. Returns a conversation that may have been deleted.
fn strike(home: &Home, daemon: &mut Daemon, blow: Blow, round: usize, random: &mut Random) -> Option<Doomed> {
    match blow {
        Blow::Daemon => daemon.kill(),
        Blow::Erasing => return Some(Doomed::of_killed(home, daemon, round, random)),
        Blow::WithAgents { agents_first } => {
            let agents = home.agents(daemon);
            if agents_first {
                kill_all(&agents);
                daemon.kill();
            } else {
                daemon.kill();
                kill_all(&agents);
            }
        }
        Blow::Stopping { by_signal } => {
            let watched = Watched::below(home.path());
            if by_signal {
                daemon.signal(Signal::TERM);
            } else if let Ok(mut client) = Client::connect(&home.socket()) {
                // Whether the daemon answers before it dies does not matter.
                drop(client.send("daemon/shutdown", &json!({})));
            }
            daemon.kill_after(&watched, random.below(CHANGES_OF_A_STOP));
        }
    }
    None
}

fn kill_all(pids: &[u32]) {
    for pid in pids {
        signal(*pid, Signal::KILL);
    }
}

/// Checks that the list contains every conversation. The list is read in one page, because a conversation
/// that continues meanwhile moves to the front.
fn verify_list(home: &Home, workers: &[Worker]) {
    let mut client = Client::connect(&home.socket()).unwrap();
    let page = client.call("conversation/list", &json!({"limit": 500}));
    assert!(page["nextCursor"].is_null(), "more than one page");
    let all = page["conversations"].as_array().unwrap();
    let listed: Vec<&str> = all.iter().map(|one| one["id"].as_str().unwrap()).collect();
    for worker in workers {
        for ledger in worker.active.iter().chain(&worker.retired) {
            assert_eq!(
                listed.contains(&ledger.id.as_str()),
                !ledger.deleted,
                "{}",
                ledger.id
            );
        }
    }
}

fn tell(workers: &[Worker]) {
    let mut all = Figures::default();
    let mut conversations = 0;
    for worker in workers {
        let figures = worker.figures;
        all.turns += figures.turns;
        all.failed_turns += figures.failed_turns;
        all.rolls += figures.rolls;
        all.recalled += figures.recalled;
        all.missing += figures.missing;
        all.repeated += figures.repeated;
        all.cut_short += figures.cut_short;
        all.held += figures.held;
        all.edits += figures.edits;
        all.undos += figures.undos;
        all.moves += figures.moves;
        all.trees += figures.trees;
        all.restored += figures.restored;
        all.repaired += figures.repaired;
        conversations += worker.active.len() + worker.retired.len();
    }
    eprintln!("{conversations} conversations, {all:?}");
    let tried = [
        all.turns,
        all.repeated,
        all.recalled,
        all.edits,
        all.moves,
        all.trees + all.restored + all.repaired,
    ];
    assert!(!tried.contains(&0), "an action was never tried: {all:?}");
}
