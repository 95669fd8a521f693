//! How far a command has come that takes long, on a terminal.
//!
//! It owns when a bar is shown and where its figures come from: while a call runs, the daemon is asked on the same
//! connection how far that has come. It must not know what the call does.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bridge_protocol::daemon::Work;
use bridge_protocol::method;
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::connect::Daemon;
use super::output::Output;

/// What takes less is over before one would look.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often the figures are looked up: often enough to be seen moving.
const INTERVAL: Duration = Duration::from_millis(100);

/// How often the spinner moves.
const SPIN: Duration = Duration::from_millis(100);

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
    let mut bar = None;
    let show = |work: Option<&Work>| {
        bar.get_or_insert_with(|| Bar::new(output.note_look.unicode))
            .show(work);
    };
    shown(call, Figures::of(daemon, method), show).await
}

/// Waits for a call, and shows how far it has come once it takes long.
async fn shown<T>(
    call: impl Future<Output = T>,
    mut figures: Figures<'_>,
    mut show: impl FnMut(Option<&Work>),
) -> T {
    let mut call = pin!(call);
    loop {
        tokio::select! {
            done = &mut call => return done,
            work = figures.next() => show(work.as_ref()),
        }
    }
}

/// The progress of a call that begins now.
pub(super) struct Figures<'a> {
    look_up: Box<dyn Fn() -> LocalBoxFuture<'a, Option<Work>> + 'a>,
    next: Instant,
}

impl<'a> Figures<'a> {
    /// Those of a call of this method.
    pub(super) fn of(daemon: &'a Daemon, method: &'a str) -> Self {
        Self::from(move || {
            // A daemon that cannot say it is none to fail for.
            let told = daemon.call(method::RunningWork::default());
            told.map(move |told| newest(told.ok()?.work, method))
                .boxed_local()
        })
    }

    fn from(look_up: impl Fn() -> LocalBoxFuture<'a, Option<Work>> + 'a) -> Self {
        Self {
            look_up: Box::new(look_up),
            next: Instant::now() + PATIENCE,
        }
    }

    /// The next figures once it is time for them; nothing where the daemon has none. Nothing is lost when this is not waited for
    /// to its end.
    pub(super) async fn next(&mut self) -> Option<Work> {
        tokio::time::sleep_until(self.next).await;
        let work = (self.look_up)().await;
        self.next = Instant::now() + INTERVAL;
        work
    }
}

/// Of several such calls the one that began last is most likely this one.
fn newest(work: Vec<Work>, method: &str) -> Option<Work> {
    work.into_iter().rev().find(|one| one.method == method)
}

/// A progress line at the bottom of a terminal. Dropping it removes the line.
pub(super) struct Bar {
    bar: ProgressBar,
    unicode: bool,
}

impl Bar {
    /// A spinner that shows the time.
    pub(super) fn new(unicode: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let shown = Self { bar, unicode };
        shown.doing("");
        shown.bar.enable_steady_tick(SPIN);
        shown
    }

    /// Shows a spinner, the time and what is done.
    pub(super) fn doing(&self, what: &str) {
        self.style("{spinner} {elapsed} {wide_msg}");
        self.bar.set_message(what.to_owned());
    }

    /// Shows how far it has come; only the time where that is not known.
    pub(super) fn show(&self, work: Option<&Work>) {
        match work.map_or((0, 0), |work| (work.done_bytes, work.total_bytes)) {
            (0, 0) => self.doing(""),
            (done, 0) => {
                self.style("{spinner} {binary_bytes} ...");
                self.bar.set_position(done);
            }
            (done, total) => {
                self.style("[{bar:30}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}");
                // A file that is written to meanwhile may have more than there was.
                self.bar.set_length(total.max(done));
                self.bar.set_position(done);
            }
        }
        self.bar.tick();
    }

    /// Writes while it is out of the way.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    fn style(&self, template: &str) {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let (done, ticks) = match self.unicode {
            true => ("█▌░", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "),
            false => ("#>.", "|/-\\ "),
        };
        self.bar.set_style(style.progress_chars(done).tick_chars(ticks));
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
            let figures = Figures::from(|| std::future::ready(None).boxed_local());
            shown(call, figures, |_| looks += 1).await;
            assert_eq!(looks, expected, "{took_ms} ms");
        }
    }
}
