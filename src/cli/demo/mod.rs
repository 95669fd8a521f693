//! The demonstration: the main job, played step by step against a real daemon, and checked at each step.
//!
//! It owns the play, and a folder of its own that it removes again. It runs this program's own commands, and talks to the
//! loopback agent only, whose directive `[[recall]]` returns the history that it runs on.

mod play;
mod stage;

use bridge_protocol::method;
use clap::Args;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::connect::Reach;
use super::exit::Exit;
use super::output::{BAD, GOOD, Output, STRONG};
use super::problem::{Outcome, Problem};
use super::start::{self, Launch};
use crate::paths::{Environment, Paths};
use stage::Stage;

/// Run a self-checking demo in a temporary folder
///
/// Takes about a minute. Plays a conversation that loses its agent session in several ways, and checks each time that the agent
/// still has the whole history. Your own conversations and agents are not used.
#[derive(Debug, Args)]
pub(in crate::cli) struct Demo {
    /// Keep the temporary folder
    #[arg(long)]
    pub(in crate::cli) keep: bool,
}

/// How long the daemon may take to stop. It ends its agents within some seconds, however they behave.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Plays the main job.
///
/// # Errors
/// The stage cannot be set, the play is stopped by a signal, or the output cannot be written. A check that does not hold is
/// printed and makes the exit code [`Exit::Failed`].
pub(super) async fn demo(output: &mut Output, options: &Demo) -> Outcome<Exit> {
    // From here on a signal is a request: what has been set up is taken down first.
    let stopped = stopped()
        .map_err(|error| Problem::new(Exit::Failed, format!("cannot listen for signals: {error}")))?;
    let folder = own_folder()?;
    let mut stage = Stage::set(reach(&folder)?, &folder, output)?;
    let played = tokio::select! {
        played = play::play(&mut stage) => played,
        problem = stopped => Err(problem),
    };
    // Taken down first and reported afterwards: the output may have no reader any more.
    let cleaned = clean_up(&mut stage, &folder, options.keep).await;
    if let Err(problem) = played.and_then(|()| report(&mut stage, &cleaned)) {
        return Err(match problem.message {
            Some(_) => problem,
            // The reader left before the end, so that nothing has been shown to hold.
            None => problem.with_exit(Exit::Stopped(PIPE)),
        });
    }
    let failed = stage.failed;
    let (style, word) = match failed {
        0 => (GOOD, "Every step holds."),
        _ => (BAD, "Some steps do not hold."),
    };
    let word = stage.output.look.paint(style, word);
    stage.output.line(&word)?;
    if failed == 0 {
        return Ok(Exit::Done);
    }
    Err(Problem::new(Exit::Failed, format!("{failed} checks failed"))
        .hint("sessionctl demo --keep keeps the folder, with the daemon's log in log/"))
}

/// The signal by which the system says that nobody reads.
const PIPE: u8 = 13;

/// Catches the signals that ask the play to end, instead of ending the process; gives what the first of them makes of it.
fn stopped() -> io::Result<impl Future<Output = Problem>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        let (number, name) = tokio::select! {
            _ = interrupt.recv() => (2, "Ctrl-C"),
            _ = hang_up.recv() => (1, "the end of its terminal (SIGHUP)"),
            _ = terminate.recv() => (15, "SIGTERM"),
        };
        let what = format!("the demonstration was stopped by {name}");
        Problem::new(Exit::Stopped(number), what)
    })
}

/// Stops the daemon, and removes the folder unless it is kept. Returns what was done, each with
/// whether it worked.
async fn clean_up(stage: &mut Stage<'_>, folder: &Path, keep: bool) -> Vec<(bool, String)> {
    let mut done = Vec::new();
    let limit = STOP_LIMIT.as_secs();
    let failed = match tokio::time::timeout(STOP_LIMIT, stop(stage)).await {
        Ok(stopped) => stopped.err().map(|problem| problem.message.unwrap_or_default()),
        Err(_) => Some(format!("not within {limit} s")),
    };
    done.extend(failed.map(|why| (false, format!("the daemon stops: {why}"))));
    if keep {
        done.push((true, format!("the folder is kept: {}", folder.display())));
        return done;
    }
    done.push(match fs::remove_dir_all(folder) {
        Ok(()) => (true, "the folder is removed".to_owned()),
        Err(error) => (false, format!("the folder is removed: {error}")),
    });
    done
}

fn report(stage: &mut Stage<'_>, cleaned: &[(bool, String)]) -> Outcome {
    let heading = stage.output.look.paint(STRONG, "Cleaning up");
    stage.output.line(&format!("\n{heading}"))?;
    cleaned
        .iter()
        .try_for_each(|(holds, what)| stage.check(*holds, what))
}

async fn stop(stage: &mut Stage<'_>) -> Outcome {
    stage.settle().await;
    if let Some(daemon) = stage.reach.find().await? {
        daemon.call(method::Shutdown::default()).await?;
        daemon.closed().await;
    }
    start::wait_for_end(&stage.reach.paths).await
}

/// A daemon of its own: nothing of the user's is touched, and none of the user's configuration is read.
fn reach(folder: &Path) -> Outcome<Reach> {
    Ok(Reach {
        paths: Paths::resolve(Some(folder), None, None, &Environment::default())?,
        socket_named: false,
        may_start: true,
        launch: Launch {
            home: Some(folder.to_path_buf()),
            config: None,
            socket: None,
        },
    })
}

/// A new private folder. Its name is new each time, so that two demonstrations never meet. It is removed by [`clean_up`].
fn own_folder() -> Outcome<PathBuf> {
    let temporary = std::env::temp_dir();
    let made = temporary.canonicalize().and_then(|temporary| {
        let folder = tempfile::Builder::new()
            .prefix("sessiond-demo-")
            .tempdir_in(temporary)?;
        Ok(folder.keep())
    });
    made.map_err(|error| Problem::file("make a folder in", &temporary, &error))
}
