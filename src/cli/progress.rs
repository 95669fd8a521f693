//! Shows the progress of a long call on a terminal.
//!
//! It owns when a progress line is shown and where its figures come from: while a call runs, the daemon is polled on the
//! same connection. It must not know what the call does.

use std::future::Future;
use std::io::{self, Write as _};
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use bridge_protocol::daemon::Work;
use bridge_protocol::method;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use tokio::time::Instant;

use super::connect::Daemon;
use super::lock;
use super::output::{Look, Output, columns_of, truncate};

/// How long to wait before progress is shown. A shorter call needs none.
const SHOW_DELAY: Duration = Duration::from_millis(500);

/// How often the figures are polled: often enough to look continuous.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often the spinner moves.
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of redraws per second.
const DRAWS_PER_SECOND: u8 = 20;

/// The width of the spinner and the time, such as `⠋ 59m `.
const TIME_COLUMNS: usize = 7;

/// Waits for a call of this method. If it takes long and standard error is a terminal, a progress line is shown there and
/// removed at the end.
pub(super) async fn with_progress<T>(
    output: &Output,
    daemon: &Daemon,
    method: &str,
    call: impl Future<Output = T>,
) -> T {
    let Some(mut figures) = ProgressPoller::new(output, daemon, method) else {
        return call.await;
    };
    let (mut call, mut bar) = (pin!(call), None);
    loop {
        tokio::select! {
            done = &mut call => return done,
            work = figures.next() => {
                let bar = bar.get_or_insert_with(|| ProgressLine::new(output.note_look));
                bar.show(work.as_ref());
            }
        }
    }
}

/// Polls the daemon for the progress of a call.
pub(super) struct ProgressPoller<'a> {
    daemon: &'a Daemon,
    method: &'a str,
    next: Instant,
}

impl<'a> ProgressPoller<'a> {
    /// Creates a poller for a call of this method, or none if no progress line can be shown.
    pub(super) fn new(output: &Output, daemon: &'a Daemon, method: &'a str) -> Option<Self> {
        let next = Instant::now() + SHOW_DELAY;
        output.shows_progress().then_some(Self { daemon, method, next })
    }

    /// Waits until the next poll is due and returns the figures, or `None` if the daemon has none. The future can be dropped
    /// without loss.
    pub(super) async fn next(&mut self) -> Option<Work> {
        tokio::time::sleep_until(self.next).await;
        let running = self.daemon.call(method::RunningWork::default()).await;
        self.next = Instant::now() + POLL_INTERVAL;
        // Progress is optional: an error of the daemon is ignored. If several clients make such calls, the last one is most likely
        // this one.
        running
            .ok()?
            .work
            .into_iter()
            .rfind(|one| one.method == self.method)
    }
}

/// A progress line at the bottom of a terminal. Dropping it removes the line.
pub(super) struct ProgressLine {
    bar: ProgressBar,
    look: Look,
}

impl ProgressLine {
    /// Creates a spinner that shows the elapsed time.
    pub(super) fn new(look: Look) -> Self {
        let target = match ProgressDrawTarget::stderr() {
            // For example, the terminal cannot move its cursor.
            hidden if hidden.is_hidden() => hidden,
            _ => ProgressDrawTarget::term_like_with_hz(Box::<UnpaddedStderr>::default(), DRAWS_PER_SECOND),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let shown = Self { bar, look };
        shown.show_activity("");
        shown.bar.enable_steady_tick(SPINNER_INTERVAL);
        shown
    }

    /// Shows a spinner, the elapsed time and the current activity.
    pub(super) fn show_activity(&self, what: &str) {
        self.style("{spinner} {elapsed} {wide_msg}");
        let columns = self.look.columns.unwrap_or(usize::MAX);
        let room = columns.saturating_sub(TIME_COLUMNS);
        self.bar.set_message(truncate(what, room, self.look));
    }

    /// Shows the progress, or only the elapsed time if the progress is not known.
    pub(super) fn show(&self, work: Option<&Work>) {
        match work.map_or((0, 0), |work| (work.done_bytes, work.total_bytes)) {
            (0, 0) => self.show_activity(""),
            (done, 0) => {
                self.style("{spinner} {binary_bytes} ...");
                self.bar.set_position(done);
            }
            (done, total) => {
                self.style("[{bar:30}] {percent:>3}%  {binary_bytes} of {binary_total_bytes}");
                // A file that is written to meanwhile may have grown.
                self.bar.set_length(total.max(done));
                self.bar.set_position(done);
            }
        }
        self.bar.tick();
    }

    /// Hides the line while `write` runs.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    fn style(&self, template: &str) {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let (done, ticks) = match self.look.unicode {
            true => ("█▌░", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "),
            false => ("#>.", "|/-\\ "),
        };
        self.bar.set_style(style.progress_chars(done).tick_chars(ticks));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Standard error without the spaces that `indicatif` writes up to the last column.
///
/// After the last column, the terminal's echo of a key, such as `^C`, would begin a new line, and the next redraw would clear
/// only that one. The cursor is therefore returned to the first column, so that the echo is in the line that is cleared next.
#[derive(Debug, Default)]
struct UnpaddedStderr {
    /// Text for the next flush, so that no partly drawn line is visible.
    pending: Mutex<String>,
}

impl UnpaddedStderr {
    fn add(&self, text: &str) {
        let mut pending = lock(&self.pending);
        pending.push_str(text);
    }

    /// Moves the cursor; the letter is the direction.
    fn move_cursor(&self, cells: usize, direction: char) -> io::Result<()> {
        // A terminal reads 0 as 1.
        if cells > 0 {
            self.add(&format!("\x1b[{cells}{direction}"));
        }
        Ok(())
    }
}

impl TermLike for UnpaddedStderr {
    fn width(&self) -> u16 {
        let columns = columns_of(io::stderr()).and_then(|columns| u16::try_from(columns).ok());
        columns.unwrap_or(80)
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.move_cursor(lines, 'A')
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.move_cursor(lines, 'B')
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.move_cursor(columns, 'C')
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.move_cursor(columns, 'D')
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.add(line);
        self.add("\n");
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        let is_padding = text.chars().all(|letter| letter == ' ');
        if !is_padding {
            self.add(text);
        }
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add("\r\x1b[2K");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.add("\r");
        let mut pending = lock(&self.pending);
        let text = std::mem::take(&mut *pending);
        let mut stderr = io::stderr().lock();
        stderr.write_all(text.as_bytes())?;
        stderr.flush()
    }
}
