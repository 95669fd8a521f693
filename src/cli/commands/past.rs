//! What was said: `checkpoints`, and `history` with its pager.

use bridge_protocol::client::Call as _;
use bridge_protocol::method;
use clap::Args;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use bridge_protocol::history::{Checkpoint, HistoryGap, HistoryPage};
use bridge_protocol::{ConversationRef, Cursor, UpstreamId};
use tokio::signal::unix::{SignalKind, signal};

use super::{Context, conversation_ref};
use crate::cli::connect::Daemon;
use crate::cli::exit::Exit;
use crate::cli::output::{ATTENTION, DIM, Look, cut, one_line};
use crate::cli::past::{FOLDED_COLUMNS, Teller};
use crate::cli::problem::Outcome;
use crate::cli::progress::watched;
use crate::cli::words;

/// `checkpoints` and `history`.
#[derive(Debug, Args)]
pub(in crate::cli) struct Past {
    /// Conversation id, an id prefix (6 or more characters), or . (newest in this folder)
    #[arg(value_name = "CONV")]
    pub(in crate::cli) conversation: String,
    /// Show only the last N entries (default: all)
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) last: Option<u32>,
}

/// Checkpoints that are asked for at once; the daemon's own limit of a page.
pub(super) const CHECKPOINT_PAGE: u32 = 500;

/// Messages that are asked for at once; the daemon's own limit of a page.
pub(super) const MESSAGE_PAGE: u32 = 1_000;

/// Lists the places after the turns of the history, newest first.
pub(in crate::cli) async fn checkpoints(context: &mut Context<'_>, past: &Past) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &past.conversation).await?;
    let mut left = past.last.unwrap_or(u32::MAX);
    let mut before = None;
    loop {
        let is_first = before.is_none();
        let limit = Some(left.min(CHECKPOINT_PAGE));
        let call = daemon.call(method::Checkpoints {
            conversation_id: conversation.clone(),
            before: before.take(),
            limit,
        });
        let page = match is_first {
            true => watched(context.output, &daemon, "conversation/checkpoints", call).await?,
            // Whoever reads the first page sees that it goes on.
            false => call.await?,
        };
        if context.output.json {
            context.answer(&daemon, "conversation/checkpoints")?;
        } else {
            for checkpoint in &page.checkpoints {
                for line in checkpoint_lines(checkpoint, context.output.look) {
                    context.output.line(&line)?;
                }
            }
            if is_first {
                tell_kept(context, &page.kept)?;
                tell_gaps(context, &page.gaps)?;
            }
            if is_first && page.checkpoints.is_empty() {
                context.output.note("nothing was said yet")?;
            }
        }
        left = left.saturating_sub(u32::try_from(page.checkpoints.len()).unwrap_or(u32::MAX));
        let last = page.checkpoints.last().filter(|last| last.step > 1 && left > 0);
        before = last.map(|last| last.id.clone());
        if before.is_none() {
            return Ok(Exit::Done);
        }
    }
}

fn checkpoint_lines(checkpoint: &Checkpoint, look: Look) -> [String; 2] {
    let room = look.columns.unwrap_or(FOLDED_COLUMNS).saturating_sub(28).max(20);
    let prompt = match one_line(&checkpoint.prompt) {
        // A picture, say.
        empty if empty.is_empty() => look.paint(DIM, "[no text]"),
        prompt => cut(&prompt, room, look),
    };
    let at = checkpoint.at.map_or_else(
        || "-".to_owned(),
        |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
    );
    let first = format!("{:>4}  {at:<20}  {prompt}", checkpoint.step);
    let id = look.paint(DIM, &one_line(checkpoint.id.as_str()));
    [first, format!("      {id}")]
}

/// Shows what was said.
pub(in crate::cli) async fn history(context: &mut Context<'_>, past: &Past) -> Outcome<Exit> {
    let daemon = context.connect().await?;
    let conversation = conversation_ref(&daemon, &past.conversation).await?;
    let mut pager = if context.output.json || context.output.look.columns.is_none() {
        None
    } else {
        Pager::start()
    };
    // At a terminal Ctrl-C is for the pager, which goes on: it must not be left there alone.
    let _interrupts = pager.as_ref().map(|_| signal(SignalKind::interrupt()));
    let mut seen = Seen::default();
    let shown = show_pages(
        context,
        &daemon,
        &conversation,
        past.last,
        pager.as_mut(),
        &mut seen,
    )
    .await;
    // Also when the daemon has gone meanwhile: what was handed over is still being read.
    if let Some(pager) = pager {
        pager.end();
    }
    shown?;
    tell_kept(context, &seen.kept)?;
    tell_gaps(context, &seen.gaps)?;
    if seen.messages == 0 && !context.output.json {
        context.output.note("nothing was said yet")?;
    }
    Ok(Exit::Done)
}

