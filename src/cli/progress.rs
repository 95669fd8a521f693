//! How far a command has come that takes long, on a terminal.
//!
//! It owns when a bar is shown and where its figures come from: while a call runs, the daemon is asked on the same
//! connection how far that has come. It must not know what the call does.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bridge_protocol::daemon::Work;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::connect::Daemon;
use super::output::Output;

/// What takes less is over before one would look.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often the figures are looked up: often enough to be seen moving.
const INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a call of this method. Where it takes long and standard error is a terminal, a bar is shown there, and is
/// gone at the end.
pub(super) async fn watched<T>(
    output: &Output,
    daemon: &Daemon,
    method: &str,
    call: impl Future<Output = T>,
) -> T {
    if output.json || output.note_look.columns.is_none() {
        return call.await;
    }
    // A daemon that cannot say it is none to fail for.
    let look_up = async || {
        let told = daemon.call(method::RunningWork::default()).await.ok();
        told.and_then(|told| newest(told.work, method))
    };
    let mut bar = None;
    let show = |work: Option<&Work>| {
        bar.get_or_insert_with(|| Bar::new(output.note_look.unicode))
            .show(work);
    };
    shown(call, look_up, show).await
}

/// A bar among other output. The caller removes it before it prints anything else.
pub(super) struct Watch<'a> {
    daemon: &'a Daemon,
    method: &'a str,
    unicode: bool,
    next: Instant,
    bar: Option<Bar>,
}

impl<'a> Watch<'a> {
    /// Watches a call of this method that begins now; nothing where no bar is to be shown.
    pub(super) fn of(output: &Output, daemon: &'a Daemon, method: &'a str) -> Option<Self> {
        if output.json || output.note_look.columns.is_none() {
            return None;
        }
        Some(Self {
            daemon,
            method,
            unicode: output.note_look.unicode,
            next: Instant::now() + PATIENCE,
            bar: None,
        })
    }

    /// Shows how far it has come once it is time for that. Nothing is lost when this is not waited for to its end.
    pub(super) async fn show(&mut self) {
        tokio::time::sleep_until(self.next).await;
        let told = self.daemon.call(method::RunningWork::default()).await.ok();
        let work = told.and_then(|told| newest(told.work, self.method));
        let bar = self.bar.get_or_insert_with(|| Bar::new(self.unicode));
        bar.show(work.as_ref());
        self.next = Instant::now() + INTERVAL;
    }

    /// Takes the bar away, until there is something to show again.
    pub(super) fn hide(&mut self) {
        self.bar = None;
    }
}

/// Waits for a call, and shows how far it has come once it takes long.
async fn shown<T>(
    call: impl Future<Output = T>,
    look_up: impl AsyncFn() -> Option<Work>,
    mut show: impl FnMut(Option<&Work>),
) -> T {
    let mut call = pin!(call);
    tokio::select! {
        done = &mut call => return done,
        () = tokio::time::sleep(PATIENCE) => {}
    }
    loop {
        let work = tokio::select! {
            done = &mut call => return done,
            work = look_up() => work,
        };
        show(work.as_ref());
        tokio::select! {
            done = &mut call => return done,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Of several such calls the one that began last is most likely this one.
fn newest(work: Vec<Work>, method: &str) -> Option<Work> {
    work.into_iter().rev().find(|one| one.method == method)
}

/// What is shown. It goes when it is dropped.
struct Bar {
    bar: ProgressBar,
    known: ProgressStyle,
    unknown: ProgressStyle,
    untold: ProgressStyle,
}

impl Bar {
    fn new(unicode: bool) -> Self {
        let style = |template: &str| {
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars(if unicode { "█▌░" } else { "#>." })
        };
        Self {
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
            known: style("[{bar:30}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}"),
            unknown: style("{binary_bytes} ..."),
            untold: style("{elapsed} ..."),
        }
    }

    fn show(&self, work: Option<&Work>) {
        let (done, total) = work.map_or((0, 0), |work| (work.done_bytes, work.total_bytes));
        if (done, total) == (0, 0) {
            // Of a call that is not on the list, or not yet, only the time is known.
            self.bar.set_style(self.untold.clone());
        } else if total == 0 {
            self.bar.set_style(self.unknown.clone());
        } else {
            self.bar.set_style(self.known.clone());
            // A file that is written to meanwhile may have more than there was.
            self.bar.set_length(total.max(done));
        }
        self.bar.set_position(done);
        self.bar.tick();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_calls_the_newest_of_its_method_counts() {
        let work = |method: &str, done_bytes| Work {
            method: method.to_owned(),
            conversation_id: None,
            done_bytes,
            total_bytes: 9,
        };
        let all = vec![work("a", 1), work("b", 2), work("a", 3), work("b", 4)];
        assert_eq!(newest(all.clone(), "a").map(|work| work.done_bytes), Some(3));
        assert_eq!(newest(all, "c"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_within_half_a_second_shows_nothing() {
        for (took_ms, expected) in [(499, 0), (510, 1), (620, 2)] {
            let mut looks = 0;
            let call = async {
                for _ in 0..took_ms {
                    tokio::time::advance(Duration::from_millis(1)).await;
                }
            };
            shown(call, async || None, |_| looks += 1).await;
            assert_eq!(looks, expected, "{took_ms} ms");
        }
    }
}
