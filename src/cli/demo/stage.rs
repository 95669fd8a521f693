//! The stage of the demonstration: a folder, a daemon, and what the audience is told.
//!
//! It owns how one talks to the daemon in the play, and the count of checks that failed. It must not know the play.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_protocol::ConversationRef;
use bridge_protocol::conversation::OnLimit;
use bridge_protocol::event::Event;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::TurnResult;
use serde::Deserialize;
use tokio::task::JoinHandle;

use crate::cli::connect::{Daemon, Reach};
use crate::cli::exit::Exit;
use crate::cli::follow::Follower;
use crate::cli::output::{BAD, DIM, GOOD, Output, STRONG, one_line};
use crate::cli::problem::{Outcome, Problem};

/// How long one turn of the play may take. Each takes milliseconds, and a resume a few hundred of them.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// The directive that makes the loopback agent tell the history that it runs on.
pub(super) const RECALL: &str = "[[recall]]";

/// See the module.
pub(super) struct Stage<'a> {
    pub(super) reach: Reach,
    pub(super) output: &'a mut Output,
    /// The folder that the agent works in.
    pub(super) project: PathBuf,
    steps: u32,
    failed: u32,
    /// A connection that is being made, which may be starting a daemon.
    connecting: Option<JoinHandle<Outcome<Daemon>>>,
}

/// What came of a prompt.
#[derive(Debug)]
pub(super) struct Said {
    /// How the turn ended.
    pub(super) turn: TurnResult,
    /// The agent's words.
    pub(super) words: String,
}

/// One turn of the history that the agent runs on, as `[[recall]]` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Recalled {
    /// The prompt's text as it was sent.
    pub(super) user: String,
}

impl<'a> Stage<'a> {
    /// Sets the stage: the folder that the agent works in.
    pub(super) fn set(reach: Reach, folder: &Path, output: &'a mut Output) -> Outcome<Self> {
        let project = folder.join("project");
        fs::create_dir(&project).map_err(|error| Problem::file("make the folder", &project, &error))?;
        Ok(Self {
            reach,
            output,
            project,
            steps: 0,
            failed: 0,
            connecting: None,
        })
    }

    /// Connects to the daemon, and starts it when none runs. A start that has begun is brought to its end also when
    /// this is dropped, so that no daemon comes up unseen: see [`settle`](Self::settle).
    pub(super) async fn connect(&mut self) -> Outcome<Daemon> {
        let reach = self.reach.clone();
        let connecting = self
            .connecting
            .insert(tokio::spawn(async move { reach.connect().await }));
        let connected = connecting.await;
        self.connecting = None;
        connected.map_err(|error| Problem::new(Exit::Failed, error.to_string()))?
    }

    /// Waits for the end of a start that was begun.
    pub(super) async fn settle(&mut self) {
        if let Some(connecting) = self.connecting.take() {
            // Whether it worked shows when the daemon is looked for.
            drop(connecting.await);
        }
    }

    /// How many checks failed so far.
    pub(super) fn failed(&self) -> u32 {
        self.failed
    }

    /// Tells a line.
    pub(super) fn line(&mut self, text: &str) -> Outcome {
        self.output.line(text)
    }

    /// Announces a step.
    pub(super) fn step(&mut self, title: &str) -> Outcome {
        self.steps += 1;
        let heading = self
            .output
            .look
            .paint(STRONG, &format!("{}. {title}", self.steps));
        self.line(&format!("\n{heading}"))
    }

    /// Tells what happens.
    pub(super) fn tell(&mut self, text: &str) -> Outcome {
        self.line(&format!("   {text}"))
    }

    /// Tells whether something holds.
    pub(super) fn check(&mut self, holds: bool, what: &str) -> Outcome {
        let look = self.output.look;
        let verdict = if holds {
            look.paint(GOOD, "ok")
        } else {
            self.failed += 1;
            look.paint(BAD, "FAILED")
        };
        self.line(&format!("   {verdict}: {what}"))
    }

    /// Sends a prompt, follows its turn to the end, and tells both.
    pub(super) async fn say(
        &mut self,
        daemon: &Daemon,
        conversation: &ConversationRef,
        text: &str,
    ) -> Outcome<Said> {
        self.say_or_wait(daemon, conversation, text, OnLimit::Fail).await
    }

    /// The same, of a prompt that meets a limit and may go on by itself afterwards.
    pub(super) async fn say_or_wait(
        &mut self,
        daemon: &Daemon,
        conversation: &ConversationRef,
        text: &str,
        on_limit: OnLimit,
    ) -> Outcome<Said> {
        self.tell(&format!("> {text}"))?;
        let said = say(daemon, conversation, text, on_limit).await?;
        let look = self.output.look;
        let words = one_line(&said.words);
        if !words.is_empty() {
            self.tell(&look.paint(DIM, &format!("< {words}")))?;
        }
        // An agent may say in words what it also fails with.
        if let Some(failure) = &said.turn.failure
            && one_line(&failure.message) != words
        {
            self.tell(&look.paint(DIM, &format!("! {}", one_line(&failure.message))))?;
        }
        Ok(said)
    }

    /// Asks the agent which history it runs on.
    pub(super) async fn recall(
        &mut self,
        daemon: &Daemon,
        conversation: &ConversationRef,
    ) -> Outcome<Vec<Recalled>> {
        self.tell(&format!("> {RECALL}"))?;
        let said = say(daemon, conversation, RECALL, OnLimit::Fail).await?;
        let recalled: Vec<Recalled> = serde_json::from_str(said.words.trim()).map_err(|error| {
            Problem::new(
                Exit::Failed,
                format!(
                    "the agent's recall is not what it should be: {error}: {}",
                    said.words
                ),
            )
        })?;
        let last = recalled.last().map_or("", |turn| turn.user.as_str());
        let told = format!("< {} turns, the last is {:?}", recalled.len(), one_line(last));
        let told = self.output.look.paint(DIM, &told);
        self.tell(&told)?;
        Ok(recalled)
    }
}

/// Sends a prompt and collects the agent's words until its turn has ended.
async fn say(
    daemon: &Daemon,
    conversation: &ConversationRef,
    text: &str,
    on_limit: OnLimit,
) -> Outcome<Said> {
    let mut follower = Follower::start(daemon, conversation.clone()).await?;
    let prompt = daemon.call(method::Prompt {
        conversation_id: conversation.clone(),
        prompt: PromptContent::text(text),
        on_limit,
        ..Default::default()
    });
    // A prompt that is refused has no turn, and so no end to wait for: then its error ends both.
    let turn = async { prompt.await.map_err(Problem::from) };
    let both = async { tokio::try_join!(turn, collect(&mut follower)) };
    match tokio::time::timeout(TURN_LIMIT, both).await {
        Ok(said) => said.map(|(turn, words)| Said { turn, words }),
        Err(_) => Err(Problem::new(
            Exit::Failed,
            format!("the turn has not ended after {} s", TURN_LIMIT.as_secs()),
        )),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    session_update: String,
    content: Option<Text>,
}

#[derive(Deserialize)]
struct Text {
    text: Option<String>,
}

async fn collect(follower: &mut Follower<'_>) -> Outcome<String> {
    let mut words = String::new();
    loop {
        match follower.next().await?.envelope.event {
            Event::Update { update, .. } => {
                // Updates of other shapes are not words.
                if let Ok(chunk) = update.read::<Chunk>()
                    && chunk.session_update == "agent_message_chunk"
                {
                    words.extend(chunk.content.and_then(|content| content.text));
                }
            }
            Event::TurnEnded { .. } => return Ok(words),
            _ => {}
        }
    }
}