/// What the pages of a history held.
#[derive(Default)]
struct Seen {
    messages: usize,
    gaps: Vec<HistoryGap>,
    kept: Vec<UpstreamId>,
}

impl Seen {
    fn take(&mut self, page: &HistoryPage) {
        self.messages += page.messages.len();
        for id in &page.kept {
            if !self.kept.contains(id) {
                self.kept.push(id.clone());
            }
        }
        for gap in &page.gaps {
            if !self.gaps.contains(gap) {
                self.gaps.push(gap.clone());
            }
        }
    }
}

/// Shows page after page as they come, from the beginning or only the `last` so many messages.
async fn show_pages(
    context: &mut Context<'_>,
    daemon: &Daemon,
    conversation: &ConversationRef,
    last: Option<u32>,
    mut pager: Option<&mut Pager>,
    seen: &mut Seen,
) -> Outcome {
    let mut teller = Teller::new(context.output.look);
    let mut left = last.unwrap_or(u32::MAX);
    let mut cursor: Option<Cursor> = None;
    loop {
        let limit = Some(left.min(MESSAGE_PAGE));
        let first = last.filter(|_| cursor.is_none());
        let is_first = cursor.is_none();
        let call = daemon.call(method::History {
            conversation_id: conversation.clone(),
            cursor: cursor.take(),
            limit,
            last: first,
        });
        let page = match is_first {
            true => watched(context.output, daemon, "conversation/history", call).await?,
            // Whoever reads the first page sees that it goes on.
            false => call.await?,
        };
        seen.take(&page);
        if context.output.json {
            context.answer(daemon, "conversation/history")?;
        } else {
            let text = teller.page(&page.messages);
            let wants_more = match pager.as_deref_mut() {
                Some(pager) => pager.take(&text),
                None => context.output.text(&text).map(|()| true)?,
            };
            if !wants_more {
                return Ok(());
            }
        }
        left = match last {
            Some(_) => left.saturating_sub(u32::try_from(page.messages.len()).unwrap_or(u32::MAX)),
            None => left,
        };
        cursor = page.next_cursor.filter(|_| left > 0);
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Says which sessions are told from kept copies.
pub(super) fn tell_kept(context: &mut Context<'_>, kept: &[UpstreamId]) -> Outcome {
    let sessions: Vec<String> = kept.iter().map(|id| words::short(id.as_str())).collect();
    let line = match sessions.as_slice() {
        _ if context.output.json => return Ok(()),
        [] => return Ok(()),
        [one] => format!("from the kept copy of session {one}: its agent has no transcript of it any more"),
        several => format!(
            "from the kept copies of sessions {}: their agent has no transcripts of them any more",
            several.join(", ")
        ),
    };
    let line = context.output.note_look.paint(DIM, &line);
    context.output.note(&line)
}

fn tell_gaps(context: &mut Context<'_>, gaps: &[HistoryGap]) -> Outcome {
    for gap in gaps {
        let mark = context.output.note_look.paint(ATTENTION, "incomplete:");
        let session = words::short(&one_line(gap.upstream_id.as_str()));
        let line = format!("{mark} session {session}: {}", one_line(&gap.detail));
        context.output.note(&line)?;
    }
    Ok(())
}

/// A program that shows long text a screen at a time.
struct Pager {
    child: Child,
}

impl Pager {
    /// Starts `$PAGER`, else `less` if it is there; nothing when neither starts or `$PAGER` is empty.
    fn start() -> Option<Self> {
        let wanted = std::env::var("PAGER").ok();
        if wanted.as_deref().is_some_and(|wanted| wanted.trim().is_empty()) {
            return None;
        }
        let mut command = match &wanted {
            // As other programs read it: a command line.
            Some(line) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(line);
                shell
            }
            None => Command::new("less"),
        };
        if std::env::var_os("LESS").is_none() {
            // Leave at once when it all fits, show colours, leave the text on the screen.
            command.env("LESS", "FRX");
        }
        let child = command.stdin(Stdio::piped()).spawn().ok()?;
        Some(Self { child })
    }

    /// Hands text over; false when the reader has seen enough.
    fn take(&mut self, text: &str) -> bool {
        let Some(input) = &mut self.child.stdin else {
            return false;
        };
        input.write_all(text.as_bytes()).is_ok()
    }

    /// Waits until the reader leaves.
    fn end(mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            tracing::debug!(%error, "the pager could not be waited for");
        }
    }
}
