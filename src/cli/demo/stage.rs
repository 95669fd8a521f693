//! The stage of the demonstration: a folder, a daemon, and what is printed.
//!
//! It owns the numbers of the steps and the count of checks that failed. It must not know the play.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::JoinHandle;

use crate::cli::connect::{Daemon, Reach};
use crate::cli::exit::Exit;
use crate::cli::output::{BAD, GOOD, Output, STRONG};
use crate::cli::problem::{Outcome, Problem};

/// See the module.
pub(super) struct Stage<'a> {
    pub(super) reach: Reach,
    pub(super) output: &'a mut Output,
    /// Everything of the demonstration.
    pub(super) folder: PathBuf,
    /// The folder that the agent works in.
    pub(super) project: PathBuf,
    steps: u32,
    /// How many checks failed so far.
    pub(super) failed: u32,
    /// A connection that is being made, which may be starting a daemon.
    connecting: Option<JoinHandle<Outcome<Daemon>>>,
}

impl<'a> Stage<'a> {
    /// Sets the stage: makes the folder that the agent works in.
    pub(super) fn set(reach: Reach, folder: &Path, output: &'a mut Output) -> Outcome<Self> {
        let project = folder.join("project");
        fs::create_dir(&project).map_err(|error| Problem::file("make the folder", &project, &error))?;
        Ok(Self {
            reach,
            output,
            folder: folder.to_owned(),
            project,
            steps: 0,
            failed: 0,
            connecting: None,
        })
    }

    /// Connects to the daemon, and starts it when none runs. A start that has begun is finished even if this is dropped, so that
    /// no daemon starts unseen: see [`settle`](Self::settle).
    pub(super) async fn connect(&mut self) -> Outcome<Daemon> {
        let reach = self.reach.clone();
        let connecting = tokio::spawn(async move { reach.connect().await });
        let connected = self.connecting.insert(connecting).await;
        self.connecting = None;
        connected.map_err(|error| Problem::new(Exit::Failed, error.to_string()))?
    }

    /// Waits for the end of a start that has begun.
    pub(super) async fn settle(&mut self) {
        if let Some(connecting) = self.connecting.take() {
            // Whether it worked shows when the daemon is looked for.
            drop(connecting.await);
        }
    }

    /// Prints the heading of the next step.
    pub(super) fn step(&mut self, title: &str) -> Outcome {
        self.steps += 1;
        let heading = format!("{}. {title}", self.steps);
        let heading = self.output.look.paint(STRONG, &heading);
        self.output.line(&format!("\n{heading}"))
    }

    /// Prints what happens.
    pub(super) fn tell(&mut self, text: &str) -> Outcome {
        self.output.line(&format!("   {text}"))
    }

    /// Prints whether something holds.
    pub(super) fn check(&mut self, holds: bool, what: &str) -> Outcome {
        let verdict = if holds {
            self.output.look.paint(GOOD, "ok")
        } else {
            self.failed += 1;
            self.output.look.paint(BAD, "FAILED")
        };
        self.tell(&format!("{verdict}: {what}"))
    }
}
