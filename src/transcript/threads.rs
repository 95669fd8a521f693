//! Processes many items on a few threads. This module does not know the items or the work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does the work for each item on up to `limit` threads, each with a state of its own. The results are in the order of the
/// items; `None` if the thread of an item panicked.
pub(super) fn for_each<T: Sync, S, A: Send>(
    items: &[T],
    limit: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&T, &mut S) -> A + Sync,
) -> Vec<Option<A>> {
    let next = AtomicUsize::new(0);
    let run = || {
        let (mut state, mut done) = (state(), Vec::new());
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(item, &mut state)));
        }
    };
    let mut answers: Vec<Option<A>> = items.iter().map(|_| None).collect();
    thread::scope(|scope| {
        // If a thread cannot be started, the others do its work.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, run).ok();
        let others: Vec<_> = (1..limit.min(items.len())).filter_map(spawn).collect();
        let mut done = run();
        for thread in others {
            done.extend(thread.join().unwrap_or_default());
        }
        for (index, answer) in done {
            answers[index] = Some(answer);
        }
    });
    answers
}
