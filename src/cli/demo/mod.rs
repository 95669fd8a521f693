//! The demonstration: the main job, played step by step against a real daemon, and checked at each step.
//!
//! It owns the play, and a folder of its own that it removes again. It talks to the daemon over the socket, as any app
//! would, and to the loopback agent only, whose directive `[[recall]]` tells which history it ran on. It must not know
//! anything that the wire contract does not say.

mod leftovers;
mod stage;
mod steps;

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use clap::Args;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::connect::Reach;
use super::exit::Exit;
use super::output::{BAD, GOOD, Output, STRONG};
use super::problem::{Outcome, Problem};
use super::start::{self, Launch};
use crate::paths::{Environment, Paths};
use stage::Stage;

/// Run a self-checking demo in a temporary folder
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
/// When the stage cannot be set, the play is stopped by a signal, or the output cannot be written. A step that does not
/// hold is told and makes the exit code [`Exit::Failed`].
pub(super) async fn demo(output: &mut Output, options: &Demo) -> Outcome<Exit> {
    // From here on a signal is a wish: what has been set up is taken down first.
    let mut wishes = Wishes::listen()?;
    let folder = own_folder()?;
    let mut stage = Stage::set(reach(&folder)?, &folder, output)?;
    let played = tokio::select! {
        played = steps::play(&mut stage) => played,
        wish = wishes.next() => Err(Problem::new(
            Exit::Stopped(wish.number),
            format!("the demonstration was stopped by {}", wish.name),
        )),
    };
    // Taken down first and told afterwards: what is told may have no reader any more.
    let cleaned = clean_up(&mut stage, &folder, options.keep).await;
    let told = tell_cleaned(&mut stage, &cleaned);
    if let Err(problem) = played.and(told) {
        return Err(match problem.message {
            Some(_) => problem,
            // The reader left before the end, so that nothing has been shown to hold.
            None => problem.with_exit(Exit::Stopped(PIPE)),
        });
    }

    let failed = stage.failed();
    if failed == 0 {
        let word = stage.output.look.paint(GOOD, "Every step holds.");
        stage.line(&word)?;
        return Ok(Exit::Done);
    }
    let word = stage.output.look.paint(BAD, "Some steps do not hold.");
    stage.line(&word)?;
    Err(Problem::new(Exit::Failed, format!("{failed} checks failed"))
        .hint("sessionctl demo --keep leaves the folder behind, with the daemon's log in log/"))
}

/// The signal by which the system tells that nobody reads.
const PIPE: u8 = 13;

/// A signal that asks the play to end.
#[derive(Clone, Copy)]
struct Wish {
    number: u8,
    name: &'static str,
}

const INTERRUPT: Wish = Wish {
    number: 2,
    name: "Ctrl-C",
};
const HANG_UP: Wish = Wish {
    number: 1,
    name: "the end of its terminal (SIGHUP)",
};
const TERMINATE: Wish = Wish {
    number: 15,
    name: "SIGTERM",
};

/// The signals that ask the play to end, instead of ending the process.
struct Wishes {
    interrupt: Signal,
    hang_up: Signal,
    terminate: Signal,
}

impl Wishes {
    fn listen() -> Outcome<Self> {
        let on = |kind| {
            signal(kind).map_err(|error| {
                Problem::new(Exit::Failed, format!("signals cannot be listened for: {error}"))
            })
        };
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            hang_up: on(SignalKind::hangup())?,
            terminate: on(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPT,
            _ = self.hang_up.recv() => HANG_UP,
            _ = self.terminate.recv() => TERMINATE,
        }
    }
}

/// What was done after the play, each with whether it worked.
struct CleanedUp {
    done: Vec<(bool, String)>,
    /// The folder, when it was asked to stay.
    kept: Option<PathBuf>,
}

/// Stops the daemon, looks for what it left behind, and removes the folder. Tells nothing yet.
async fn clean_up(stage: &mut Stage<'_>, folder: &Path, keep: bool) -> CleanedUp {
    let mut done = Vec::new();
    match tokio::time::timeout(STOP_LIMIT, stop(stage)).await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => {
            let told = problem.message.unwrap_or_default();
            done.push((false, format!("the daemon stops: {told}")));
        }
        Err(_) => done.push((
            false,
            format!("the daemon stops within {} s", STOP_LIMIT.as_secs()),
        )),
    }
    if let Some(left) = leftovers::staying(folder) {
        done.push((
            left.is_empty(),
            format!("no process is left behind{}", leftovers::told(&left)),
        ));
    }
    if keep {
        return CleanedUp {
            done,
            kept: Some(folder.to_path_buf()),
        };
    }
    let removed = fs::remove_dir_all(folder);
    let told = removed
        .as_ref()
        .err()
        .map_or_else(String::new, |error| format!(": {error}"));
    done.push((removed.is_ok(), format!("the folder is removed{told}")));
    CleanedUp { done, kept: None }
}

fn tell_cleaned(stage: &mut Stage<'_>, cleaned: &CleanedUp) -> Outcome {
    let heading = stage.output.look.paint(STRONG, "Cleaning up");
    stage.line(&format!("\n{heading}"))?;
    for (holds, what) in &cleaned.done {
        stage.check(*holds, what)?;
    }
    match &cleaned.kept {
        Some(folder) => stage.tell(&format!("the folder stays: {}", folder.display())),
        None => Ok(()),
    }
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

/// A new private folder. Its name is new each time, so that two demonstrations never meet.
fn own_folder() -> Outcome<PathBuf> {
    let temporary = std::env::temp_dir();
    let temporary = temporary
        .canonicalize()
        .map_err(|error| Problem::file("use", &temporary, &error))?;
    let unique = uuid::Uuid::new_v4().simple().to_string();
    let short = unique.get(..8).unwrap_or(&unique);
    let folder = temporary.join(format!("sessiond-demo-{short}"));
    DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .map_err(|error| Problem::file("make the folder", &folder, &error))?;
    Ok(folder)
}
